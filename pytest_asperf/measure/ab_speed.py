"""Speed of two arms: randomised pairs of runs until the answer is decided.

One pair is a load of each arm, and turns of one run of each back to back, in an order that a fair
coin decides and that changes with every turn: what the machine does over a second, it does to both.
What it does to one core it does to both as well: where an arm computes on fewer cores than there
are, the two share a draw of them. A process keeps to the core it is on, and cores differ (by 1.45
times for seconds, on a virtual machine whose neighbours come and go).
Every workload has a sequential test of its own, which shares the error with the others, and is
measured until that test decides or the budget is spent.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.stats.sequential import EquivalenceTest, PairedTest
from pytest_asperf.analysis.stats.sequential_frame import BETA
from pytest_asperf.analysis.stats.total_time import (
    TotalTimeTest,
    total_log_ratio,
    typical_log_ratio,
)
from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.engine_process import usable_cores
from pytest_asperf.hardware.readiness import readiness
from pytest_asperf.measure.ab_arms import RunningArm
from pytest_asperf.measure.experiment import Visit
from pytest_asperf.measure.surroundings import Surroundings
from pytest_asperf.measure.throughput import load_is_cheap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_asperf.config.workload import Workload
    from pytest_asperf.engine_process import ContextFacts
    from pytest_asperf.measure.ab_arms import Arm, TimedArm
    from pytest_asperf.measure.experiment import MachineLease
    from pytest_asperf.measure.results import Provenance

#: Timed work of one arm in one pair: long against a scheduler's slice, short against a drift.
_RUN_NS: Final = 300_000_000
_MOST_TURNS: Final = 25


@dataclass(frozen=True, slots=True)
class Budget:
    """What a gate may cost.

    Attributes:
        tolerance: slowdown that is accepted, a fraction.
        one_limit: FAIL where the candidate is slower than that, and PASS where it is not; no zone
            between, and no total time.
        both_sides: PASS only where it is not faster by more than that either.
        max_pairs: pairs after which it gives up.
        max_seconds: seconds of each workload after which it begins no further pair.
        seed: of the coin.
        min_pairs: pairs before which nothing is decided; with as many as `max_pairs` their number
            is fixed.
        beta: bound on a wrong PASS of each workload.
    """

    tolerance: float
    max_pairs: int
    max_seconds: float
    seed: int
    min_pairs: int = 5
    one_limit: bool = False
    both_sides: bool = False
    beta: float = BETA

    @property
    def is_gate(self) -> bool:
        """Whether only a slowdown is looked for, beyond a tolerance."""
        return not (self.one_limit or self.both_sides)


@dataclass(frozen=True, slots=True)
class Pair:
    """One finished pair of one workload.

    Attributes:
        baseline_runs_ns: times of the baseline's runs, by turn.
        candidate_runs_ns: the same of the candidate's.
        candidate_first: whether the candidate ran first in the first turn, by coin. The order
            changes with every turn.
    """

    baseline_runs_ns: tuple[int, ...]
    candidate_runs_ns: tuple[int, ...]
    candidate_first: bool

    @property
    def in_turn_ns(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Times of the runs that began a turn, and of those that ended it."""
        turns = [
            run if number % 2 != self.candidate_first else run[::-1]
            for number, run in enumerate(
                zip(self.candidate_runs_ns, self.baseline_runs_ns, strict=True)
            )
        ]
        return tuple(first for first, _ in turns), tuple(second for _, second in turns)

    @property
    def log_ratio(self) -> float:
        """ln(candidate / baseline), the median of the turns; above 0 the candidate is slower.

        Two runs back to back share what the machine does; the median leaves out a turn in which it
        did something to one of them.
        """
        return typical_log_ratio(self.baseline_runs_ns, self.candidate_runs_ns)

    @property
    def total_log_ratio(self) -> float:
        """ln(candidate / baseline) of the time that all turns took, in which slow runs count."""
        return total_log_ratio(self.baseline_runs_ns, self.candidate_runs_ns)


@dataclass(slots=True)
class WorkloadPairs:
    """One workload's pairs so far, and its test.

    Attributes:
        workload: what is timed.
        test: decides.
        pairs: in the order they ran.
        elapsed_s: time that its runs took.
    """

    workload: Workload
    test: PairedTest
    pairs: list[Pair]
    elapsed_s: float = 0.0

    def add(self, pair: Pair) -> None:
        """Take a pair and let the test see it."""
        self.pairs.append(pair)
        if isinstance(self.test, TotalTimeTest):
            self.test.update(pair.log_ratio, pair.total_log_ratio)
        else:
            self.test.update(pair.log_ratio)

    @property
    def arms_ns(self) -> tuple[list[int], list[int]]:
        """Times of all runs of the baseline, and of the candidate."""
        base = [ns for pair in self.pairs for ns in pair.baseline_runs_ns]
        return base, [ns for pair in self.pairs for ns in pair.candidate_runs_ns]


