"""A gate's summary for a terminal: the answer, cells, notes, what ran."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import printable
from pytest_asperf.gate.summary import LEFT_OUT, notes, proof_rows, summary_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_asperf.gate.summary import GateOutcome, SummaryRow

#: A measured effect that is longer leaves its column.
_MOST_MEASURED: Final = 44
_LEAST_TEXT: Final = 24
UNIT: Final = "Figures are baseline → candidate."


def text_lines(outcome: GateOutcome, columns: int | None) -> Iterator[str]:
    """The summary as lines of text, safe to print.

    Args:
        outcome: what the gate came to.
        columns: width that cells are wrapped at, None for one line each.
    """
    yield outcome.answer
    yield from _hanging("", f"{outcome.limits} {UNIT}", columns)
    rows = summary_rows(outcome)
    for what in dict.fromkeys(row.what for row in rows if row.word != LEFT_OUT):
        yield ""
        yield what
        yield from _cell_lines([row for row in rows if row.what == what], rows, columns)
    yield from ("", *_left_out(rows)) if _left_out(rows) else ()
    for note in notes(outcome.results, with_ran=False):  # what ran follows, once for all
        yield ""
        yield from note.splitlines()
    proof = proof_rows(outcome.results)
    yield from ("", "what ran") if proof else ()
    for fact in proof:
        both = "" if fact.differs else ", in both"
        yield f"  {fact.label + ':':10} {printable(fact.baseline)}{both}"
        if fact.differs:
            yield f"  {'differs':>9}: {printable(fact.candidate)}"


def _cell_lines(
    cells: Sequence[SummaryRow], rows: Sequence[SummaryRow], columns: int | None
) -> Iterator[str]:
    """One model's cells, in columns as wide as all rows need."""
    words = max(len(row.word) for row in rows if row.word != LEFT_OUT)
    names = max(len(row.name) for row in rows)
    measured = max((n for row in rows if (n := len(row.measured)) <= _MOST_MEASURED), default=0)
    for row in cells:
        head = f"  {row.word:{words}}  {row.name:{names}}  "
        text = f"{row.measured:{measured}}  ({row.cost})"
        yield from _hanging(head, text, columns)


def _hanging(head: str, text: str, columns: int | None) -> list[str]:
    if columns is None or len(head) + len(text) <= columns:
        return [head + text]
    return textwrap.wrap(
        text,
        max(columns, len(head) + _LEAST_TEXT),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _left_out(rows: Sequence[SummaryRow]) -> list[str]:
    return [f"{LEFT_OUT}: {r.what}: {r.measured}" for r in rows if r.word == LEFT_OUT]
