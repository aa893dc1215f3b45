"""Compares two builds on the checks of a gate, and judges each."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_asperf.analysis.results import EngineFailure, RunsAsBaseline
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.stats.ppl_sequential import DriftTest, PairedPplTest
from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, judge_invalid
from pytest_asperf.config.settings import MOST_KLD
from pytest_asperf.config.spec import Build, ModelRef, Pairing
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import EngineRefusedError
from pytest_asperf.errors import Advice, AsperfError, BuildError, EngineError, UnfitError
from pytest_asperf.gate.cells import CellResult, GateCell, GateCheck, Outlook
from pytest_asperf.gate.schedule import Schedule, Turns, cost_text, expected_costs, outlook_text
from pytest_asperf.measure.ab_logits import LogitsComparison, LogitsExperiment
from pytest_asperf.measure.ab_ppl import PplComparison, PplExperiment, ScoreLimits
from pytest_asperf.measure.ab_speed import (
    ABResult,
    Budget,
    SpeedExperiment,
    WorkloadPairs,
    spread_of,
)
from pytest_asperf.measure.embeddings import EmbeddingsComparison, EmbeddingsExperiment
from pytest_asperf.measure.experiment import PairedExperiment, Trial, Visit
from pytest_asperf.measure.memory import MemoryABExperiment, MemoryComparison
from pytest_asperf.measure.runner import ComparedSide, MeasurementRunner
from pytest_asperf.measure.speculation import SpeculationExperiment
from pytest_asperf.measure.speculation_result import SpeculationComparison
from pytest_asperf.verdicts.embeddings import embeddings_verdict
from pytest_asperf.verdicts.gate import (
    kld_verdict,
    logits_verdict,
    ppl_verdict,
    speculation_verdict,
    speed_verdict,
)
from pytest_asperf.verdicts.memory import memory_verdict
from pytest_asperf.verdicts.paired import gate_note

_TRIALS: Final = 2
#: A candidate hangs if a call lasts this many times as long as all of the baseline's trial, and
#: longer than this.
_PATIENCE: Final = 20
_LEAST_PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of trials of both builds."""

    #: how the candidate failed, each after a trial in which the baseline did not
    failures: tuple[EngineError, ...]
    remark: str = ""  #: why they are too few, empty if they are not


def tried(
    runner: MeasurementRunner,
    sides: tuple[ComparedSide, ComparedSide],
    experiment: PairedExperiment[Any],
) -> Tried:
    """Try the smallest unit of an experiment with each build, one after the other.

    Raises:
        AsperfError: a trial broke for a reason that is not the engine's.
    """
    base, candidate = sides
    failures: list[EngineError] = []
    for number in range(_TRIALS):
        try:
            took_s = runner.compare((base,), Trial(experiment, number))
        except EngineError as error:
            return Tried(tuple(failures), f"the baseline {_manner(error)} too, when it was tried")
        patience_s = max(_LEAST_PATIENCE_S, _PATIENCE * took_s)
        try:
            runner.compare((candidate,), Trial(experiment, number, patience_s))
        except EngineError as error:
            failures.append(error)
        else:
            return Tried(tuple(failures), "both builds ran when they were tried again")
    return Tried(tuple(failures))


def shows_a_build(error: AsperfError) -> bool:
    """True if new processes can show that an error is a build's fault, and no missing part's."""
    if isinstance(error, EngineRefusedError):
        return not (error.is_of_setup or error.is_of_lasting_server)
    return isinstance(error, EngineError)


def inability(subject: Subject, failures: tuple[EngineError, ...]) -> Verdict:
    """The verdict on a candidate that failed where the baseline ran, with the log's last words."""
    last = failures[-1]
    advice = Advice(
        "the candidate cannot do what the baseline does: find the change between the builds, or "
        "report it to the engine with the log above"
    )
    return subject.verdict(
        Outcome.FAIL,
        RunsAsBaseline(failures=tuple(EngineFailure(one.did, one.manner) for one in failures)),
        advice=(advice,),
        details=(last.what, *(last.detail or "").splitlines()),
    )


