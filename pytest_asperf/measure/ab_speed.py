"""The gate: two builds, or two settings, run in randomised pairs until the answer is decided.

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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.stats.sequential import EquivalenceTest, PairedTest
from pytest_asperf.analysis.stats.total_time import (
    TotalTimeTest,
    total_log_ratio,
    typical_log_ratio,
)
from pytest_asperf.engine_process import usable_cores
from pytest_asperf.measure.surroundings import Surroundings
from pytest_asperf.measure.throughput import load_is_cheap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_asperf.config.workload import Workload
    from pytest_asperf.engine_process import ContextFacts
    from pytest_asperf.measure.ab_arms import TimedArm
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
        max_seconds: seconds after which it begins no further pair.
        seed: of the coin.
        min_pairs: pairs before which nothing is decided; with as many as `max_pairs` their number
            is fixed.
    """

    tolerance: float
    max_pairs: int
    max_seconds: float
    seed: int
    min_pairs: int = 5
    one_limit: bool = False
    both_sides: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """One finished pair of one workload.

    Attributes:
        baseline_runs_ns: times of the baseline's runs, by turn.
        candidate_runs_ns: the same of the candidate's.
        candidate_first: the side on which the coin fell: which one began the first turn. The order
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
    """What a gate gave.

    Attributes:
        workloads_pairs: by workload, in the order asked for.
        reloads: whether each pair began with a load of each arm.
        draws_cores: whether each pair ran on a draw of the cores, the same for both arms.
        budget: what it could cost.
        ran: proof of path of each arm, baseline first.
        same_tokens: whether both arms were fed the same tokens.
        interrupted: whether it was stopped from outside.
        surroundings: what it ran in.
    """

    workloads_pairs: tuple[WorkloadPairs, ...]
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


def run_gate(
    open_sides: tuple[Callable[[], TimedArm], Callable[[], TimedArm]],
    workloads: Sequence[Workload],
    budget: Budget,
    *,
    comparisons: int,
    progress: Callable[[str, int, int], None],
) -> ABResult:
    """Hold the second side against the first.

    Args:
        open_sides: start baseline and candidate; they are ended here.
        workloads: what is timed.
        budget: what it may cost.
        comparisons: tests that share the error, these workloads among them.
        progress: told a label, pairs done and pairs at most.

    Raises:
        EngineError: an arm died or refused: what it was measuring is not decided but broken.
    """
    workloads_pairs = [_contest(workload, budget, comparisons) for workload in workloads]
    with ExitStack() as stack:
        sides: list[TimedArm] = []
        for open_side in open_sides:
            sides.append(open_side())
            stack.callback(sides[-1].worker.close)
        base, candidate = sides
        same_tokens = all(base.fed(w) == candidate.fed(w) for w in workloads)
        bout = _PairedRunner(base, candidate, random.Random(budget.seed))  # noqa: S311  # logged
        bout.rehearse(workloads)
        for side in sides:
            side.ran(bout.contexts[side])  # what is not what was asked for need not be timed
        deadline = time.monotonic() + budget.max_seconds
        interrupted = False
        try:
            while time.monotonic() < deadline:
                undecided = [c for c in workloads_pairs if c.test.outcome is None]
                if not undecided:
                    break
                label = ", ".join(c.workload.name for c in undecided)
                progress(label, undecided[0].test.n, budget.max_pairs)
                bout.run_pair(undecided)
        except KeyboardInterrupt:
            interrupted = True
    ran = (base.ran(bout.contexts[base]), candidate.ran(bout.contexts[candidate]))
    return ABResult(
        tuple(workloads_pairs),
        bout.reloads,
        bout.n_cores is not None,
        budget,
        ran,
        same_tokens,
        interrupted,
    )


def _contest(workload: Workload, budget: Budget, comparisons: int) -> WorkloadPairs:
    kind: type[PairedTest] = EquivalenceTest if budget.both_sides else TotalTimeTest
    test = (PairedTest if budget.one_limit else kind)(
        budget.tolerance,
        one_limit=budget.one_limit,
        min_pairs=min(budget.min_pairs, budget.max_pairs),
        max_pairs=budget.max_pairs,
        comparisons=comparisons,
    )
    return WorkloadPairs(workload, test, [])


class _PairedRunner:
    """The two sides taking turns.

    Attributes:
        reloads: whether each pair begins with a load of each side, or each run has its own.
        n_cores: logical cores that each pair draws, None where both sides run on all of them.
        contexts: what each side's last context resolved to.
    """

    def __init__(self, base: TimedArm, candidate: TimedArm, coin: random.Random) -> None:
        self._base = base
        self._candidate = candidate
        self._coin = coin
        self._turns_done = 0
        self._turns: dict[Workload, int] = {}
        self._usable_cores = usable_cores()
        # Of the others each run has a load and a warm-up of its own.
        self._kept = [side for side in (base, candidate) if not side.loaded.loads_each_run]
        self.reloads = not self._kept
        self.n_cores: int | None = None
        self.contexts: dict[TimedArm, ContextFacts] = {}

    def rehearse(self, workloads: Sequence[Workload]) -> None:
        """Run everything once uncounted, and decide turns and reloads from how long it takes."""
        sides = (self._base, self._candidate)
        for workload in workloads:
            for side in sides:
                self._time(side, workload)
            slowest_ns = max(self._turn_ns(side, workload) for side in sides)
            self._turns[workload] = min(_MOST_TURNS, max(1, round(_RUN_NS / slowest_ns)))
        if self._kept:
            self.reloads = load_is_cheap(1e9 * max(side.reload() for side in self._kept), _RUN_NS)
        self.n_cores = self._fewest_cores()

    def run_pair(self, workloads_pairs: Sequence[WorkloadPairs]) -> None:
        """Run one pair of every workload that is still open."""
        order = [self._base, self._candidate]
        if self._coin.random() < 0.5:
            order.reverse()
        if self.n_cores is not None:
            cores = self._coin.sample(self._usable_cores, self.n_cores)
            for side in order:
                side.worker.confine(cores)
        if self.reloads:
            for side in order:
                if side in self._kept:
                    side.reload()
        for workload_pairs in workloads_pairs:
            began = time.monotonic()
            pair = self._run_turns(workload_pairs.workload, order)
            workload_pairs.elapsed_s += time.monotonic() - began
            workload_pairs.add(pair)

    def _fewest_cores(self) -> int | None:
        """Return how many cores suffice for either side; None where it needs all, or a device."""
        wanted = 0
        for side in (self._base, self._candidate):
            threads = self.contexts[side].threads
            if side.loaded.layers_offloaded or threads is None:
                return None
            wanted = max(wanted, threads)
        return wanted if wanted < len(self._usable_cores) else None

    def _run_turns(self, workload: Workload, order: list[TimedArm]) -> Pair:
        for side in order:
            if side in self._kept:
                self._time(side, workload)  # the load's warm-up
        times_ns: dict[TimedArm, list[int]] = {side: [] for side in order}
        for number in range(self._turns[workload]):
            for side in order if number % 2 == 0 else reversed(order):
                times_ns[side].append(self._time(side, workload))
            self._turns_done += 1
        return Pair(
            tuple(times_ns[self._base]),
            tuple(times_ns[self._candidate]),
            candidate_first=order[0] is self._candidate,
        )

    def _turn_ns(self, side: TimedArm, workload: Workload) -> int:
        """Return what a turn of a side takes: where it loads for each run, that too."""
        began_ns = time.perf_counter_ns()
        run_ns = self._time(side, workload)
        return time.perf_counter_ns() - began_ns if side not in self._kept else run_ns

    def _time(self, side: TimedArm, workload: Workload) -> int:
        run = side.run(workload, self._turns_done)
        self.contexts[side] = run.context
        return run.elapsed_ns
