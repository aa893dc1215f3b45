"""The table of published findings, as `asperf findings` shows it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_asperf.errors import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.report.lines import Line


_COLOURS: Final = {"PASS": "green", "FAIL": "red", "INCONCLUSIVE": "yellow", "INVALID": "magenta"}


def render_findings(rows: Sequence[Line], width: int, *, colour: bool) -> str:
    """An entry for each finding: verdict, statement, published and recorded; and their count."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("verdict", "finding; published, and recorded [90 % interval]"):
        table.add_column(header, overflow="fold")
    for row in rows:
        # Text, not markup: what projects publish is their own.
        entry = Text(printable(row.statement), style="bold" if colour else "")
        found = f"{row.measured} ({row.basis})" if row.basis else row.measured
        published = [f"published {row.published}"] if row.published else []
        figures = "; ".join([*published, f"recorded {found}"])
        entry.append("\n" + printable(figures), style="not bold")
        table.add_row(Text(row.outcome, style=_COLOURS[row.outcome]), entry)
    counts = {word: sum(row.outcome == word for row in rows) for word in _COLOURS}
    counted = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    explained = "recorded verdicts fail no test; asperf findings ID explains one"
    return f"\n{_rendered(table, width, colour=colour)}{counted}\n{explained}\n"


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
