"""The functions of llama-cpp-python alone; importing its classes as well lasts four times as long.

Each pair of a gate starts two processes, so their start is a large part of its duration.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


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


#: The module of all functions, structures and constants of llama.h.
llama_cpp: Final = _functions(find_spec("llama_cpp"))
llama_cpp_version: Final = _version(llama_cpp)
#: The library with those that it is linked to; llama_cpp's own handle of ggml is of its own folder.
GGML: Final[Any] = sys.modules["llama_cpp.llama_cpp"]._lib  # noqa: SLF001  # it has no other name
# After the library, which may have a BLAS of its own.
_import_numpy()
