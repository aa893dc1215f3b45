"""The text in llama.cpp's cache, kept over loads of a model, and over processes.

A timed run at a depth needs a filled cache, and so does a generation after a prompt; filling it is
slower than the run. Each load gets the cache cells that the same build computed in an earlier load
of the same file and settings.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from . import llama_cpp_compat as compat

#: Shorter texts are computed as fast as they are copied.
_LEAST_TOKENS: Final = 64
#: For one text in a process whose peak memory may be judged.
_MOST_BYTES: Final = 2**24
#: For one text that is shared between the processes of a comparison of times.
_MOST_SHARED_BYTES: Final = 2**28
#: For all texts, such as a suite's prompts; the oldest are dropped.
_ALL_BYTES: Final = 2**26


@dataclass(frozen=True)
class _Saved:
    key: str
    tokens: list[int]
    buffer: Any


@dataclass(frozen=True)
class _File:
    """A text that a process of this build wrote: a line with its key, then cache cells."""

    path: Path
    key: str
    tokens: list[int]

    @classmethod
    def of(cls, path: Path) -> _File:
        with path.open("rb") as file:
            key, tokens = json.loads(file.readline())
        return cls(path, key, tokens)

    def read(self) -> _Saved:
        with self.path.open("rb") as file:
            file.readline()
            cells = file.read()
        return _Saved(self.key, self.tokens, (ctypes.c_uint8 * len(cells)).from_buffer_copy(cells))


class SavedPrefixes:
    """The last texts that were computed before a run."""

    def __init__(self) -> None:
        self._saved: list[_Saved] = []
        self._folder: Path | None = None
        self._files: dict[str, _File] = {}

    def share(self, folder: Path) -> None:
        """Share them with later processes of the same build through a folder."""
        self._folder = folder

    def keep(self, key: Hashable, context: Any, tokens: list[int]) -> None:
        """Copy the cache of a context that contains these tokens.

        The key is file, settings and shape of the context.
        """
        size = compat.state_size(context, whole=True) if len(tokens) >= _LEAST_TOKENS else 0
        if not 0 < size <= (_MOST_SHARED_BYTES if self._folder else _MOST_BYTES):
            return
        buffer = (ctypes.c_uint8 * size)()
        if compat.save_state(context, buffer, size, whole=True) == size:
            saved = _Saved(str(key), tokens, buffer)
            self._add(saved)
            self._write(saved)

    def holds(self, key: Hashable, tokens: list[int]) -> bool:
        """True if a text was kept whole."""
        return any(known.tokens == tokens for known in self._known(str(key), tokens))

    def restore(self, key: Hashable, context: Any, tokens: list[int]) -> int:
        """Fill an empty cache with the beginning of a text; returns its number of tokens."""
        known = self._known(str(key), tokens)
        if not known:
            return 0
        saved = max(known, key=lambda one: len(one.tokens))
        if isinstance(saved, _File):
            saved = saved.read()
            self._add(saved)
        size = len(saved.buffer)
        is_read = compat.restore_state(context, saved.buffer, size, whole=True) == size
        return len(saved.tokens) if is_read else 0

    def _known(self, key: str, tokens: list[int]) -> list[_Saved | _File]:
        """Texts that these tokens begin with, those in this process first."""
        for path in self._folder.glob("*.cells") if self._folder else ():
            if path.name not in self._files:  # another process has written it since
                self._files[path.name] = _File.of(path)
        every: list[_Saved | _File] = [*self._saved, *self._files.values()]
        return [one for one in every if one.key == key and one.tokens == tokens[: len(one.tokens)]]

    def _add(self, saved: _Saved) -> None:
        self._saved.append(saved)
        while sum(len(one.buffer) for one in self._saved) > _ALL_BYTES:
            del self._saved[0]

    def _write(self, saved: _Saved) -> None:
        if self._folder is None:
            return
        unfinished = self._folder / f"{os.getpid()}-{len(self._files)}"
        with suppress(OSError):  # a full disk costs time alone
            with unfinished.open("wb") as file:
                file.write(json.dumps([saved.key, saved.tokens]).encode() + b"\n")
                file.write(saved.buffer)
            done = unfinished.with_suffix(".cells")
            unfinished.rename(done)
            self._files[done.name] = _File(done, saved.key, saved.tokens)
