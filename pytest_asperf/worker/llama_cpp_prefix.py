"""What llama.cpp's cache held of a text, kept over loads of a model.

A timed run at a depth needs a filled cache, and so does a generation after a prompt; filling it
takes as long as the run and longer. Each load gets the cells that the same build computed in an
earlier load of the same file and settings.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from . import llama_cpp_compat as compat

if TYPE_CHECKING:
    from collections.abc import Hashable

#: Shorter texts are computed as fast as they are copied.
_LEAST_TOKENS: Final = 64
#: Of one text. More would show in the process's peak memory; and models that large are not loaded
#: repeatedly.
_MOST_BYTES: Final = 2**24
#: Of all texts, such as a suite's prompts; the oldest go.
_ALL_BYTES: Final = 2**26


@dataclass(frozen=True)
class _Saved:
    key: Hashable
    tokens: list[int]
    buffer: Any


class SavedPrefixes:
    """The last texts that were computed before a run."""

    def __init__(self) -> None:
        self._saved: list[_Saved] = []

    def keep(self, key: Hashable, context: Any, tokens: list[int]) -> None:
        """Copy the cache of a context that holds these tokens.

        The key is file, settings and shape of the context.
        """
        size = compat.state_size(context, whole=True) if len(tokens) >= _LEAST_TOKENS else 0
        if not 0 < size <= _MOST_BYTES:
            return
        buffer = (ctypes.c_uint8 * size)()
        if compat.save_state(context, buffer, size, whole=True) == size:
            self._saved.append(_Saved(key, tokens, buffer))
            while sum(len(saved.buffer) for saved in self._saved) > _ALL_BYTES:
                del self._saved[0]

    def holds(self, key: Hashable, tokens: list[int]) -> bool:
        """Whether a text was kept whole."""
        return any(saved.key == key and saved.tokens == tokens for saved in self._saved)

    def restore(self, key: Hashable, context: Any, tokens: list[int]) -> int:
        """Fill an empty cache with the beginning of a text; gives how many tokens it then holds."""
        known = [s for s in self._saved if s.key == key and s.tokens == tokens[: len(s.tokens)]]
        if not known:
            return 0
        saved = max(known, key=lambda one: len(one.tokens))
        size = len(saved.buffer)
        is_read = compat.restore_state(context, saved.buffer, size, whole=True) == size
        return len(saved.tokens) if is_read else 0