def _manner(error: EngineError) -> str:
    return f"{error.did}{f' ({error.manner})' if error.manner else ''}"


#: Tests of a speculation that can FAIL by chance: of its time, and of its acceptance.
_TESTS_OF_SPECULATION: Final = 2


@dataclass(frozen=True, slots=True)
class GateLimits:
    """The limits of a gate, and its budget."""

    budget: Budget  #: the accepted slowdown, pairs of each check, and seconds of all checks
    max_ppl_delta: float  #: ΔPPL of the same file to stay below, a fraction
    #: mean KLD against the baseline to stay below, nats; None for the usual one, which grows with
    #: the baseline's own
    max_kld: float | None = None
    comparisons: int = 1  #: checks that share the error of a FAIL


def judge_cells(
    runner: MeasurementRunner,
    cells: Iterable[GateCell],
    builds: tuple[Build, Build],
    limits: GateLimits,
) -> Iterator[CellResult]:
    """Compare the candidate with the baseline; timed workloads of one model run in rotation.

    Args:
        runner: of the engine that the models run on.
        cells: the checks to decide.
        builds: baseline and candidate.
        limits: the accepted limits, and the maximal cost of all.

    Yields:
        Each result once it is decided, and the undecided ones when the budget is spent; after an
        interruption the measurements so far. It is INVALID if the measurement broke, as when the
        processes of both builds died.

    Raises:
        BuildError: a build cannot be made, so that no check can be decided.
        KeyboardInterrupt: it was stopped before any check was measured.
    """
    planned = tuple(cells)
    speculating = [cell for cell in planned if cell.workload == GateCheck.SPECULATION]
    known = runner.known(builds) if speculating else []
    if missing := next(filter(None, (facts.cannot.get("speculate") for facts in known)), None):
        lacking = UnfitError(missing, remedy="name builds with this program, or leave sd out")
        yield from (CellResult(cell, 0.0, error=lacking) for cell in speculating)
        planned = tuple(cell for cell in planned if cell not in speculating)
    costs = expected_costs(planned, runner.noise.calibrations, limits.budget)
    if runner.plan.self_check_every is not None:
        runner.say(cost_text(planned, costs))
    known_s = {cell: cost.seconds for cell, cost in costs.items()}
    groups = map(Turns, _taking_turns(planned))
    # Builds and models that are made for the first time do not count, nor waiting for the machine.
    schedule = Schedule(groups, limits.budget.max_seconds, known_s, clock=runner.measured_s)
    comparing = _BuildComparison(runner, builds, limits, schedule)
    while (turn := schedule.next()) is not None:
        group, *seconds = turn
        results = comparing.visit(group, *seconds)
        if not results:
            schedule.split(group)  # one check's fault must not cost the others their result
            continue
        is_over = any(result.interrupted for result in results)
        yield from (r for r in results if r.outlook is None or is_over)
        schedule.put_back(group, results)
        if is_over:
            return
        if group.visits == 1:
            for result in group.results.values():
                runner.say(outlook_text(result, schedule, limits.budget))
            runner.say(schedule.shortfall())
    for group in schedule.undecided:
        for cell in group.cells:
            yield group.results.get(cell) or comparing.not_begun(cell)


def _total_change(pairs: WorkloadPairs) -> Estimate | None:
    test = pairs.test
    return test.total.estimate if isinstance(test, TotalTimeTest) and pairs.pairs else None


