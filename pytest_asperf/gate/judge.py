"""Compares two builds on the cells of a gate, and judges each."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.verdict import Subject, judge_invalid
from pytest_asperf.config.spec import Pairing
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import AsperfError, BuildError
from pytest_asperf.gate.cells import CellResult, GateCheck
from pytest_asperf.measure.ab_logits import LogitsExperiment
from pytest_asperf.measure.ab_ppl import PplExperiment
from pytest_asperf.measure.ab_speculation import SpeculationExperiment
from pytest_asperf.measure.ab_speed import SpeedExperiment
from pytest_asperf.verdicts.gate import (
    logits_verdict,
    ppl_verdict,
    speculation_verdict,
    speed_verdict,
)
from pytest_asperf.verdicts.noise_notes import gate_note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.config.spec import Build, ModelRef
    from pytest_asperf.gate.cells import GateCell
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.experiment import Experiment
    from pytest_asperf.measure.runner import MeasurementRunner, Result

#: Tests of a speculation that can FAIL by chance: of its time, and of what is accepted.
_TESTS_OF_SPECULATION: Final = 2


@dataclass(frozen=True, slots=True)
class GateLimits:
    """What a gate accepts, and what it may cost.

    Attributes:
        budget: of each timed cell, with the slowdown that is accepted.
        max_ppl_delta: ΔPPL of the same file to stay below, a fraction.
        comparisons: cells that share the error of a FAIL.
    """

    budget: Budget
    max_ppl_delta: float
    comparisons: int = 1


def judge_cells(
    runner: MeasurementRunner,
    cells: Iterable[GateCell],
    builds: tuple[Build, Build],
    limits: GateLimits,
) -> Iterator[CellResult]:
    """Compare the candidate with the baseline; timed workloads of one model take turns.

    Args:
        runner: of the engine that the models run on.
        cells: what is decided.
        builds: baseline and candidate.
        limits: what is accepted, and what it may cost.

    Yields:
        Each result once it is decided, cells that take turns together; none after an interruption.
        It is INVALID where the measurement broke, as when a build's process died.

    Raises:
        BuildError: a build cannot be made, so that no cell can be decided.
        KeyboardInterrupt: it was stopped before anything of a cell was measured.
    """
    comparing = _BuildComparison(runner, builds, limits)
    for group in _taking_turns(cells):
        for result in comparing.judge(group):
            yield result
        if result.interrupted:
            return


def _taking_turns(cells: Iterable[GateCell]) -> list[list[GateCell]]:
    """Group the timed cells of each model; anything else stays by itself."""
    groups: list[list[GateCell]] = []
    timed: dict[ModelRef, list[GateCell]] = {}
    for cell in cells:
        if isinstance(cell.workload, Workload) and cell.ref in timed:
            timed[cell.ref].append(cell)
            continue
        groups.append([cell])
        if isinstance(cell.workload, Workload):
            timed[cell.ref] = groups[-1]
    return groups


@dataclass(frozen=True, slots=True)
class _BuildComparison:
    runner: MeasurementRunner
    builds: tuple[Build, Build]
    limits: GateLimits

    def judge(self, cells: list[GateCell]) -> list[CellResult]:
        """Judge cells that take turns; each by itself where together they cannot be measured."""
        began = time.monotonic()
        try:
            return self._measured(cells, began)
        except BuildError:
            raise
        except AsperfError as error:
            if len(cells) > 1:
                # One cell's fault must not cost the others their result.
                return [result for cell in cells for result in self.judge([cell])]
            verdict = self._broken(cells[0], error) if error.breaks_measurement else None
            return [CellResult(cells[0], time.monotonic() - began, verdict, error)]

    def _measured(self, cells: list[GateCell], began: float) -> list[CellResult]:
        (cell, *_), budget, n = cells, self.limits.budget, self.limits.comparisons
        interrupted = False
        match cell.workload:
            case Workload():
                return self._timed(cells, began)
            case GateCheck.PPL:
                limit = self.limits.max_ppl_delta
                ppl = self._compare(
                    PplExperiment(limit, budget.seed, budget.max_seconds, n, budget.beta), cell.ref
                )
                verdict, interrupted = ppl_verdict(ppl), ppl.interrupted
            case GateCheck.LOGITS:
                verdict = logits_verdict(self._compare(LogitsExperiment(), cell.ref))
            case GateCheck.SPECULATION:
                pairing, n = cell.pairing or Pairing(cell.ref, None), _TESTS_OF_SPECULATION * n
                refs = (pairing.target, *([pairing.draft] if pairing.draft else []))
                done = self._compare(SpeculationExperiment(pairing, budget, n), *refs)
                verdict, interrupted = speculation_verdict(done, n), done.speed.interrupted
        elapsed_s = time.monotonic() - began
        return [CellResult(cell, elapsed_s, verdict, interrupted=interrupted)]

    def _timed(self, cells: list[GateCell], began: float) -> list[CellResult]:
        workloads = tuple(c.workload for c in cells if isinstance(c.workload, Workload))
        experiment = SpeedExperiment(workloads, self.limits.budget, self.limits.comparisons)
        result = self._compare(experiment, cells[0].ref)
        # Loads are of all of them.
        own_s = sum(pairs.elapsed_s for pairs in result.by_workload)
        shared_s = max(0.0, time.monotonic() - began - own_s) / len(cells)
        return [
            CellResult(
                cell,
                pairs.elapsed_s + shared_s,
                speed_verdict(pairs, result),
                note=gate_note(pairs, result),
                interrupted=result.interrupted,
            )
            for cell, pairs in zip(cells, result.by_workload, strict=True)
        ]

    def _compare(self, experiment: Experiment[Result], *refs: ModelRef) -> Result:
        return self.runner.compare(self.runner.under(refs, self.builds), experiment)

    def _broken(self, cell: GateCell, error: AsperfError) -> Verdict:
        base, candidate = (build.name for build in self.builds)
        subject = Subject(f"{cell.name} {cell.what} in {candidate} / {base}", "live")
        problems = (error.what, error.why, *(error.detail or "").splitlines())
        return judge_invalid(subject, "as in the baseline", problems, remedy=error.remedy)
