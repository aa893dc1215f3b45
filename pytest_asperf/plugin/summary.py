"""The end of a session: what could not be decided, the tables, and what else is to be told."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_asperf.errors import printable
from pytest_asperf.report.rows import noted_rows
from pytest_asperf.report.speculation_points import points_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _pytest.terminal import TerminalReporter

    from pytest_asperf.plugin.session import Session
    from pytest_asperf.report.rows import ReportRow
    from pytest_asperf.report.speculation_points import SpeculationPoint

_COLOURS: Final = {
    "PASS": "green",
    "FAIL": "red",
    "INCONCLUSIVE": "yellow",
    "INVALID": "magenta",
}
#: pytest's categories of our own outcomes, and their colours by pytest's names.
_UNDECIDED: Final = ("inconclusive", "invalid")
_MARKUP: Final = {"INCONCLUSIVE": "yellow", "INVALID": "purple"}


def summarise(
    terminal: TerminalReporter, run: Session, reports: Sequence[Any], told: Sequence[Any]
) -> None:
    """Print the summary.

    Args:
        terminal: pytest's terminal reporter.
        run: the session's state.
        reports: test reports that carry rows.
        told: all test reports that carry something of ours.
    """
    undecided = [r for category in _UNDECIDED for r in terminal.stats.get(category, [])]
    if terminal.config.getoption("tbstyle") != "no":
        _print_notes(terminal, undecided)
    if terminal.config.get_verbosity() >= 0:
        terminal.section("asperf")
        if terminal.config.pluginmanager.hasplugin(
            "dsession"
        ):  # xdist collects, and tells, nothing
            terminal.write("".join(f"{line}\n" for line in run.headline()))
        _print_tables(terminal, [row for _, row in noted_rows(reports)])
        _print_waits(terminal, told)
        for path in run.written:
            terminal.line(f"asperf: wrote {path}")
    _print_list(terminal, undecided)
    for error in run.unwritten.values():
        terminal.line(f"asperf: {error}", red=True)


def _print_notes(terminal: TerminalReporter, undecided: Sequence[Any]) -> None:
    """Print the reports of our own outcomes, which pytest's failure section leaves out."""
    for report in undecided:
        terminal.section(f"{report.asperf_outcome} {report.nodeid}", sep="_")
        terminal._outrep_summary(report)  # noqa: SLF001  # as pytest's own sections do


def _print_tables(terminal: TerminalReporter, rows: Sequence[ReportRow]) -> None:
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
    _write(terminal, render_findings(findings, width, colour=colour))


def _write(terminal: TerminalReporter, text: str) -> None:
    """Write a table; of letters that the terminal's encoding lacks, pytest would escape it all."""
    encoding = getattr(terminal._tw._file, "encoding", None) or "utf-8"  # noqa: SLF001  # no other way
    terminal.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _print_waits(terminal: TerminalReporter, told: Sequence[Any]) -> None:
    """Say which tests had to wait: under xdist nothing else does."""
    waited = [report.nodeid for report in told if hasattr(report, "asperf_waited")]
    for nodeid in dict.fromkeys(waited):
        terminal.line(f"waited until the machine was free: {nodeid}")


def _print_list(terminal: TerminalReporter, undecided: Sequence[Any]) -> None:
    """List what pytest's own short summary leaves out, in its form."""
    for report in undecided:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash else str(report.longrepr).partition("\n")[0]
        colour = {_MARKUP[report.asperf_outcome]: True}
        terminal.write(report.asperf_outcome, bold=True, **colour)
        terminal.line(f" {report.nodeid} - {reason}")


def render_measurements(rows: Sequence[ReportRow], width: int, *, colour: bool) -> str:
    """Return the table of what was measured, as text.

    Args:
        rows: measurements.
        width: columns of the terminal.
        colour: whether the terminal shows colours.
    """
    table = _table("model", "metric", "value [90 % interval]", "from")
    for row in rows:
        table.add_row(*_cells(row.model, row.subject, row.measured, row.basis))
    return _rendered(table, width, colour=colour) if rows else ""


def render_speculation(points: Sequence[SpeculationPoint], width: int, *, colour: bool) -> str:
    """Return the table of measurements of speculation beside their predictions, as text.

    Args:
        points: the measurements, numbered as in the picture.
        width: columns of the terminal.
        colour: whether the terminal shows colours.
    """
    if not points:
        return ""
    table = _table(
        "#", "ratio", "SD gain [90 %]", "predicted [90 %]", "accepted", "even at", "best k"
    )
    for column in table.columns:
        column.no_wrap = column.header != "SD gain [90 %]"
    for number, point in enumerate(points, start=1):
        table.add_row(*_cells(str(number), *point.cells()))
    names = "".join(f"{n}  {printable(p.label)}\n" for n, p in enumerate(points, start=1))
    return f"\n{_rendered(table, width, colour=colour)}{names}"


def render_verdicts(rows: Sequence[ReportRow], width: int, *, colour: bool) -> str:
    """Return one line for each verdict, and their count, as text.

    Args:
        rows: verdicts.
        width: columns of the terminal.
        colour: whether the terminal shows colours.
    """
    if not rows:
        return ""
    table = _table("verdict", "claim and what was measured", "from")
    for row in rows:
        outcome = Text(row.outcome, style=_COLOURS[row.outcome])
        claim = " ".join(filter(None, (row.subject, row.threshold))) + f": {row.measured}"
        table.add_row(outcome, *_cells(claim, row.basis))
    return f"\n{_rendered(table, width, colour=colour)}{_counted(rows)}\n"


def render_findings(rows: Sequence[ReportRow], width: int, *, colour: bool) -> str:
    """Return one entry for each finding: verdict, statement, published and found; and their count.

    Args:
        rows: verdicts on findings.
        width: columns of the terminal.
        colour: whether the terminal shows colours.
    """
    if not rows:
        return ""
    table = _table("verdict", "finding; published, and measured or recorded [90 % interval]")
    for row in rows:
        found = "measured" if row.source == "live" else "recorded"
        figures = [f"published {row.published}"] if row.published else []
        figures.append(f"{found} {row.measured}" + (f" ({row.basis})" if row.basis else ""))
        entry = Text(printable(row.statement), style="bold" if colour else "")
        entry.append("\n" + printable("; ".join(figures)), style="not bold")
        table.add_row(Text(row.outcome, style=_COLOURS[row.outcome]), entry)
    notes = []
    if any(row.source == "recorded" for row in rows):
        notes.append("recorded verdicts fail no test; asperf findings explains each\n")
    if any(row.source == "live" and row.outcome != "PASS" for row in rows):
        notes.append("no test fails for a statement that its own figures do not show\n")
    return f"\n{_rendered(table, width, colour=colour)}{_counted(rows)}\n{''.join(notes)}"


def _counted(rows: Sequence[ReportRow]) -> str:
    counts = {word: sum(row.outcome == word for row in rows) for word in _COLOURS}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def _table(*headers: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, overflow="fold")
    return table


def _cells(*texts: str) -> list[Text]:
    # Text, not markup: names come from model files.
    return [Text(printable(text)) for text in texts]


def _rendered(table: Table, width: int, *, colour: bool) -> str:
    out = io.StringIO()
    Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
    ).print(table)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
