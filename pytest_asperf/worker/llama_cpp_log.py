"""The log that llama.cpp writes inside this process."""

from __future__ import annotations

import ctypes
import os
from collections import deque
from threading import Lock
from typing import Final

import llama_cpp

_LOG_LEVEL_DEBUG: Final = 1
_LOG_LEVEL_CONT: Final = 5


class LibraryLog:
    """Writes the library's log to descriptor 2 and keeps its last lines, to read facts from."""

    def __init__(self) -> None:
        self._recent: deque[str] = deque(maxlen=2000)
        self.held = Lock()
        # The library keeps the pointer only: collected, the callback would be a crash.
        self.callback = llama_cpp.llama_log_callback(self._write)
        llama_cpp.llama_log_set(self.callback, ctypes.c_void_p(0))

    def _write(self, level: int, text: bytes, _user_data: object) -> None:
        if level == _LOG_LEVEL_DEBUG:
            return
        os.write(2, text)
        if level != _LOG_LEVEL_CONT:
            self._recent.append(text[:1000].decode(errors="replace").rstrip())

    def clear(self) -> None:
        """Drop the lines kept so far."""
        self._recent.clear()

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines."""
        return tuple(self._recent)

    def complaint(self) -> str:
        """The last three lines, in which the library says what went wrong."""
        return " | ".join(list(self._recent)[-3:])[:600] or "the library logged nothing"
