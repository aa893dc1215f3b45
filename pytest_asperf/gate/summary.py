"""What a gate says: a line for each cell, the notes of those that do not pass, and Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.stats.sequential import ALPHA
from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.errors import printable
from pytest_asperf.report.rows import verdict_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.errors import AsperfError
    from pytest_asperf.gate.cells import GateCell
    from pytest_asperf.gate.plan import GatePlan

#: What a cell is called that was planned and could not be measured.
NOT_RUN: Final = "NOT RUN"

#: Exit codes: all PASS; any FAIL; something undecided; not usable as typed; stopped.
ALL_PASS, ANY_FAIL, UNDECIDED, USAGE, INTERRUPTED = 0, 1, 2, 3, 130

_MARKS: Final = {"PASS": "✅", "FAIL": "❌", "INCONCLUSIVE": "❔", "INVALID": "⚠️", NOT_RUN: "⚠️"}
_PROOF: Final = ("model", "memory", "settings")
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>()#!|~&@:$])")
_LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class CellResult:
    """What became of a cell.

    Attributes:
        cell: the cell.
        elapsed_s: time that it took, loads included.
        verdict: the verdict, None where it could not be measured.
        error: why not.
    """

    cell: GateCell
    elapsed_s: float
    verdict: Verdict | None = None
    error: AsperfError | None = None

    @property
    def word(self) -> str:
        """The verdict in a word."""
        return str(self.verdict.outcome) if self.verdict else NOT_RUN

    @property
    def measured(self) -> str:
        """What was found, with its interval, or why nothing was."""
        if self.verdict is None:
            return printable(self.error.what if self.error else "", _LONGEST)
        counts = {f"{e.n} {e.counted}" for _, e in self.verdict.figures if not e.is_exact}
        basis = f" ({', '.join(sorted(counts))})" if counts else ""
        return printable(f"{self.verdict.measured}{basis}", _LONGEST)


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """What a gate came to.

    Attributes:
        builds: names of baseline and candidate.
        plan: what was to be decided.
        limits: what is accepted, in words.
        results: of the cells that were begun and ended.
        elapsed_s: time of all.
        interrupted: whether it was stopped from outside.
    """

    builds: tuple[str, str]
    plan: GatePlan
    limits: str
    results: tuple[CellResult, ...]
    elapsed_s: float
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code."""
        if self.interrupted:
            return INTERRUPTED
        return exit_code(result.word for result in self.results)

    @property
    def headline(self) -> str:
        """Return how many cells came to which verdict."""
        words = [result.word for result in self.results]
        counts = [f"{words.count(word)} {word}" for word in _MARKS if word in words]
        open_cells = len(self.plan.cells) - len(words)
        stopped = [f"stopped before {open_cells} of {len(self.plan.cells)}"] if open_cells else []
        return f"{', '.join([*counts, *stopped])} in {self.elapsed_s:.0f} s"


def exit_code(words: Iterable[str]) -> int:
    """Return 0 where all cells pass, 1 where one fails, else 2: what is not shown is no pass."""
    found = set(words)
    if Outcome.FAIL in found:
        return ANY_FAIL
    return ALL_PASS if found == {Outcome.PASS} else UNDECIDED


def error_budget(n_cells: int) -> str:
    """Return how the error is shared, in words."""
    wrong = f"FAIL of equal builds, or a PASS of a regression, in at most {100 * ALPHA:g} % of runs"
    if n_cells == 1:
        return f"A {wrong}"
    each = f"{100 * ALPHA / n_cells:.2g} %"
    return f"{n_cells} cells share the error: a {wrong} over all, {each} a cell"


def result_line(result: CellResult, plan: GatePlan) -> str:
    """Return a cell's result in one line, safe to print."""
    names = max(len(cell.workload) for cell in plan.cells)
    whats = max(len(printable(cell.what)) for cell in plan.cells)
    cell = result.cell
    return (
        f"{result.word:12} {cell.workload:{names}}  {printable(cell.what):{whats}}  "
        f"{result.measured}; {result.elapsed_s:.0f} s in all"
    )


