"""The end of a session: undecided tests, the assertions, waits, and the files written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_asperf.analysis.stats.estimate import counted_text
from pytest_asperf.errors import printable
from pytest_asperf.plugin.machines import Measured, measured
from pytest_asperf.report.benchmark_rows import comparison_note
from pytest_asperf.report.claims_table import (
    Screen,
    claim_lines,
    legend_lines,
    note_line,
    notes_of,
    tally,
    undecided_lines,
    whole_text,
)
from pytest_asperf.report.lines import Line, lines
from pytest_asperf.report.measurements import explanation, speculation_of
from pytest_asperf.report.wrapping import say

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from pytest_asperf.plugin.session import Session

#: pytest's categories of our own outcomes.
_UNDECIDED: Final = ("inconclusive", "invalid")
#: The colours of verdicts by pytest's names.
MARKUP: Final = {"PASS": "green", "FAIL": "red", "INCONCLUSIVE": "yellow", "INVALID": "purple"}
#: Styles of failures in which a block names no remedy.
_CURT: Final = ("no", "line")
#: pytest's default of `-r`.
_UNASKED: Final = "fE"


def summarise(
    terminal: TerminalReporter, session: Session, reports: Sequence[Any], ours: Sequence[Any]
) -> None:
    """Print the summary of the reports with rows (`reports`), and of all that are `ours`."""
    if terminal.config.getoption("tbstyle") != "no":
        _print_blocks(terminal)
    verbosity = terminal.config.get_verbosity()
    found = measured(terminal.config, reports)
    if verbosity > -2 and found.noted:
        _print_claims(terminal, session, found)
    if verbosity >= 0:
        _print_waits(terminal, ours)
        for path in session.written:
            say(terminal, f"asperf: wrote {path}")
        for line in session.stored:
            say(terminal, f"asperf: {printable(line)}")
    _print_comparison(terminal)
    for line in session.closing:
        say(terminal, line)
    for error in session.unwritten.values():
        say(terminal, f"asperf: {error}", red=True)


def print_total(terminal: TerminalReporter, reports: Sequence[Any]) -> None:
    """Print the number of assertions for each verdict, and the exit code with its reason."""
    counted = tally(lines(measured(terminal.config, reports).noted))
    if not counted:
        return
    status = terminal._session.exitstatus if terminal._session else 0  # noqa: SLF001  # after our hooks
    failed = sum(len(terminal.stats.get(name, ())) for name in ("failed", "error", *_UNDECIDED))
    reasons = {0: "no test failed", 1: f"{counted_text(failed, 'tests')} failed"}
    reason = reasons.get(status) or pytest.ExitCode(status).name.lower().replace("_", " ")
    say(terminal, f"{counted}; exit code {int(status)}: {reason}")


def _print_blocks(terminal: TerminalReporter) -> None:
    """Print the reports of our own outcomes, which pytest's failure section leaves out."""
    for category in _UNDECIDED:
        for report in terminal.stats.get(category, []):
            terminal.section(f"{report.asperf_outcome} {report.nodeid}", sep="_")
            terminal._outrep_summary(report)  # noqa: SLF001  # as pytest's own sections do


def _leave_out_repeated(terminal: TerminalReporter, failed: set[str]) -> None:
    """Remove from pytest's short summary the lines that the blocks and assertions already show.

    Files and pipes keep it, since programs search for its lines, and so does `-r`.
    """
    option = terminal.config.getoption
    is_shown = option("tbstyle") not in _CURT and option("reportchars") == _UNASKED
    if (
        is_shown
        and terminal.isatty
        and failed.issuperset(each.nodeid for each in terminal.stats.get("failed", ()))
    ):
        terminal.reportchars = terminal.reportchars.replace("f", "")


def _print_claims(terminal: TerminalReporter, session: Session, found: Measured) -> None:
    shown = lines(found.noted)
    verbosity = terminal.config.get_verbosity()
    screen = screen_of(terminal)
    if verbosity >= 0:
        terminal.section("asperf")
        shared = terminal.config.pluginmanager.hasplugin("dsession")
        head = found.headline() or (session.headline() if shared else [])
        # under xdist nothing else printed the head
        for text in (*head, *legend_lines(shown, screen)):
            terminal.write("".join(f"{line}\n" for line in screen.wrapped(text)))
    noted = list(found.noted)
    terminal.config.hook.pytest_asperf_summary(terminalreporter=terminal, noted=noted)
    for line in claim_lines(lines(noted), screen):
        terminal.write(line.mark, **_colour(line.outcome))
        terminal.write(f"  {line.text}\n")
    for text in (*_remarks(shown, screen, verbosity), *_undecided(terminal, shown, screen)):
        terminal.write("".join(f"{line}\n" for line in screen.wrapped(text)))
    _leave_out_repeated(terminal, {line.test for line in shown if line.outcome == "FAIL"})


def screen_of(terminal: TerminalReporter) -> Screen:
    """The terminal, or the file, that a summary is written to."""
    writer = terminal._tw  # noqa: SLF001  # no other way
    return Screen(writer.fullwidth, getattr(writer._file, "encoding", None) or "utf-8")  # noqa: SLF001


def _colour(outcome: str) -> dict[str, bool]:
    return {MARKUP[outcome]: True} if outcome in MARKUP else {}


def _remarks(rows: Sequence[Line], screen: Screen, verbosity: int) -> Iterator[str]:
    """The remarks that explain the assertions: speculation, and the machine."""
    yield from dict.fromkeys(map(whole_text, rows) if verbosity > 0 else ())
    points = speculation_of(row.record for row in rows)
    for point in points:
        yield f"SD{f' {point.label}' * (len(points) > 1)}: {explanation(point)}"
    notes = notes_of(rows)
    if verbosity > 0:
        yield from (f"note: {text}" for text in notes)
    elif verbosity == 0 and notes:
        yield note_line(notes, screen)


def _undecided(terminal: TerminalReporter, rows: Sequence[Line], screen: Screen) -> Iterator[str]:
    """The advice on assertions whose tests have no block that prints it."""
    is_curt = terminal.config.getoption("tbstyle") in _CURT
    blocks = () if is_curt else terminal.stats.get("inconclusive", ())
    yield from undecided_lines(rows, screen, {report.nodeid for report in blocks})


def _print_waits(terminal: TerminalReporter, ours: Sequence[Any]) -> None:
    """Print which tests had to wait: under xdist nothing else does."""
    waited = [report.nodeid for report in ours if hasattr(report, "asperf_waited")]
    if waited:
        names = ", ".join(dict.fromkeys(waited))
        say(terminal, f"waited until the machine was free: {printable(names)}")


def _print_comparison(terminal: TerminalReporter) -> None:
    """Print the basis of pytest-benchmark's comparison with an earlier session."""
    benchmarks = terminal.config.pluginmanager.get_plugin("pytest-benchmark")
    if benchmarks and (note := comparison_note(benchmarks)):
        say(terminal, f"asperf: {note}")
