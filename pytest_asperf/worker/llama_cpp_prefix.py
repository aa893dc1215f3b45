"""What llama.cpp's cache held of a text, kept over loads of a model.

A timed run at a depth needs a filled cache, and filling one takes longer than the run. Each load
gets the cells that the same build computed in an earlier load of the same file and settings.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from . import llama_cpp_compat as compat

if TYPE_CHECKING:
    from collections.abc import Hashable

#: Shorter texts are computed as fast as they are copied.
_LEAST_TOKENS: Final = 128
#: More would show in the process's peak memory; and models that large are not loaded repeatedly.
_MOST_BYTES: Final = 2**24


@dataclass(frozen=True)
class _Saved:
    key: Hashable
    tokens: list[int]
    buffer: Any


class SavedPrefix:
    """The last text that was computed at a depth; one, for what it takes of memory."""

    def __init__(self) -> None:
        self._saved: _Saved | None = None

    def keep(self, key: Hashable, context: Any, tokens: list[int]) -> None:
        """Copy the cache of a context that holds these tokens.

        The key is file, settings and shape of the context.
        """
        self._saved = None
        size = compat.state_size(context, whole=True) if len(tokens) >= _LEAST_TOKENS else 0
        if not 0 < size <= _MOST_BYTES:
            return
        buffer = (ctypes.c_uint8 * size)()
        if compat.save_state(context, buffer, size, whole=True) == size:
            self._saved = _Saved(key, tokens, buffer)

    def restore(self, key: Hashable, context: Any, tokens: list[int]) -> int:
        """Fill an empty cache with the beginning of a text; gives how many tokens it then holds."""
        saved = self._saved
        if saved is None or saved.key != key or tokens[: len(saved.tokens)] != saved.tokens:
            return 0
        size = len(saved.buffer)
        is_read = compat.restore_state(context, saved.buffer, size, whole=True) == size
        return len(saved.tokens) if is_read else 0
