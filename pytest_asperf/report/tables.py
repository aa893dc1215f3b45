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


#: Verdicts on recorded figures with which a live FAIL fails no test.
_UNSHOWN: Final = frozenset({"FAIL", "INVALID"})
_WORST_FIRST: Final = ("INVALID", "FAIL", "INCONCLUSIVE", "PASS")
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


def render_findings(
    rows: Sequence[ReportRow], width: int, *, colour: bool, untried: Sequence[ReportRow] = ()
) -> str:
    """One entry for each finding: verdicts, statement, published and found; and their count.

    The verdict on the recorded figures has a column where the other one is on this machine's. The
    findings that were not tried here follow by the reason.
    """
    if not (rows or untried):
        return ""
    found: dict[str, list[ReportRow]] = {}
    for row in rows:
        found.setdefault(row.finding, []).append(row)
    beside = any(row.source != "recorded" for row in rows)
    title = "finding; published, and measured or recorded [90 % interval]"
    table = _table(*(("here", "recorded") if beside else ("verdict",)), title)
    for several in found.values():
        table.add_row(*_entry(several, beside=beside, colour=colour))
    for reason in dict.fromkeys(row.measured for row in untried):
        table.add_row(*[""] * (1 + beside), Text(f"not tried: {printable(reason)}", style="dim"))
        for row in untried:
            if row.measured == reason and row.finding not in found:
                verdict = Text(row.recorded, style=_COLOURS[row.recorded])
                table.add_row(*["-"] * beside, verdict, Text(printable(row.statement)))
    notes = []
    if any(row.source == "recorded" for row in rows):
        notes.append("recorded verdicts fail no test; asperf findings ID explains one\n")
    if any(row.source == "live" and row.recorded in _UNSHOWN for row in rows):
        notes.append("no test fails for a statement that its own figures do not show\n")
    counted = ", ".join(filter(None, (_counted(rows), f"{len(untried)} not tried" * bool(untried))))
    return f"\n{_rendered(table, width, colour=colour)}{counted}\n{''.join(notes)}"


def _entry(rows: Sequence[ReportRow], *, beside: bool, colour: bool) -> list[Text]:
    """The cells of a finding on which one or several verdicts were given, the worst first."""
    worst = min(rows, key=lambda row: _WORST_FIRST.index(row.outcome))
    origin = worst.source if worst.source in {"recorded", "predicted"} else "measured"
    found = [f"{row.measured} ({row.basis})" if row.basis else row.measured for row in rows]
    figures = [f"published {worst.published}"] if worst.published else []
    figures.append(f"{origin} {', '.join(dict.fromkeys(found))}")
    text = Text(printable(worst.statement), style="bold" if colour else "")
    text.append("\n" + printable("; ".join(figures)), style="not bold")
    verdict = Text(worst.outcome, style=_COLOURS[worst.outcome])
    if worst.source == "elsewhere":
        verdict.append("\nelsewhere")
    recorded = [Text(worst.recorded, style=_COLOURS[worst.recorded])] if beside else []
    return [verdict, *recorded, text]


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