def _taking_turns(cells: Iterable[GateCell]) -> list[list[GateCell]]:
    """Group the checks that one experiment measures; others stay by themselves.

    The timed checks of a model share processes, and those that score chunks share the chunks. A
    load has processes of its own.
    """
    groups: dict[object, list[GateCell]] = {}
    for cell in cells:
        match cell.workload:
            case Workload(is_load=False):
                shared: object = cell.ref
            case GateCheck(scores_chunks=True, depth=depth):
                shared = cell.ref, depth
            case _:
                shared = cell
        groups.setdefault(shared, []).append(cell)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class _BuildComparison:
    runner: MeasurementRunner
    builds: tuple[Build, Build]
    limits: GateLimits
    schedule: Schedule
    #: For a FAIL: the checks whose times were measured so far.
    evidence: dict[GateCell, float] = field(default_factory=dict)

    def visit(self, group: Turns, max_seconds: float, most_seconds: float) -> list[CellResult]:
        """Measure checks in rotation for a while; nothing if they cannot run together."""
        began = self.runner.measured_s()
        visit = Visit(group.visits, max_seconds, group.earlier, most_seconds)
        experiment, *refs = self._planned(group.cells, visit)
        sides = self.runner.under(tuple(refs), self.builds)
        try:
            result = self.runner.compare(sides, experiment, self.schedule.status)
        except BuildError:
            raise
        except AsperfError as error:
            cell, *others = group.cells
            if others:
                return []
            verdict = self._broken(cell, error, lambda: tried(self.runner, sides, experiment))
            is_judged = verdict is not None and verdict.outcome is Outcome.FAIL
            elapsed_s = _earlier_s(group, cell) + self.runner.measured_s() - began
            return [CellResult(cell, elapsed_s, verdict, None if is_judged else error)]
        group.earlier = result
        if isinstance(result, ABResult):
            found = zip(group.cells, result.by_workload, strict=True)
            self.evidence.update({cell: pairs.test.evidence_for_fail() for cell, pairs in found})
        return self._judged(group, result, self.runner.measured_s() - began)

    def not_begun(self, cell: GateCell) -> CellResult:
        """The result of a check for which no time was left."""
        verdict = self._subject(cell).verdict(
            Outcome.INCONCLUSIVE,
            RunsAsBaseline(max_seconds=self.schedule.max_seconds),
            advice=(Advice("allow more time", "max_seconds"),),
        )
        return CellResult(cell, 0.0, verdict)

    def _planned(
        self, cells: list[GateCell], visit: Visit[Any]
    ) -> tuple[PairedExperiment[Any], *tuple[ModelRef, ...]]:
        """The runner of checks that alternate, and the models that it runs."""
        (cell, *_), budget, n = cells, self.limits.budget, self.limits.comparisons
        match cell.workload:
            case GateCheck(scores_chunks=True, depth=depth):
                kinds = {str(c.workload).partition("@")[0] for c in cells}
                given = self.limits.max_kld
                limits = ScoreLimits(
                    self.limits.max_ppl_delta if "ppl" in kinds else None,
                    (given or MOST_KLD) if "kld" in kinds else None,
                    kld_grows=given is None,
                )
                experiment = PplExperiment(limits, budget.seed, n, visit, budget.beta, depth)
                return experiment, cell.ref
            case GateCheck(kind="logits", depth=depth, users=users, turns=turns):
                return LogitsExperiment(depth, users, turns), cell.ref
            case GateCheck(kind="embeddings"):
                return EmbeddingsExperiment(), cell.ref
            case GateCheck(kind="memory", depth=depth):
                return MemoryABExperiment(depth), cell.ref
            case GateCheck():
                pairing = cell.pairing or Pairing(cell.ref, None)
                n_tests = _TESTS_OF_SPECULATION * n
                refs = (pairing.target, *([pairing.draft] if pairing.draft else []))
                return SpeculationExperiment(pairing, budget, n_tests, visit), *refs
        workloads = tuple(c.workload for c in cells if isinstance(c.workload, Workload))
        elsewhere = tuple(e for other, e in self.evidence.items() if other not in cells)
        timing = SpeedExperiment(workloads, budget, n, visit, evidence_elsewhere=elsewhere)
        return timing, cell.ref

    def _judged(self, group: Turns, result: object, visit_s: float) -> list[CellResult]:
        (cell, *_), elapsed_s = group.cells, visit_s + _earlier_s(group, group.cells[0])
        match result:
            case ABResult():
                return _timed(group, result, visit_s)
            case PplComparison():
                return _of_chunks(group, result, visit_s)
            case LogitsComparison():
                verdict, interrupted, outlook = logits_verdict(result), False, None
            case EmbeddingsComparison():
                verdict, interrupted, outlook = embeddings_verdict(result), False, None
            case MemoryComparison():
                tolerance = self.limits.budget.tolerance
                verdict, interrupted, outlook = memory_verdict(result, tolerance), False, None
            case SpeculationComparison():
                n_tests = _TESTS_OF_SPECULATION * self.limits.comparisons
                verdict = speculation_verdict(result, n_tests)
                interrupted = result.speed.interrupted
                outlook = _pairs_left(result.speed.by_workload[0])
        return [CellResult(cell, elapsed_s, verdict, interrupted=interrupted, outlook=outlook)]

    def _broken(
        self, cell: GateCell, error: AsperfError, try_again: Callable[[], Tried]
    ) -> Verdict | None:
        """FAIL if only the candidate cannot run it, INVALID if it broke; None if neither can.

        Raises:
            AsperfError: neither build could be tried again.
        """
        subject = self._subject(cell)
        again = try_again() if shows_a_build(error) else Tried(())
        if again.failures and not again.remark:
            return inability(subject, again.failures)
        if not error.breaks_measurement:
            return None
        remarks = filter(None, (error.why, again.remark))
        problems = (error.what, *remarks, *(error.detail or "").splitlines())
        return judge_invalid(subject, problems, advice=error.advice, result=RunsAsBaseline())

    def _subject(self, cell: GateCell) -> Subject:
        base, candidate = (build.name for build in self.builds)
        return Subject(f"{cell.name} {cell.what} in {candidate} / {base}", "live")


