"""How far a measurement is, below pytest's own line, where somebody can see it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

from pytest_asperf.config.progress import NOTHING_YET, SoFar

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pytest

    from pytest_asperf.report.progress_line import ProgressLine


class TerminalNotify:
    """Shows progress on pytest's terminal; silent under `-q`, on a pipe, and in an xdist worker.

    Waiting for another measurement is reported in the first two cases too.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._has_waited = False
        self._place = ""
        self._file: IO[str] | None = None
        self._line: ProgressLine | None = None

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
    def _is_watched(self) -> bool:
        """True if somebody sees a line that comes and goes."""
        is_quiet = self._terminal is None or self._config.get_verbosity() < 0
        return not is_quiet and self._terminal.isatty and os.environ.get("TERM") != "dumb"

    def progress(self, label: str, done: int, total: int, so_far: SoFar = NOTHING_YET) -> None:
        """Show how far a measurement is."""
        if self._is_watched:
            self._opened().show(label, done, total, so_far, where=self._place)

    def done(self) -> None:
        """Remove the line, and go back to where pytest was writing."""
        line, file, self._line, self._file = self._line, self._file, None, None
        if line is not None and file is not None:
            line.clear()
            column = self._terminal._tw.width_of_current_line  # noqa: SLF001  # pytest offers no other way
            file.write(f"\x1b[1A\r\x1b[{column}C" if column else "\x1b[1A\r")
            file.close()

    def wait(self, reason: str) -> None:
        """Say why nothing happens."""
        if self._is_watched:
            self._opened().wait(reason)
        else:
            self._has_waited = True
            self._write(f"waiting: {reason}")

    def say(self, text: str) -> None:
        """Say something that stays, but for one who sees progress and has a line for all tests."""
        if not self._is_watched or self._config.get_verbosity() > 0:
            self._write(text)

    def _write(self, text: str) -> None:
        self.done()
        if self._terminal is not None:
            with self._uncaptured():
                self._terminal.ensure_newline()
                self._terminal.write(f"asperf: {text}\n", flush=True)

    def take_waited(self) -> bool:
        """True if anything was waited for since the last call, unless somebody saw it."""
        self.done()  # what waits need not measure afterwards
        waited, self._has_waited = self._has_waited, False
        return waited

    def _opened(self) -> ProgressLine:
        """The line, on the terminal itself: what a test prints is captured meanwhile."""
        if self._line is not None:
            return self._line
        from pytest_asperf.report.progress_line import CursorConsole, ProgressLine  # noqa: PLC0415  # rich

        with self._uncaptured():
            writer = self._terminal._tw  # noqa: SLF001  # as above
            writer.flush()
            own = writer._file  # noqa: SLF001  # as above
            # Of a name's letters the terminal's encoding may lack some.
            file = os.fdopen(
                os.dup(own.fileno()), "w", encoding=own.encoding, errors="backslashreplace"
            )
            width = writer.fullwidth
        file.write("\n")
        self._file, self._place = file, self._test()
        self._line = ProgressLine(CursorConsole(file=file, force_terminal=True, width=width))
        return self._line

    def _test(self) -> str:
        """The test that runs, counted among those of the session."""
        session = self._config.pluginmanager.get_plugin("session")
        running = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        ids = [item.nodeid for item in session.items] if session else []
        return f"test {ids.index(running) + 1}/{len(ids)}" if running in ids else ""

    def _uncaptured(self) -> AbstractContextManager[None]:
        if self._capture is None:
            return nullcontext()
        context: AbstractContextManager[None] = self._capture.global_and_fixture_disabled()
        return context
