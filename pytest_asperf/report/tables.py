"""Tables of measurements and verdicts, as the terminal shows them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_asperf.errors import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.report.rows import ReportRow
    from pytest_asperf.report.speculation_points import SpeculationPoint


_COLOURS: Final = {"PASS": "green", "FAIL": "red", "INCONCLUSIVE": "yellow", "INVALID": "magenta"}


def render_measurements(rows: Sequence[ReportRow], width: int, *, colour: bool) -> str:
    """The table of measurements as text."""
    table = _table("model", "metric", "value [90 % interval]", "from")
    for row in rows:
        table.add_row(*_cells(row.model, row.subject, row.measured, row.basis))
    return _rendered(table, width, colour=colour) if rows else ""


def render_speculation(points: Sequence[SpeculationPoint], width: int, *, colour: bool) -> str:
    """The table of measurements of speculation beside their predictions, as text."""
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
    """One line for each verdict, and their count, as text."""
    if not rows:
        return ""
    table = _table("verdict", "claim and what was measured", "from")
    for row in rows:
        outcome = Text(row.outcome, style=_COLOURS[row.outcome])
        claim = " ".join(filter(None, (row.subject, row.threshold))) + f": {row.measured}"
        table.add_row(outcome, *_cells(claim, row.basis))
    return f"\n{_rendered(table, width, colour=colour)}{_counted(rows)}\n"


def render_findings(rows: Sequence[ReportRow], width: int, *, colour: bool) -> str:
    """One entry for each finding: verdict, statement, published and found; and their count."""
    if not rows:
        return ""
    table = _table("verdict", "finding; published, and measured or recorded [90 % interval]")
    for row in rows:
        origin = "measured" if row.source == "live" else "recorded"
        figures = [f"published {row.published}"] if row.published else []
        figures.append(f"{origin} {row.measured}" + (f" ({row.basis})" if row.basis else ""))
        entry = Text(printable(row.statement), style="bold" if colour else "")
        entry.append("\n" + printable("; ".join(figures)), style="not bold")
        table.add_row(Text(row.outcome, style=_COLOURS[row.outcome]), entry)
    notes = []
    if any(row.source == "recorded" for row in rows):
        notes.append("recorded verdicts fail no test; run asperf findings to explain them\n")
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