def _earlier_s(group: Turns, cell: GateCell) -> float:
    """Duration of a check's earlier visits."""
    earlier = group.results.get(cell)
    return earlier.elapsed_s if earlier else 0.0


def _timed(group: Turns, result: ABResult, visit_s: float) -> list[CellResult]:
    earlier = [group.results.get(cell) for cell in group.cells]
    before_s = [r.outlook.spent_s if r and r.outlook else 0.0 for r in earlier]
    own_s = [p.elapsed_s - s for p, s in zip(result.by_workload, before_s, strict=True)]
    # Loads are of all of them.
    shared_s = max(0.0, visit_s - sum(own_s)) / len(group.cells)
    return [
        CellResult(
            cell,
            _earlier_s(group, cell) + seconds + shared_s,
            speed_verdict(pairs, result),
            note=gate_note(pairs, result),
            interrupted=result.interrupted,
            outlook=_pairs_left(pairs),
            effect=_total_change(pairs),
        )
        for cell, pairs, seconds in zip(group.cells, result.by_workload, own_s, strict=True)
    ]


def _pairs_left(timed: WorkloadPairs) -> Outlook | None:
    if timed.test.outcome is not None:
        return None
    n = len(timed.pairs)
    left = timed.test.expected_pairs_left if n else None
    return Outlook(n, "pairs", timed.elapsed_s, left, spread_of(timed), timed.examined_s)


def _of_chunks(group: Turns, result: PplComparison, visit_s: float) -> list[CellResult]:
    judged = []
    for cell in group.cells:
        is_ppl = isinstance(cell.workload, GateCheck) and cell.workload.kind == "ppl"
        test = result.test if is_ppl else result.drift
        if test is None:
            raise ValueError(f"{cell.name} was not requested")
        effect = None
        if test.n:
            effect = test.kld.estimate if isinstance(test, DriftTest) else test.estimate
        judged.append(
            CellResult(
                cell,
                _earlier_s(group, cell) + visit_s / len(group.cells),
                ppl_verdict(result) if is_ppl else kld_verdict(result),
                interrupted=result.interrupted,
                outlook=_chunks_left(test, result.elapsed_s / len(group.cells)),
                effect=effect,
            )
        )
    return judged


def _chunks_left(test: PairedPplTest | DriftTest, spent_s: float) -> Outlook | None:
    if test.outcome is not None or test.n == test.n_chunks_total:
        return None
    return Outlook(test.n, "chunks", spent_s, test.expected_chunks_left)
