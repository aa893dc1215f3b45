"""A gate in words: its answer, a row for each check, notes on what does not pass, and what ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.outcome import NOT_RUN, Outcome
from pytest_asperf.analysis.stats.sequential_frame import BETA, GATE_ALPHA
from pytest_asperf.errors import printable
from pytest_asperf.records.kinds import facts_of_builds
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import advice_text, lab_note
from pytest_asperf.report.wrapping import wrapped

if TYPE_CHECKING:
    from pytest_asperf.gate.cells import CellResult
    from pytest_asperf.gate.summary import GateOutcome

LEFT_OUT: Final = "left out"
#: An error may be of any length.
_LONGEST: Final = 400


def error_budget(n_cells: int, *, is_gain: bool = False) -> str:
    """The error rates of a gate's times in words; for an asserted gain, or for a gate."""
    if is_gain:
        wrong = "a FAIL of such a gain, or a PASS of a smaller one"
        return f"Errors: {wrong} in at most {100 * BETA:g} % of runs"
    alone = "" if n_cells == 1 else f" in any of {n_cells} checks"
    return (
        f"Errors: equal builds FAIL by time{alone} in at most {100 * GATE_ALPHA:g} % of runs, "
        f"a check that is that much slower PASSes in at most {100 * BETA:g} %"
    )


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """A check in the summary."""

    word: str  #: its verdict, or ``left out``
    name: str  #: its workload
    what: str  #: the model, with settings
    measured: str  #: the effect with its interval, or why there is none
    counted: str = ""  #: pairs or chunks that it rests on
    elapsed_s: float | None = None  #: its duration, loads included; None if it was left out

    @property
    def cost(self) -> str:
        """Its cost."""
        time = "" if self.elapsed_s is None else f"{self.elapsed_s:.0f} s"
        return ", ".join(filter(None, (self.counted, time)))


def summary_rows(outcome: GateOutcome) -> list[SummaryRow]:
    """A row for each check, then for those that are left out."""
    left_out = [SummaryRow(LEFT_OUT, "", left.what, left.reason) for left in outcome.plan.left_out]
    return [*map(_row, outcome.results), *left_out]


def _row(result: CellResult) -> SummaryRow:
    cell = result.cell
    return SummaryRow(
        result.word,
        cell.name,
        printable(cell.what),
        measured_text(result),
        result.counted,
        result.elapsed_s,
    )


def measured_text(result: CellResult) -> str:
    """The measured effect with its interval, or why there is none; safe to print."""
    failed = "" if result.error is None else result.error.what
    said = failed if result.verdict is None else in_words(result.verdict).measured
    return printable(said, _LONGEST)


def notes(results: Sequence[CellResult]) -> list[str]:
    """The notes on all checks that do not pass, the failures first, without run records.

    A note of several checks, such as an engine that does not start or a spent budget, is printed
    once.
    """
    not_passed = [r for r in results if r.word != Outcome.PASS]
    cells: dict[str, list[str]] = {}
    for result in sorted(not_passed, key=lambda r: r.word != Outcome.FAIL):
        verdict = result.verdict
        if verdict is None:
            text = f"{NOT_RUN}: {result.error}"
        elif verdict.figures or verdict.details:
            text = lab_note(verdict, with_ran=False)
        else:  # nothing was measured, so the assertion adds nothing
            text = f"{verdict.outcome}: {printable(in_words(verdict).measured)}"
            text += (
                f"\n  what to do: {printable(advice_text(verdict.advice))}"
                if verdict.advice
                else ""
            )
        cells.setdefault(text, []).append(f"{result.cell.name} {printable(result.cell.what)}")
    return [f"{', '.join(heads)}\n{text}" for text, heads in cells.items()]


#: A measured effect that is longer leaves its column.
_MOST_MEASURED: Final = 44
UNIT: Final = "Figures are baseline → candidate."


def text_lines(outcome: GateOutcome, columns: int | None) -> Iterator[str]:
    """The summary as lines of text, safe to print, broken at that many columns if any."""
    yield from wrapped(outcome.answer, columns)
    yield from wrapped(f"{outcome.limits} {UNIT}", columns)
    rows = summary_rows(outcome)
    for what in dict.fromkeys(row.what for row in rows if row.word != LEFT_OUT):
        yield ""
        yield from wrapped(what, columns)
        yield from _cell_lines([row for row in rows if row.what == what], rows, columns)
    others = [*([""] if _left_out(rows) else []), *_left_out(rows)]
    for note in notes(outcome.results):  # what ran follows, once for all
        others += ["", *note.splitlines()]
    ran = facts_of_builds(r.verdict.facts for r in outcome.results if r.verdict is not None)
    others += ["", "what ran"] if ran else []
    for label, base, candidate in ran:
        differs = base != candidate
        others += [f"  {label + ':':10} {printable(base)}{'' if differs else ', in both'}"]
        others += [f"  {'differs':>9}: {printable(candidate)}"] if differs else []
    for line in others:
        yield from wrapped(line, columns)


def _cell_lines(
    cells: Sequence[SummaryRow], rows: Sequence[SummaryRow], columns: int | None
) -> Iterator[str]:
    """One model's checks, in columns as wide as all rows need."""
    words = max(len(row.word) for row in rows if row.word != LEFT_OUT)
    names = max(len(row.name) for row in rows)
    measured = max((n for row in rows if (n := len(row.measured)) <= _MOST_MEASURED), default=0)
    for row in cells:
        head = f"  {row.word:{words}}  {row.name:{names}}  "
        text = f"{row.measured:{measured}}  ({row.cost})"
        if columns is not None and len(head) + len(text) > columns:
            text = f"{row.measured}  ({row.cost})"
        yield from wrapped(text, columns, head, " " * len(head))


def _left_out(rows: Sequence[SummaryRow]) -> list[str]:
    return [f"{LEFT_OUT}: {r.what}: {r.measured}" for r in rows if r.word == LEFT_OUT]
