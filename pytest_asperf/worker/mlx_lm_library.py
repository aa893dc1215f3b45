"""mlx-lm without Hugging Face's libraries, whose import lasts five times as long as all else.

mlx-lm needs them for downloads and for tokenizers that a folder configures. Each pair of a gate
starts two processes, so their start is a large part of its duration.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Final

#: Modules that are imported at the first use of one of their names.
_LATER: Final = ("huggingface_hub", "mlx_lm.tokenizer_utils", "transformers")


class _LateName(type):
    """The class of a name whose module is imported at the name's first use."""

    def _real(cls) -> Any:
        module = import_module(cls.__module__)
        if isinstance(module, _LateModule):
            raise ImportError(f"{cls.__module__}.{cls.__name__} is used by an import")
        return getattr(module, cls.__name__)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._real()(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls._real())

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):  # `typing` looks at them
            raise AttributeError(name)
        return getattr(cls._real(), name)


class _LateModule(ModuleType):
    """A module of late names."""

    def __getattr__(self, name: str) -> _LateName:
        if name.startswith("__"):
            raise AttributeError(name)
        return _LateName(name, (), {"__module__": self.__name__})


@contextmanager
def _late() -> Iterator[None]:
    """Import none of the modules, and leave none of their substitutes."""
    substitutes = {name: _LateModule(name) for name in _LATER if name not in sys.modules}
    sys.modules.update(substitutes)
    try:
        yield
    finally:
        for name in substitutes:
            del sys.modules[name]


def _library() -> ModuleType:
    """Import mlx-lm; as it is if the interpreter's owner replaced it, or it needs all at once."""
    before = set(sys.modules)
    if "mlx_lm" not in before:
        try:
            with _late():
                return import_module("mlx_lm")
        except Exception:  # noqa: BLE001  # whatever a version does with a name that is not there
            for name in {*sys.modules} - before:
                if name.partition(".")[0] == "mlx_lm":
                    del sys.modules[name]
    return import_module("mlx_lm")


# Before Hugging Face's libraries, which read it: a worker's files are all on this machine.
os.environ["HF_HUB_OFFLINE"] = "1"
mlx_lm: Final = _library()
mlx_lm_cache: Final = import_module("mlx_lm.models.cache")
#: The module; `mlx_lm.generate` is a function.
mlx_lm_generate: Final = import_module("mlx_lm.generate")
