"""The end of a session: undecided tests, the tables, waits, and the files written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.errors import printable
from pytest_asperf.report.benchmark_rows import comparison_note
from pytest_asperf.report.rows import noted_rows, row_from_dict
from pytest_asperf.report.speculation_points import points_of
from pytest_asperf.report.tables import (
    render_findings,
    render_measurements,
    render_speculation,
    render_verdicts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _pytest.terminal import TerminalReporter

    from pytest_asperf.plugin.session import Session
    from pytest_asperf.report.rows import ReportRow

#: pytest's categories of our own outcomes, and their colours by pytest's names.
_UNDECIDED: Final = ("inconclusive", "invalid")
_MARKUP: Final = {"INCONCLUSIVE": "yellow", "INVALID": "purple"}


def summarise(
    terminal: TerminalReporter, session: Session, reports: Sequence[Any], ours: Sequence[Any]
) -> None:
    """Print the summary of the reports with rows (`reports`), and of all that are `ours`."""
    undecided = [r for category in _UNDECIDED for r in terminal.stats.get(category, [])]
    if terminal.config.getoption("tbstyle") != "no":
        _print_notes(terminal, undecided)
    if terminal.config.get_verbosity() >= 0:
        terminal.section("asperf")
        if terminal.config.pluginmanager.hasplugin("dsession"):  # xdist printed none
            terminal.write("".join(f"{line}\n" for line in session.headline()))
        untried = [row_from_dict(r.asperf_untried) for r in ours if hasattr(r, "asperf_untried")]
        _print_tables(terminal, [row for _, row in noted_rows(reports)], untried)
        _print_waits(terminal, ours)
        for path in session.written:
            terminal.line(f"asperf: wrote {path}")
        for line in session.stored:
            terminal.line(f"asperf: {printable(line)}")
    _print_comparison(terminal)
    _print_list(terminal, undecided)
    for line in session.closing:
        terminal.line(line)
    for error in session.unwritten.values():
        terminal.line(f"asperf: {error}", red=True)


def _print_notes(terminal: TerminalReporter, undecided: Sequence[Any]) -> None:
    """Print the reports of our own outcomes, which pytest's failure section leaves out."""
    for report in undecided:
        terminal.section(f"{report.asperf_outcome} {report.nodeid}", sep="_")
        terminal._outrep_summary(report)  # noqa: SLF001  # as pytest's own sections do


def _print_tables(
    terminal: TerminalReporter, rows: Sequence[ReportRow], untried: Sequence[ReportRow]
) -> None:
    width, colour = terminal._tw.fullwidth, terminal.hasmarkup  # noqa: SLF001  # no other way
    # A measurement that several tests share is noted by each, and shown once.
    shared = {
        (row.model, row.subject, row.measured, row.basis, row.ran): row
        for row in rows
        if not row.outcome
    }
    _write(terminal, render_measurements(list(shared.values()), width, colour=colour))
    _write(terminal, render_speculation(points_of(rows), width, colour=colour))
    for text in sorted({line for row in rows for line in row.note.splitlines()}):
        terminal.line(f"note: {printable(text)}")
    verdicts = [row for row in rows if row.outcome]
    claims = [row for row in verdicts if not row.finding]
    _write(terminal, render_verdicts(claims, width, colour=colour))
    findings = [row for row in verdicts if row.finding]
    _write(terminal, render_findings(findings, width, colour=colour, untried=untried))


def _write(terminal: TerminalReporter, text: str) -> None:
    """Write a table; of letters that the terminal's encoding lacks, pytest would escape it all."""
    encoding = getattr(terminal._tw._file, "encoding", None) or "utf-8"  # noqa: SLF001  # no other way
    terminal.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _print_waits(terminal: TerminalReporter, ours: Sequence[Any]) -> None:
    """Say which tests had to wait: under xdist nothing else does."""
    waited = [report.nodeid for report in ours if hasattr(report, "asperf_waited")]
    for nodeid in dict.fromkeys(waited):
        terminal.line(f"waited until the machine was free: {nodeid}")


def _print_comparison(terminal: TerminalReporter) -> None:
    """Say what pytest-benchmark's comparison with an earlier session rests on."""
    benchmarks = terminal.config.pluginmanager.get_plugin("pytest-benchmark")
    if benchmarks and (note := comparison_note(benchmarks)):
        terminal.line(f"asperf: {note}")


def _print_list(terminal: TerminalReporter, undecided: Sequence[Any]) -> None:
    """List what pytest's own short summary leaves out, in its form."""
    for report in undecided:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash else str(report.longrepr).partition("\n")[0]
        colour = {_MARKUP[report.asperf_outcome]: True}
        terminal.write(report.asperf_outcome, bold=True, **colour)
        terminal.line(f" {report.nodeid} - {reason}")
