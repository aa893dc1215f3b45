"""The cells of a gate: one model, with its engine settings, and one workload, under two builds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import AsperfError
from pytest_asperf.gate_verdict import ppl_verdict, speed_verdict
from pytest_asperf.spec import parse_workload
from pytest_asperf.verdict import Subject, judge_invalid

if TYPE_CHECKING:
    from pytest_asperf.measure.gate import Budget
    from pytest_asperf.measure.lab import Lab
    from pytest_asperf.spec import Build, ModelRef
    from pytest_asperf.verdict import Verdict

#: The workload that is no time: PPL of the same file.
PPL: Final = "ppl"


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing that a gate decides.

    Attributes:
        ref: the model, with the engine settings that it runs with.
        workload: `pp512`, `tg128`, `tg128@d4096`, `ttft512`; or `ppl`.
    """

    ref: ModelRef
    workload: str


def judge_cell(
    lab: Lab,
    cell: Cell,
    builds: tuple[Build, Build],
    *,
    budget: Budget,
    max_ppl_delta: float,
    comparisons: int,
) -> Verdict:
    """Hold the second build against the first on one cell.

    Args:
        lab: measures; of the engine that the cell's model runs on.
        cell: what is decided.
        builds: baseline and candidate.
        budget: what it may cost, and the slowdown that is accepted.
        max_ppl_delta: ΔPPL of the same file to stay below, a fraction.
        comparisons: cells that share the error, this one among them.

    Returns:
        The verdict; INVALID where the measurement broke, as when a build's process died.

    Raises:
        AsperfError: it could not be measured at all: no such workload or model, a build that
            cannot be made, or an engine that refuses what the cell asks of it.
        KeyboardInterrupt: it was stopped before it was decided.
    """
    try:
        if cell.workload == PPL:
            scored = lab.ppl_duel(cell.ref, builds, max_ppl_delta, budget, comparisons)
            verdict, interrupted = ppl_verdict(scored), scored.interrupted
        else:
            workload = parse_workload(cell.workload, where="gate")
            duel = lab.duel(cell.ref, (workload,), builds, budget, comparisons)
            verdict, interrupted = speed_verdict(duel.contests[0], duel), duel.interrupted
    except AsperfError as error:
        if not error.breaks_measurement:
            raise
        return _broken(cell, builds, error)
    if interrupted:
        raise KeyboardInterrupt
    return verdict


def _broken(cell: Cell, builds: tuple[Build, Build], error: AsperfError) -> Verdict:
    base, candidate = (build.name for build in builds)
    subject = Subject(f"{cell.workload} {cell.ref.title} in {candidate} / {base}", "live")
    told = (error.what, error.why, *(error.detail or "").splitlines())
    return judge_invalid(subject, "as in the baseline", told, remedy=error.remedy)