@dataclass(frozen=True, slots=True)
class ABResult:
    """The pairs of two arms.

    Attributes:
        by_workload: in the order asked for.
        reloads: whether each pair began with a load of each arm.
        draws_cores: whether each pair ran on a draw of the cores, the same for both arms.
        budget: what it could cost.
        ran: proof of path of each arm, baseline first.
        same_tokens: whether both arms were fed the same tokens.
        interrupted: whether it was stopped from outside.
        surroundings: what it ran in.
    """

    by_workload: tuple[WorkloadPairs, ...]
    reloads: bool
    draws_cores: bool
    budget: Budget
    ran: tuple[Provenance, Provenance]
    same_tokens: bool
    interrupted: bool = False
    surroundings: Surroundings = field(default_factory=Surroundings)

    @property
    def covers(self) -> str:
        """Which variance the intervals cover, in words."""
        cores = "draws of the cores, " if self.draws_cores else ""
        return cores + ("loads and runs" if self.reloads else "runs of one load each, not loads")


@dataclass(frozen=True, slots=True)
class SpeedExperiment:
    """Times workloads of one model in pairs of two arms.

    Attributes:
        workloads: what is timed.
        budget: what it may cost.
        comparisons: tests that share the error of a FAIL, these workloads among them.
        visit: continues the pairs of an earlier one.
    """

    workloads: tuple[Workload, ...]
    budget: Budget
    comparisons: int = 1
    visit: Visit[ABResult] = field(default_factory=Visit)

    def run(self, lease: MachineLease) -> ABResult:
        """Time the pairs; every K-th gate of a machine is preceded by a self-check.

        Raises:
            EngineError: an arm died or refused: what it was measuring is not decided but broken.
        """
        (base,), (candidate,) = lease.sides
        every = None if self.visit.number else lease.self_check_every
        if every is not None and self.budget.is_gate and lease.noise().count_gate() % every == 0:
            self._check_itself(lease, base)
        return time_pairs(lease, _opening(lease, base, candidate), self)

    def attempt(self, lease: MachineLease) -> None:
        """Run each workload once with the lease's one side."""
        ((arm,),) = lease.sides
        running = RunningArm(arm, lease.call_timeout_s, lease.corpus)
        with running.worker:
            for workload in self.workloads:
                running.run(workload, 0)

    def _check_itself(self, lease: MachineLease, base: Arm) -> None:
        """Compare the baseline with itself, and note whether that is a FAIL."""
        alone = replace(self, comparisons=len(self.workloads))
        result = time_pairs(lease, _opening(lease, base, base), alone)
        if result.interrupted:
            raise KeyboardInterrupt
        outcomes = [pairs.test.outcome_if_stopped for pairs in result.by_workload]
        lease.noise().note_self_check(failed=Outcome.FAIL in outcomes)


OpenArms = tuple["Callable[[], TimedArm]", "Callable[[], TimedArm]"]


def _opening(lease: MachineLease, *arms: Arm) -> OpenArms:
    base, candidate = (partial(RunningArm, arm, lease.call_timeout_s, lease.corpus) for arm in arms)
    return base, candidate


def time_pairs(lease: MachineLease, open_arms: OpenArms, experiment: SpeedExperiment) -> ABResult:
    """Time the pairs of two arms, with what is known of the machine's noise.

    Args:
        lease: where and how.
        open_arms: start baseline and candidate; they are ended here.
        experiment: what is timed.
    """
    conditions = readiness()
    result = run_pairs(open_arms, experiment, lease.progress)
    names = [workload.name for workload in experiment.workloads]
    surroundings = lease.noise().around(result.ran[0], names, conditions)
    return replace(result, surroundings=surroundings)


def run_pairs(
    open_arms: OpenArms, experiment: SpeedExperiment, progress: Callable[[str, int, int], None]
) -> ABResult:
    """Run pairs of two arms until every workload is decided or the budget is spent."""
    began = time.monotonic()
    workloads, budget, visit = experiment.workloads, experiment.budget, experiment.visit
    earlier = visit.earlier.by_workload if visit.earlier else ()
    begun = {pairs.workload: pairs for pairs in earlier}
    by_workload = tuple(begun.get(w) or _no_pairs(w, experiment) for w in workloads)
    with ExitStack() as stack:
        arms: list[TimedArm] = []
        for open_arm in open_arms:
            arms.append(open_arm())
            stack.callback(arms[-1].worker.close)
        base, candidate = arms
        same_tokens = all(base.fed(w) == candidate.fed(w) for w in workloads)
        paired = _PairedRunner(base, candidate, random.Random(visit.seed(budget.seed)))  # noqa: S311  # logged
        paired.rehearse(workloads)
        for arm in arms:
            arm.ran(paired.contexts[arm])  # what is not what was asked for need not be timed
        own_deadline = time.monotonic() + budget.max_seconds * len(workloads)
        deadline = min(began + visit.max_seconds, own_deadline)
        interrupted = False
        try:
            while time.monotonic() < deadline:
                undecided = [pairs for pairs in by_workload if pairs.test.outcome is None]
                if not undecided:
                    break
                label = ", ".join(pairs.workload.name for pairs in undecided)
                progress(label, undecided[0].test.n, budget.max_pairs)
                paired.run_pair(undecided)
        except KeyboardInterrupt:
            interrupted = True
    return ABResult(
        by_workload,
        paired.reloads,
        paired.n_cores is not None,
        budget,
        (base.ran(paired.contexts[base]), candidate.ran(paired.contexts[candidate])),
        same_tokens,
        interrupted,
    )


