"""One line that says what is being measured, where somebody can see it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pytest

#: Writing more often would disturb what is measured; nobody reads faster.
_LEAST_INTERVAL_S: Final = 0.5
_CLEAR_LINE: Final = "\r\x1b[2K"


class TerminalNotify:
    """Shows progress on pytest's terminal; silent under `-q`, on a pipe, and in an xdist worker.

    Waiting for another measurement is told in the first two too: a job that stands still must say
    why.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._next_s = 0.0
        self._is_shown = False
        self._has_waited = False

    # Looked up when they are used: options are read before pytest registers its reporter.
    @cached_property
    def _terminal(self) -> Any:
        # An xdist worker has a terminal reporter too, and nobody to read it.
        is_read = not hasattr(self._config, "workerinput")
        return self._config.pluginmanager.get_plugin("terminalreporter") if is_read else None

    @cached_property
    def _capture(self) -> Any:
        return self._config.pluginmanager.get_plugin("capturemanager")

    @property
    def _is_quiet(self) -> bool:
        return self._terminal is None or self._config.get_verbosity() < 0

    def progress(self, label: str, done: int, total: int) -> None:
        """Show how far a measurement is, on the line below pytest's own."""
        now_s = time.monotonic()
        if self._is_quiet or not self._terminal.isatty or (done and now_s < self._next_s):
            return
        self._next_s = now_s + _LEAST_INTERVAL_S
        width = self._terminal._tw.fullwidth - 1  # noqa: SLF001  # pytest offers no other way
        counter = f" {done}/{total}"
        start = _CLEAR_LINE if self._is_shown else "\n"
        self._is_shown = True
        self._write_unnoticed(start + f"asperf: {label}"[: width - len(counter)] + counter)

    def done(self) -> None:
        """Clear the line, and go back to where pytest was writing."""
        if self._is_shown:
            self._is_shown = False
            column = self._terminal._tw.width_of_current_line  # noqa: SLF001  # as above
            back = f"\x1b[{column}C" if column else ""
            self._write_unnoticed(f"{_CLEAR_LINE}\x1b[1A\r{back}")

    def wait(self, reason: str) -> None:
        """Say why nothing happens."""
        self._has_waited = True
        self.say(f"waiting: {reason}")

    def say(self, text: str) -> None:
        """Say something that stays on the terminal."""
        if self._terminal is not None:
            with self._uncaptured():
                self._terminal.ensure_newline()
                self._terminal.write(f"asperf: {text}\n", flush=True)

    def take_waited(self) -> bool:
        """Tell whether anything was waited for since the last call."""
        waited, self._has_waited = self._has_waited, False
        return waited

    def _write_unnoticed(self, text: str) -> None:
        """Write past pytest's account of its line, by which it aligns its percentages."""
        with self._uncaptured():
            file = self._terminal._tw._file  # noqa: SLF001  # as above
            file.write(text)
            file.flush()

    def _uncaptured(self) -> AbstractContextManager[None]:
        if self._capture is None:
            return nullcontext()
        context: AbstractContextManager[None] = self._capture.global_and_fixture_disabled()
        return context