def notes(results: Sequence[CellResult]) -> list[str]:
    """Return the lab notes of all cells that do not pass, the failures first."""
    open_ones = [r for r in results if r.word != Outcome.PASS]
    found = []
    for result in sorted(open_ones, key=lambda r: r.word != Outcome.FAIL):
        head = f"{result.cell.workload} {printable(result.cell.what)}"
        text = result.verdict.note() if result.verdict else f"{NOT_RUN}: {result.error}"
        found.append(f"{head}\n{text}")
    return found


@dataclass(frozen=True, slots=True)
class ProofRow:
    """One fact of what ran, in both builds."""

    label: str
    baseline: str
    candidate: str

    @property
    def differs(self) -> bool:
        """Whether it is not the same."""
        return self.baseline != self.candidate


def proof_rows(results: Sequence[CellResult]) -> list[ProofRow]:
    """Return what ran in both builds, each fact that does not depend on the cell once.

    Of facts that do, such as settings, those that differ between the builds.
    """
    rows: dict[ProofRow, None] = {}
    for result in results:
        ran = dict(result.verdict.subject.ran) if result.verdict else {}
        for label in dict.fromkeys(key.partition(" ")[2] for key in ran):
            sides = (ran.get(f"{side} {label}", "") for side in ("baseline", "candidate"))
            row = ProofRow(label, *sides)
            if label not in _PROOF or (label == "settings" and row.differs):
                rows[row] = None
    return list(rows)


def document(outcome: GateOutcome) -> dict[str, object]:
    """Return all of it as plain data."""
    return {
        "schema": 1,
        "baseline": outcome.builds[0],
        "candidate": outcome.builds[1],
        "limits": outcome.limits,
        "headline": outcome.headline,
        "exit_code": outcome.exit_code,
        "elapsed_s": outcome.elapsed_s,
        "interrupted": outcome.interrupted,
        "cells": [_cell_data(result) for result in outcome.results],
        "left_out": [{"what": one.what, "reason": one.reason} for one in outcome.plan.left_out],
    }


def _cell_data(result: CellResult) -> dict[str, object]:
    cell = result.cell
    return {
        "workload": cell.workload,
        "model": cell.what,
        "settings": cell.ref.spec.settings.as_dict(),
        "outcome": result.word,
        "measured": result.measured,
        "elapsed_s": result.elapsed_s,
        "verdict": verdict_row(result.verdict).as_dict() if result.verdict else None,
        "details": list(result.verdict.details) if result.verdict else [],
        "error": str(result.error) if result.error else None,
    }


def escape(text: object) -> str:
    """Return any text as Markdown that shows it on one line, in a table's cell too."""
    return _MARKDOWN.sub(r"\\\1", printable(text, _LONGEST))


def markdown(outcome: GateOutcome) -> str:
    """Return a summary for a pull request, in GitHub's Markdown."""
    base, candidate = map(escape, outcome.builds)
    lines = [
        f"### asperf gate: {candidate} against {base}",
        "",
        f"**{escape(outcome.headline)}.** {escape(outcome.limits)}",
        "",
        "| verdict | workload | model | measured | time |",
        "|---|---|---|---|---:|",
    ]
    for result in outcome.results:
        cells = (result.cell.workload, result.cell.what, result.measured)
        shown = " | ".join(map(escape, cells))
        word = f"{_MARKS[result.word]} {result.word}"
        lines.append(f"| {word} | {shown} | {result.elapsed_s:.0f} s |")
    lines += [
        f"| left out | {escape(one.what)} | | {escape(one.reason)} | |"
        for one in outcome.plan.left_out
    ]
    if rows := proof_rows(outcome.results):
        lines += ["", "| what ran | baseline | candidate |", "|---|---|---|"]
        for row in rows:
            mark = "**differs** " if row.differs else ""
            facts = " | ".join(map(escape, (row.baseline, row.candidate)))
            lines.append(f"| {mark}{escape(row.label)} | {facts} |")
    for note in notes(outcome.results):
        head, *rest = note.splitlines()
        code = [f"    {line}" for line in rest]
        lines += ["", f"<details><summary>{_html(head)}</summary>", "", *code, "", "</details>"]
    return "\n".join(lines) + "\n"


def _html(text: str) -> str:
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, entity)
    return printable(text, _LONGEST)