def _no_pairs(workload: Workload, experiment: SpeedExperiment) -> WorkloadPairs:
    budget = experiment.budget
    kind: type[PairedTest] = EquivalenceTest if budget.both_sides else TotalTimeTest
    test = (PairedTest if budget.one_limit else kind)(
        budget.tolerance,
        one_limit=budget.one_limit,
        beta=budget.beta,
        min_pairs=min(budget.min_pairs, budget.max_pairs),
        max_pairs=budget.max_pairs,
        comparisons=experiment.comparisons,
    )
    return WorkloadPairs(workload, test, [])


class _PairedRunner:
    """Two arms that take turns.

    Attributes:
        reloads: whether each pair begins with a load of each arm, or each run has its own.
        n_cores: logical cores that each pair draws, None where both arms run on all of them.
        contexts: what each arm's last context resolved to.
    """

    def __init__(self, base: TimedArm, candidate: TimedArm, coin: random.Random) -> None:
        self._base = base
        self._candidate = candidate
        self._coin = coin
        self._turns_done = 0
        self._turns: dict[Workload, int] = {}
        self._usable_cores = usable_cores()
        # Of the others each run has a load and a warm-up of its own.
        self._kept = [arm for arm in (base, candidate) if not arm.loaded.loads_each_run]
        self.reloads = not self._kept
        self.n_cores: int | None = None
        self.contexts: dict[TimedArm, ContextFacts] = {}

    def rehearse(self, workloads: Sequence[Workload]) -> None:
        """Run everything once uncounted, and decide turns and reloads from how long it takes."""
        arms = (self._base, self._candidate)
        for workload in workloads:
            for arm in arms:
                self._time(arm, workload)
            slowest_ns = max(self._turn_ns(arm, workload) for arm in arms)
            self._turns[workload] = min(_MOST_TURNS, max(1, round(_RUN_NS / slowest_ns)))
        if self._kept:
            self.reloads = load_is_cheap(1e9 * max(arm.reload() for arm in self._kept), _RUN_NS)
        self.n_cores = self._fewest_cores()

    def run_pair(self, undecided: Sequence[WorkloadPairs]) -> None:
        """Run one pair of every undecided workload."""
        order = [self._base, self._candidate]
        if self._coin.random() < 0.5:
            order.reverse()
        if self.n_cores is not None:
            cores = self._coin.sample(self._usable_cores, self.n_cores)
            for arm in order:
                arm.worker.confine(cores)
        if self.reloads:
            for arm in order:
                if arm in self._kept:
                    arm.reload()
        for pairs in undecided:
            began = time.monotonic()
            pair = self._run_turns(pairs.workload, order)
            pairs.elapsed_s += time.monotonic() - began
            pairs.add(pair)

    def _fewest_cores(self) -> int | None:
        """Cores that suffice for either arm; None where one needs all of them, or a device."""
        wanted = 0
        for arm in (self._base, self._candidate):
            threads = self.contexts[arm].threads
            if arm.loaded.layers_offloaded or threads is None:
                return None
            wanted = max(wanted, threads)
        return wanted if wanted < len(self._usable_cores) else None

    def _run_turns(self, workload: Workload, order: list[TimedArm]) -> Pair:
        for arm in order:
            if arm in self._kept:
                self._time(arm, workload)  # the load's warm-up
        times_ns: dict[TimedArm, list[int]] = {arm: [] for arm in order}
        for number in range(self._turns[workload]):
            for arm in order if number % 2 == 0 else reversed(order):
                times_ns[arm].append(self._time(arm, workload))
            self._turns_done += 1
        return Pair(
            tuple(times_ns[self._base]),
            tuple(times_ns[self._candidate]),
            candidate_first=order[0] is self._candidate,
        )

    def _turn_ns(self, arm: TimedArm, workload: Workload) -> int:
        """Time of one turn of an arm, with the load where each run has its own."""
        began_ns = time.perf_counter_ns()
        run_ns = self._time(arm, workload)
        return time.perf_counter_ns() - began_ns if arm not in self._kept else run_ns

    def _time(self, arm: TimedArm, workload: Workload) -> int:
        run = arm.run(workload, self._turns_done)
        self.contexts[arm] = run.context
        return run.elapsed_ns
