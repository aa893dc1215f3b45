"""The peers: llama.cpp's own binaries, built from the sources that llama-cpp-python ships.

Both then run equal engine sources with one compiler, so a difference is asperf's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

from filelock import FileLock

from pytest_asperf.modelfiles.cache import cache_root

TOOLS: Final = (
    *("llama-bench", "llama-perplexity", "llama-quantize", "llama-completion"),
    *("llama-speculative-simple", "llama-server", "ggml-rpc-server"),
)

#: Names a folder that has the tools already.
TOOLS_VARIABLE: Final = "ASPERF_BENCH_TOOLS"

#: As the library was compiled: a result's last digits depend on the processor's instructions.
_FLAGS: Final = (
    *shlex.split(os.environ.get("CMAKE_ARGS", "")),
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_CURL=OFF",
    "-DGGML_RPC=ON",
)


def tools_folder() -> Path:
    """Return the folder of the tools, built now if they are not there.

    Raises:
        FileNotFoundError: the folder named in the environment lacks one, or CMake is missing.
        subprocess.CalledProcessError: the download or the build failed.
    """
    named = os.environ.get(TOOLS_VARIABLE)
    if named is None:
        return _built(cache_root(os.environ) / "tools" / version("llama-cpp-python"))
    folder = Path(named).resolve()
    missing = [tool for tool in TOOLS if not (folder / tool).is_file()]
    if missing:
        raise FileNotFoundError(f"{TOOLS_VARIABLE}={folder} lacks {', '.join(missing)}")
    return folder


def _built(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    binaries, complete = root / "build" / "bin", root / "complete"
    with FileLock(root / "lock"):
        made = " ".join((*_FLAGS, *TOOLS))
        if not complete.exists() or complete.read_text() != made:
            _build(_source(root), root / "build")
            complete.write_text(made)
    return binaries


def _source(root: Path) -> Path:
    wanted = f"llama-cpp-python=={version('llama-cpp-python')}"
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary=llama-cpp-python"]
    subprocess.run([*pip, "--dest", str(root), wanted], check=True)
    (archive,) = root.glob("llama_cpp_python-*.tar.gz")
    with tarfile.open(archive) as tar:
        # Python 3.11.0 to 3.11.3 have none; the unpacked content is compiled and run anyway.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(root)  # noqa: S202  # as above
    return root / archive.name.removesuffix(".tar.gz") / "vendor" / "llama.cpp"


def _build(source: Path, folder: Path) -> None:
    cmake = shutil.which("cmake")
    if cmake is None:
        raise FileNotFoundError("no cmake on the path: install it, or set " + TOOLS_VARIABLE)
    configure = [cmake, "--fresh", "-S", str(source), "-B", str(folder), *_FLAGS]
    subprocess.run(configure, check=True)
    build = [cmake, "--build", str(folder), "--parallel", str(os.cpu_count() or 1)]
    subprocess.run([*build, "--target", *TOOLS], check=True)


if __name__ == "__main__":
    print(tools_folder())
