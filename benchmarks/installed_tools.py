"""The peers: llama.cpp's own binaries, which pip compiles with the library by tox.ini's CMAKE_ARGS.

Both then run equal engine sources with one compiler, so a difference is asperf's.
"""

import os
import sysconfig
from pathlib import Path
from typing import Final

#: Names a folder of other binaries.
TOOLS_VARIABLE: Final = "ASPERF_BENCH_TOOLS"

_TOOLS: Final = (
    *("llama-bench", "llama-perplexity", "llama-quantize", "llama-completion"),
    *("llama-speculative-simple", "llama-server", "ggml-rpc-server"),
)


def tools_folder() -> Path:
    """Return the folder of the tools.

    Raises:
        FileNotFoundError: the folder lacks one.
    """
    installed = Path(sysconfig.get_path("platlib"), "lib")
    folder = Path(os.environ.get(TOOLS_VARIABLE, installed)).resolve()
    missing = [tool for tool in _TOOLS if not (folder / tool).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks {', '.join(missing)}: run `tox run -e bench`, or set {TOOLS_VARIABLE}"
        )
    return folder
