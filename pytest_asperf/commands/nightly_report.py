"""The output of `asperf nightly`: first the answer, then the changes, the series and the gate."""

# ruff: noqa: PLC0415  # the package's docstring says why

from __future__ import annotations

import shlex
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.commands.console import print_text, stderr_console
from pytest_asperf.commands.options import code_of
from pytest_asperf.errors import ConfigError, StoreError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_asperf.errors import AsperfError
    from pytest_asperf.gate.summary import GateOutcome
    from pytest_asperf.nightly.night import FactChange
    from pytest_asperf.nightly.record import LastNight
    from pytest_asperf.nightly.steps import SeriesState
    from pytest_asperf.records.report import Report
    from pytest_asperf.store.stored import StoredPoint, StoredSeries

#: Outcomes of cells that were not measured. Whether the anchor is faster is no question here.
_BROKEN: Final = ("INVALID", "NOT RUN")
_SAME: Final = "nothing changed"
_NOTIFY_S: Final = 60.0


class NightReport:
    """Takes what a night comes to, and says it.

    Args:
        began: when the night began, seconds since the epoch.
        notify: the user's command, or None.

    Attributes:
        began: as above.
        exit_code: of the command.
        missed: nights without a measurement since the last one.
    """

    def __init__(self, began: float, notify: str | None) -> None:
        self.began = began
        self.exit_code = ExitCode.DONE
        self.missed = 0
        self._notify = _words(notify)
        self._error = ""
        self._is_remarkable = False
        self._remarks: list[str] = []
        self._answers: list[str] = []
        self._since = ""
        self._rows: list[tuple[str, str, str]] = []
        self._gate: list[str] = []

    @property
    def headline(self) -> str:
        """The answer in one line."""
        from pytest_asperf.nightly.night import night_text

        when = f"night of {night_text(self.began)}"
        if self._error:
            return f"{when}: not measured: {self._error}"
        said = "; ".join(self._answers)
        if not said and self._since != _SAME:
            said = "nothing got slower"
        return f"{when}: {', '.join(filter(None, (self._since, said)))}"

    @contextmanager
    def out_of_reach(self, what: str) -> Iterator[None]:
        """Go on where the store cannot be asked now, and say what is missing for that."""
        try:
            yield
        except StoreError as error:
            if not error.may_pass:
                raise
            self._remarks.append(f"{what}: {error.what}")
            self._answer("the store cannot be reached", ExitCode.INVALID)

    def notes(self, unfinished: str) -> None:
        """Take what became of a night that did not end; empty if all did."""
        if unfinished:
            self._remarks.append(unfinished)
            self._is_remarkable = True

    def looks_back(self, last: LastNight | None) -> None:
        """Take the night before, or None before the first."""
        from pytest_asperf.nightly.night import missed_nights, night_text

        self._since = "first night" if last is None else _SAME
        if last is not None:
            self.missed = missed_nights(last.time, self.began)
        if last is not None and self.missed:
            self._is_remarkable = True
            nights = f"{self.missed} night{'s' * (self.missed > 1)}"
            self._remarks.append(
                f"{nights} missing: the last one was measured at {night_text(last.time)}"
            )

    def measured(self, outcome: GateOutcome, changes: Sequence[FactChange]) -> None:
        """Take tonight's pairs, and what is otherwise than last night."""
        self._since = "something changed" if changes else self._since
        self._remarks += [f"changed: {change}" for change in changes]
        broken = [result for result in outcome.results if result.word in _BROKEN]
        for result in broken:
            self._remarks.append(f"{result.word}: {result.cell.name}: {result.measured}")
        if broken or len(outcome.results) < len(outcome.plan.cells):
            n, whole = len(outcome.results) - len(broken), len(outcome.plan.cells)
            self._answer(f"only {n} of {whole} checks were measured", ExitCode.INVALID)

    def cannot_gate(self, reason: str, exit_code: ExitCode = ExitCode.DONE) -> None:
        """Take why a new build is not gated."""
        self._answer("the changed build was not gated", exit_code)
        self._remarks.append(f"not gated: {reason}; its pairs with the anchor are below")

    def gated(self, outcome: GateOutcome) -> None:
        """Take the gate of tonight's build against last night's."""
        from pytest_asperf.gate.summary import summary_rows

        self._gate = [
            f"{row.word:12}  {row.name} {row.what}  {row.measured}  ({row.cost})".rstrip()
            for row in summary_rows(outcome)
        ]
        self._answer(f"the gate of the change is {outcome.answer}", outcome.exit_code)

    def judge_series(self, address: str, made: Report) -> None:
        """Look for steps in the series that tonight added to."""
        from pytest_asperf.nightly.steps import LOOKED_AT, state_of, threshold_of
        from pytest_asperf.store.figures import LOG_RATIO, figures_of
        from pytest_asperf.store.opening import open_store

        ids = {figure.key.id for figure in figures_of(made, "tonight")}
        with open_store(address) as store:
            every = store.series()
            threshold = threshold_of(every)
            for series in every:
                if series.id in ids and series.key.unit == LOG_RATIO:
                    points = store.points(series.id, last=LOOKED_AT)
                    self._judge(series, points[-1], state_of(points, series.key, threshold))

    def _judge(self, series: StoredSeries, last: StoredPoint, state: SeriesState) -> None:
        from pytest_asperf.commands.history_lines import value_text

        title = printable(series.key.title, 60)
        # A night that does not count brings no news. The time of a session is in whole seconds.
        if state.is_new and state.points[-1].time > self.began - 1:
            self._answer(
                f"{title} is {state.text}", ExitCode.FAIL if state.is_slower else ExitCode.DONE
            )
            self._remarks.append(f"to confirm: asperf history confirm {series.id[:8]}")
        self._rows.append((title, value_text(last, series.key.unit), state.text))

    def fails(self, error: AsperfError) -> None:
        """Take an error that ended the night; it is printed already."""
        self.exit_code = code_of(error)
        self._error = error.what

    def lines(self) -> Iterator[str]:
        """The summary."""
        yield printable(self.headline)
        yield from map(printable, self._remarks)
        if self._rows:
            yield ""
            head = ("current / anchor, in time", "tonight", "state")
            widths = [max(map(len, column)) for column in zip(head, *self._rows, strict=True)]
            for row in (head, *sorted(self._rows)):
                yield "  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)).rstrip()
        if self._gate:
            yield ""
            yield "gate of tonight's build against last night's, in time"
            yield from map(printable, self._gate)

    def send(self) -> None:
        """Run the user's command if there is something to look at; a failure of it is said."""
        if self._notify and (self.exit_code or self._is_remarkable):
            problem = _run(self._notify, "\n".join(self.lines()) + "\n")
            if problem:
                print_text(stderr_console(), printable(f"not notified: {problem}"))

    def _answer(self, text: str, exit_code: ExitCode) -> None:
        if text not in self._answers:
            self._answers.append(text)
        # A FAIL decides, then what is undecided.
        if exit_code and self.exit_code != ExitCode.FAIL:
            self.exit_code = exit_code


def _words(command: str | None) -> list[str]:
    try:
        return shlex.split(command or "")
    except ValueError as error:
        raise ConfigError(
            f"--notify: {printable(command)} is not a command: {error}",
            why="a night that needs you would not be noticed",
            remedy="write a program and its arguments, as in --notify 'mail -s asperf me@home'",
        ) from None


def _run(command: Sequence[str], text: str) -> str:
    """Give a program a text; why that did not work, or nothing."""
    try:
        done = subprocess.run(
            command, input=text, text=True, capture_output=True, timeout=_NOTIFY_S, check=False
        )
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {_NOTIFY_S:.0f} s"
    if not done.returncode:
        return ""
    return f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}"
