"""The end of a session: undecided tests, the claims, waits, and the files written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.errors import printable
from pytest_asperf.plugin.machines import measured
from pytest_asperf.report.benchmark_rows import comparison_note
from pytest_asperf.report.claims_table import (
    Screen,
    claim_lines,
    legend_lines,
    one_line,
    tally,
    undecided_lines,
    whole_text,
)
from pytest_asperf.report.speculation_points import points_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from _pytest.terminal import TerminalReporter

    from pytest_asperf.plugin.machines import Measured
    from pytest_asperf.plugin.session import Session
    from pytest_asperf.report.claims_table import Noted

#: pytest's categories of our own outcomes.
_UNDECIDED: Final = ("inconclusive", "invalid")
#: The colours of verdicts by pytest's names.
_MARKUP: Final = {"PASS": "green", "FAIL": "red", "INCONCLUSIVE": "yellow", "INVALID": "purple"}
#: Verdicts on recorded figures with which a live FAIL fails no test.
_UNSHOWN: Final = frozenset({"FAIL", "INVALID"})
#: Remarks on claims, and in all with those on what was measured; `-v` has all.
_MOST_NOTES, _LEAST_NOTES = 3, 2


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
    if verbosity > 0:
        for id_, reason in (r.asperf_untried for r in ours if hasattr(r, "asperf_untried")):
            terminal.line(f"not tried: {printable(id_)}: {printable(reason)}")
    if verbosity >= 0:
        _print_waits(terminal, ours)
        for path in session.written:
            terminal.line(f"asperf: wrote {path}")
        for line in session.stored:
            terminal.line(f"asperf: {printable(line)}")
    _print_comparison(terminal)
    for line in session.closing:
        terminal.line(line)
    for error in session.unwritten.values():
        terminal.line(f"asperf: {error}", red=True)


def _print_blocks(terminal: TerminalReporter) -> None:
    """Print the reports of our own outcomes, which pytest's failure section leaves out."""
    for category in _UNDECIDED:
        for report in terminal.stats.get(category, []):
            terminal.section(f"{report.asperf_outcome} {report.nodeid}", sep="_")
            terminal._outrep_summary(report)  # noqa: SLF001  # as pytest's own sections do


def _print_claims(terminal: TerminalReporter, session: Session, found: Measured) -> None:
    noted = found.noted
    verbosity = terminal.config.get_verbosity()
    screen = _screen(terminal)
    if verbosity >= 0:
        terminal.section("asperf")
        shared = terminal.config.pluginmanager.hasplugin("dsession")
        head = found.headline() or (session.headline() if shared else [])
        for text in (*head, *legend_lines(noted, screen)):  # under xdist nothing else said the head
            terminal.write("".join(f"{line}\n" for line in screen.wrapped(text)))
    for line in claim_lines(noted, screen):
        terminal.write(line.mark, **_colour(line.outcome))
        terminal.write(f"  {line.text}\n")
    for text in _remarks(noted, screen, verbosity):
        terminal.write("".join(f"{line}\n" for line in screen.wrapped(text)))
    if counted := tally(noted):
        terminal.line(counted)


def _screen(terminal: TerminalReporter) -> Screen:
    writer = terminal._tw  # noqa: SLF001  # no other way
    return Screen(writer.fullwidth, getattr(writer._file, "encoding", None) or "utf-8")  # noqa: SLF001


def _colour(outcome: str) -> dict[str, bool]:
    return {_MARKUP[outcome]: True} if outcome in _MARKUP else {}


def _remarks(noted: Sequence[Noted], screen: Screen, verbosity: int) -> Iterator[str]:
    """What explains the claims: speculation, the machine, and what is not decided."""
    rows = [row for _, row in noted]
    yield from dict.fromkeys(map(whole_text, rows) if verbosity > 0 else ())
    yield from (f"SD {point.label}: {point.explanation}" for point in points_of(rows))
    claimed, measured = (
        sorted(
            {line for row in rows if bool(row.outcome) is judged for line in row.note.splitlines()}
        )
        for judged in (True, False)
    )
    notes = list(dict.fromkeys((*claimed, *measured)))
    if verbosity > 0:
        yield from (f"note: {text}" for text in notes)
    elif verbosity == 0:
        most = max(_LEAST_NOTES, min(_MOST_NOTES, len(claimed)))
        yield from (one_line(f"note: {text}", screen) for text in notes[:most])
        yield from [f"note: {len(notes) - most} more with -v"] if len(notes) > most else []
    if any(row.source == "recorded" for row in rows):
        yield "recorded verdicts fail no test; run asperf findings to explain them"
    if any(row.source == "live" and row.recorded in _UNSHOWN for row in rows):
        yield "no test fails for a statement that its own figures do not show"
    yield from undecided_lines(noted, screen)


def _print_waits(terminal: TerminalReporter, ours: Sequence[Any]) -> None:
    """Say which tests had to wait: under xdist nothing else does."""
    waited = [report.nodeid for report in ours if hasattr(report, "asperf_waited")]
    if waited:
        names = ", ".join(dict.fromkeys(waited))
        terminal.line(f"waited until the machine was free: {printable(names)}")


def _print_comparison(terminal: TerminalReporter) -> None:
    """Say what pytest-benchmark's comparison with an earlier session rests on."""
    benchmarks = terminal.config.pluginmanager.get_plugin("pytest-benchmark")
    if benchmarks and (note := comparison_note(benchmarks)):
        terminal.line(f"asperf: {note}")
