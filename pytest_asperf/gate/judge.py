"""Compares two builds on the cells of a gate, and judges each."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.analysis.verdict import Outcome, Subject, judge_invalid
from pytest_asperf.config.spec import Pairing
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import AsperfError, BuildError
from pytest_asperf.gate.cells import CellResult, GateCheck
from pytest_asperf.gate.inability import Tried, inability, shows_a_build, tried
from pytest_asperf.measure.ab_logits import LogitsComparison, LogitsExperiment
from pytest_asperf.measure.ab_ppl import PplComparison, PplExperiment
from pytest_asperf.measure.ab_speculation import SpeculationComparison, SpeculationExperiment
from pytest_asperf.measure.ab_speed import ABResult, SpeedExperiment
from pytest_asperf.verdicts.gate import (
    logits_verdict,
    ppl_verdict,
    speculation_verdict,
    speed_verdict,
)
from pytest_asperf.verdicts.noise_notes import gate_note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.config.spec import Build, ModelRef
    from pytest_asperf.gate.cells import GateCell
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.experiment import PairedExperiment
    from pytest_asperf.measure.runner import MeasurementRunner

#: Tests of a speculation, which share the error of one cell: of its time, and of what is accepted.
_TESTS_OF_SPECULATION: Final = 2


@dataclass(frozen=True, slots=True)
class GateLimits:
    """What a gate accepts, and what it may cost.

    Attributes:
        budget: of each timed cell, with the slowdown that is accepted.
        max_ppl_delta: ΔPPL of the same file to stay below, a fraction.
        comparisons: cells that share the error.
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
        experiment, *refs = self._planned(cells)
        sides = self.runner.under(tuple(refs), self.builds)
        try:
            result = self.runner.compare(sides, experiment)
        except BuildError:
            raise
        except AsperfError as error:
            if len(cells) > 1:
                # One cell's fault must not cost the others their result.
                return [result for cell in cells for result in self.judge([cell])]
            verdict = self._broken(cells[0], error, lambda: tried(self.runner, sides, experiment))
            is_judged = verdict is not None and verdict.outcome is Outcome.FAIL
            elapsed_s = time.monotonic() - began
            return [CellResult(cells[0], elapsed_s, verdict, None if is_judged else error)]
        return self._judged(cells, result, time.monotonic() - began)

    def _planned(
        self, cells: list[GateCell]
    ) -> tuple[PairedExperiment[Any], *tuple[ModelRef, ...]]:
        """What measures cells that take turns, and the models that it runs."""
        (cell, *_), budget, n = cells, self.limits.budget, self.limits.comparisons
        match cell.workload:
            case GateCheck.PPL:
                limit = self.limits.max_ppl_delta
                return PplExperiment(limit, budget.seed, budget.max_seconds, n), cell.ref
            case GateCheck.LOGITS:
                return LogitsExperiment(), cell.ref
            case GateCheck.SPECULATION:
                pairing = cell.pairing or Pairing(cell.ref, None)
                n_tests = _TESTS_OF_SPECULATION * n
                refs = (pairing.target, *([pairing.draft] if pairing.draft else []))
                return SpeculationExperiment(pairing, budget, n_tests), *refs
        workloads = tuple(c.workload for c in cells if isinstance(c.workload, Workload))
        return SpeedExperiment(workloads, budget, n), cell.ref

    def _judged(self, cells: list[GateCell], result: object, elapsed_s: float) -> list[CellResult]:
        match result:
            case ABResult():
                return _timed(cells, result, elapsed_s)
            case PplComparison():
                verdict, interrupted = ppl_verdict(result), result.interrupted
            case LogitsComparison():
                verdict, interrupted = logits_verdict(result), False
            case SpeculationComparison():
                n_tests = _TESTS_OF_SPECULATION * self.limits.comparisons
                verdict = speculation_verdict(result, n_tests)
                interrupted = result.speed.interrupted
        return [CellResult(cells[0], elapsed_s, verdict, interrupted=interrupted)]

    def _broken(
        self, cell: GateCell, error: AsperfError, try_again: Callable[[], Tried]
    ) -> Verdict | None:
        """FAIL if the candidate alone cannot run it, INVALID if it broke; None if it was refused.

        Raises:
            AsperfError: neither build could be tried again.
        """
        base, candidate = (build.name for build in self.builds)
        subject = Subject(f"{cell.name} {cell.what} in {candidate} / {base}", "live")
        again = try_again() if shows_a_build(error) else Tried(())
        if again.failures and not again.remark:
            return inability(subject, again.failures)
        if not error.breaks_measurement:
            return None
        remarks = filter(None, (error.why, again.remark))
        problems = (error.what, *remarks, *(error.detail or "").splitlines())
        return judge_invalid(subject, "as in the baseline", problems, remedy=error.remedy)


def _timed(cells: list[GateCell], result: ABResult, elapsed_s: float) -> list[CellResult]:
    # Loads are of all of them.
    own_s = sum(pairs.elapsed_s for pairs in result.by_workload)
    shared_s = max(0.0, elapsed_s - own_s) / len(cells)
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
