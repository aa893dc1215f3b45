"""The end of a session: what could not be decided, the table, and the reports asked for."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_asperf.errors import CacheError
from pytest_asperf.report.json_report import serialise
from pytest_asperf.report.rows import row_from_dict
from pytest_asperf.stash import opened_run
from pytest_asperf.verdict import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _pytest.terminal import TerminalReporter

    from pytest_asperf.report.rows import Row

_COLOURS: Final = {
    "PASS": "green",
    "FAIL": "red",
    "INCONCLUSIVE": "yellow",
    "INVALID": "magenta",
}


def summarise(terminal: TerminalReporter, reports: Sequence[Any]) -> None:
    """Print the summary and write the reports.

    Args:
        terminal: pytest's terminal reporter.
        reports: test reports that carry rows.
    """
    noted = [
        (report.nodeid, row_from_dict(data)) for report in reports for data in report.asperf_rows
    ]
    # A measurement that several tests share is noted by each, and shown once.
    rows = list({(row.model, row.subject, row.threshold): row for _, row in noted}.values())
    if terminal.config.get_verbosity() >= 0:
        _print_undecided(terminal)
        terminal.section("asperf")
        width, colour = terminal._tw.fullwidth, terminal.hasmarkup  # noqa: SLF001  # no other way
        terminal.write(
            render_measurements([r for r in rows if not r.outcome], width, colour=colour)
        )
        for text in sorted({row.note for row in rows if row.note}):
            terminal.line(f"note: {printable(text)}")
        terminal.write(render_verdicts([r for r in rows if r.outcome], width, colour=colour))
    run = opened_run(terminal.config)
    if run is not None:
        for target in run.settings.report:
            _write(target.path, serialise(noted, run.headline()))
            terminal.line(f"asperf: wrote {target.path}")


def _print_undecided(terminal: TerminalReporter) -> None:
    """Print the reports of our own outcomes, which pytest's failure section leaves out."""
    for category in ("inconclusive", "invalid"):
        for report in terminal.stats.get(category, []):
            terminal.section(f"{category.upper()} {report.nodeid}", sep="_")
            report.toterminal(terminal._tw)  # noqa: SLF001  # as pytest's own sections do


def render_measurements(rows: Sequence[Row], width: int, *, colour: bool) -> str:
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


def render_verdicts(rows: Sequence[Row], width: int, *, colour: bool) -> str:
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
        claim = f"{row.subject} {row.threshold}: {row.measured}"
        table.add_row(outcome, *_cells(claim, row.basis))
    counts = {word: sum(row.outcome == word for row in rows) for word in _COLOURS}
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"\n{_rendered(table, width, colour=colour)}{told}\n"


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


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as err:
        raise CacheError(
            f"the report {path} cannot be written: {err.strerror}",
            why="everything was measured, and would be lost",
            remedy="name a place that can be written with --asperf-report",
        ) from err
