"""One line that says what is being measured, where somebody can see it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pytest

#: Writing more often would disturb what is measured; nobody reads faster.
_LEAST_INTERVAL_S: Final = 0.5
_CLEAR_LINE: Final = "\r\x1b[2K"


class TerminalNotify:
    """Shows progress on pytest's terminal; silent under `-q`, on a pipe, and in an xdist worker.

    Waiting for another measurement is told on a pipe too: a job that stands still must say why.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._capture: Any = config.pluginmanager.get_plugin("capturemanager")
        self._quiet = self._terminal is None or config.get_verbosity() < 0
        self._next_s = 0.0
        self.waits: list[str] = []

    def progress(self, label: str, done: int, total: int) -> None:
        """Show how far a measurement is."""
        now_s = time.monotonic()
        if self._quiet or not self._terminal.isatty or (done and now_s < self._next_s):
            return
        self._next_s = now_s + _LEAST_INTERVAL_S
        width = self._terminal._tw.fullwidth - 1  # noqa: SLF001  # pytest offers no other way
        counter = f" {done}/{total}"
        self._write(_CLEAR_LINE + f"asperf: {label}"[: width - len(counter)] + counter)

    def done(self) -> None:
        """Clear the line."""
        if not self._quiet and self._terminal.isatty:
            self._write(_CLEAR_LINE)

    def wait(self, reason: str) -> None:
        """Say why nothing happens."""
        self.waits.append(reason)
        if not self._quiet:
            self._write(f"\nasperf: waiting: {reason}\n")

    def _write(self, text: str) -> None:
        with self._uncaptured():
            self._terminal.write(text, flush=True)

    def _uncaptured(self) -> AbstractContextManager[None]:
        if self._capture is None:
            return nullcontext()
        context: AbstractContextManager[None] = self._capture.global_and_fixture_disabled()
        return context
