"""An interpreter whose llama.cpp has RPC: a copy of the package with the binaries' own libraries.

They are of the same sources as the library that pip installs, which has no RPC.
"""

import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path


def rpc_python(tools: Path, folder: Path) -> Path:
    """An interpreter in a new folder that uses the libraries next to llama.cpp's binaries."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    package = Path(str(distribution("llama-cpp-python").locate_file("llama_cpp")))
    shutil.copytree(package, site / "llama_cpp", ignore=shutil.ignore_patterns("lib"))
    (site / "llama_cpp" / "lib").mkdir()
    for library in tools.glob("lib*.so*"):
        (site / "llama_cpp" / "lib" / library.name).symlink_to(library.resolve())
    (site / "rest.pth").write_text(f"{package.parent}\n")
    return folder / "bin" / "python"
