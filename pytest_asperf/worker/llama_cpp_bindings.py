"""The functions of llama-cpp-python alone; importing its classes as well lasts four times as long.

Each pair of a gate starts two processes, so their start is a large part of its duration.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_NEEDED_PARTS: Final = ("libggml-base", "libggml-cpu", "libggml")


def _functions(package: ModuleSpec | None) -> ModuleType:
    """Import `llama_cpp.llama_cpp` while `llama_cpp` is an empty package.

    The empty one is removed, so that a later `import llama_cpp` brings everything. A package that
    is there already has the functions that this interpreter's owner replaced.
    """
    if package is None or package.name in sys.modules:
        return import_module("llama_cpp")
    sys.modules[package.name] = module_from_spec(package)
    try:
        return import_module("llama_cpp.llama_cpp")
    finally:
        del sys.modules[package.name]


def _import_numpy() -> None:
    """Import numpy without its threads for BLAS, whose start lasts as long as all else."""
    threads, before = "OPENBLAS_NUM_THREADS", os.environ.copy()
    os.environ[threads] = "1"
    import_module("numpy")
    del os.environ[threads]
    os.environ.update(before)


def _version(functions: ModuleType) -> str:
    """The version in the package's own source; importlib.metadata needs 50 ms."""
    source = Path(str(functions.__file__)).with_name("__init__.py").read_text("utf-8")
    assigned = re.search(r'^__version__ = "([^"\n]{1,40})"', source, re.MULTILINE)
    return assigned[1] if assigned else "unknown"


def load_own_parts(folder: str) -> None:
    """Load the libraries that a folder's libllama needs from the same folder.

    Compiled ones have the path of the folder that they were linked in, so a copy would be run with
    libraries that the original folder has now. One that is loaded already is not searched.
    """
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    backends = (path.name.removesuffix(suffix) for path in Path(folder).glob(f"libggml-*{suffix}"))
    for name in ("libggml-base", "libggml-cpu", *sorted(backends), "libggml"):
        path = Path(folder, name + suffix)
        # A backend without its driver, which ggml may load or not, is no error.
        optional = () if name in _NEEDED_PARTS else (OSError,)
        if path.exists():
            with suppress(*optional):
                ctypes.CDLL(str(path))


if _folder := os.environ.get("LLAMA_CPP_LIB_PATH"):
    load_own_parts(_folder)

#: The module of all functions, structures and constants of llama.h.
llama_cpp: Final = _functions(find_spec("llama_cpp"))
llama_cpp_version: Final = _version(llama_cpp)
#: The library with those that it is linked to; llama_cpp's own handle of ggml is of its own folder.
GGML: Final[Any] = sys.modules["llama_cpp.llama_cpp"]._lib  # noqa: SLF001  # it has no other name
# After the library, which may have a BLAS of its own.
_import_numpy()
