"""The cells of a gate: one model, with its engine settings, and one workload, under two builds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.verdict import Subject, judge_invalid
from pytest_asperf.config.spec import Pairing
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.errors import AsperfError, ConfigError, shown, suggest
from pytest_asperf.measure.ab_logits import run_logits_gate
from pytest_asperf.measure.ab_speculation import run_speculation_gate
from pytest_asperf.verdicts.gate import (
    gate_note,
    logits_verdict,
    ppl_verdict,
    speculation_verdict,
    speed_verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.config.spec import Build, ModelRef
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.runner import MeasurementRunner

#: Workloads of a gate that are no single model's time: PPL of the same file, prefill against
#: decoding, and speculation.
PPL: Final = "ppl"
LOGITS: Final = "logits"
SPECULATION: Final = "sd"
_OTHERS: Final = (PPL, LOGITS, SPECULATION)
_EXAMPLES: Final = (*_OTHERS, "pp512", "tg128", "tg128@d4096", "ttft512")

#: Tests of a speculation, which share the error of one cell: of its time, and of what is accepted.
_TESTS_OF_SPECULATION: Final = 2


@dataclass(frozen=True, slots=True)
class GateCell:
    """One thing that a gate decides.

    Attributes:
        ref: the model, with the engine settings that it runs with.
        workload: `pp512`, `tg128`, `tg128@d4096`, `ttft512`; `ppl`, `logits` or `sd`.
        pairing: of `sd`, what is run with the model as its target; None for lookup in the text.
    """

    ref: ModelRef
    workload: str
    pairing: Pairing | None = None

    @property
    def what(self) -> str:
        """The model, with what does not go without saying of how it runs."""
        if self.workload == SPECULATION:
            return (self.pairing or Pairing(self.ref, None)).label
        flash = self.ref.spec.settings.flash_attn
        return f"{self.ref.title}{f' flash attention {flash}' if flash else ''}"

    @property
    def shares_error(self) -> bool:
        """Whether its verdict can be wrong by chance: what is computed once cannot."""
        return self.workload != LOGITS


@dataclass(frozen=True, slots=True)
class JudgedCell:
    """A verdict of a gate.

    Attributes:
        verdict: it.
        note: what a reader is to be told whatever the verdict, one remark a line.
        interrupted: whether it was stopped from outside.
    """

    verdict: Verdict
    note: str = ""
    interrupted: bool = False


def require_workload(name: str, *, where: str) -> str:
    """Return the name of a gate's workload, if it is one.

    Raises:
        ConfigError: it is none.
    """
    if name in _OTHERS:
        return name
    try:
        return parse_workload(name, where=where).name
    except ConfigError as error:
        raise ConfigError(
            f"{where}: {shown(name, 80)} is not a workload{suggest(name, _EXAMPLES)}",
            why=error.why,
            remedy=f"{error.remedy}; or ppl, logits (prefill against decoding), sd (speculation)",
        ) from None


def judge_workloads(
    runner: MeasurementRunner,
    ref: ModelRef,
    names: Sequence[str],
    builds: tuple[Build, Build],
    *,
    budget: Budget,
    max_ppl_delta: float,
    comparisons: int,
    pairing: Pairing | None = None,
) -> Iterator[JudgedCell]:
    """Hold the second build against the first on one model; what is timed takes turns.

    Args:
        runner: measures; of the engine that the model runs on.
        ref: the model.
        names: the workloads, each once.
        builds: baseline and candidate.
        budget: what each may cost, and the slowdown that is accepted.
        max_ppl_delta: ΔPPL of the same file to stay below, a fraction.
        comparisons: verdicts that share the error, these among them.
        pairing: of `sd`, what is run; None for lookup in the text of this model's.

    Yields:
        Each verdict once it is decided; none after one that was interrupted.

    Raises:
        AsperfError: one could not be measured, or what was measured is broken.
    """
    timed = tuple(parse_workload(name, where="gate") for name in names if name not in _OTHERS)
    if timed:
        duel = runner.duel(ref, timed, builds, budget, comparisons)
        for workload_pairs in duel.workloads_pairs:
            note = gate_note(workload_pairs, duel)
            yield JudgedCell(speed_verdict(workload_pairs, duel), note, duel.interrupted)
        if duel.interrupted:
            return
    if PPL in names:
        scored = runner.ppl_duel(ref, builds, max_ppl_delta, budget, comparisons)
        yield JudgedCell(ppl_verdict(scored), interrupted=scored.interrupted)
        if scored.interrupted:
            return
    if LOGITS in names:
        yield JudgedCell(logits_verdict(runner.between((ref,), builds, LOGITS, run_logits_gate)))
    if SPECULATION in names:
        own = pairing or Pairing(ref, None)
        yield _judged_speculation(runner, own, builds, budget, _TESTS_OF_SPECULATION * comparisons)


def _judged_speculation(
    runner: MeasurementRunner,
    pairing: Pairing,
    builds: tuple[Build, Build],
    budget: Budget,
    comparisons: int,
) -> JudgedCell:
    refs = (pairing.target, *([pairing.draft] if pairing.draft else []))
    found = runner.between(
        refs,
        builds,
        (SPECULATION, pairing, budget, comparisons),
        lambda lease: run_speculation_gate(lease, pairing, budget, comparisons),
    )
    verdict = speculation_verdict(found, comparisons)
    return JudgedCell(verdict, interrupted=found.duel.interrupted)


def judge_cell(
    runner: MeasurementRunner,
    cell: GateCell,
    builds: tuple[Build, Build],
    *,
    budget: Budget,
    max_ppl_delta: float,
    comparisons: int,
) -> Verdict:
    """Hold the second build against the first on one cell.

    Args:
        runner: measures; of the engine that the cell's model runs on.
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
    require_workload(cell.workload, where="gate")
    try:
        (judged,) = judge_workloads(
            runner,
            cell.ref,
            (cell.workload,),
            builds,
            budget=budget,
            max_ppl_delta=max_ppl_delta,
            comparisons=comparisons,
            pairing=cell.pairing,
        )
    except AsperfError as error:
        if not error.breaks_measurement:
            raise
        return _broken(cell, builds, error)
    if judged.interrupted:
        raise KeyboardInterrupt
    return judged.verdict


def shared_by(cells: Iterable[GateCell]) -> int:
    """Return how many of the cells share the error."""
    return max(1, sum(cell.shares_error for cell in cells))


def _broken(cell: GateCell, builds: tuple[Build, Build], error: AsperfError) -> Verdict:
    base, candidate = (build.name for build in builds)
    subject = Subject(f"{cell.workload} {cell.what} in {candidate} / {base}", "live")
    told = (error.what, error.why, *(error.detail or "").splitlines())
    return judge_invalid(subject, "as in the baseline", told, remedy=error.remedy)
