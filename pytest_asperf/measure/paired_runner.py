"""Runs two arms in pairs: which of them begins, from which loads, on which cores, for how long.

A pair is as short as it can be: a test needs a number of coins, and the time that a pair takes
beyond what its noise asks for is lost. So a pair has a few turns, a long generation is timed in
parts, and only pairs of a test that stays undecided grow.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from statistics import quantiles
from typing import TYPE_CHECKING, Final, TypeVar

from pytest_asperf.analysis.stats.total_time import total_log_ratio, typical_log_ratio
from pytest_asperf.engine_process import usable_cores
from pytest_asperf.measure.metered import MeteredRun
from pytest_asperf.measure.results import samples_ns
from pytest_asperf.measure.throughput import load_is_cheap

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from pytest_asperf.config.workload import Workload
    from pytest_asperf.engine_process import ContextFacts, RawRun
    from pytest_asperf.measure.metered import PhaseEnergy
    from pytest_asperf.measure.running_arms import TimedArm

Answer = TypeVar("Answer")

#: Timed work of one arm in a pair: long against a scheduler's slice.
_PAIR_NS: Final = 100_000_000
#: Turns of a pair. With fewer than four the median hides no disturbance and no slow minority.
_LEAST_TURNS: Final = 4
_MOST_TURNS: Final = 25
#: A run that takes longer and has no parts is a pair by itself.
_LONG_RUN_NS: Final = 200_000_000
#: A generation is timed in at most so many parts of at least so many tokens.
_MOST_PARTS: Final = 16
_LEAST_PART: Final = 8
#: After each so many pairs a pair has as many turns more as the first had.
_PAIRS_OF_A_LENGTH: Final = 10


@dataclass(frozen=True, slots=True)
class Pair:
    """One finished pair of one workload.

    Attributes:
        baseline_costs: of the baseline's runs, by turn: times in ns, or energies in nJ; or one
            percentile of the times of their tokens, or requests.
        candidate_costs: the same of the candidate's.
        candidate_first: whether the candidate ran first in every turn, by coin.
        n_tokens: counted in a run of the baseline and of the candidate, where a cost is that of a
            token.
        parts: that the workload was timed in, one a turn.
    """

    baseline_costs: tuple[int, ...]
    candidate_costs: tuple[int, ...]
    candidate_first: bool
    n_tokens: tuple[int, int] = (1, 1)
    parts: int = 1

    @property
    def in_turn(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Costs of the runs that began a turn, and of those that ended it."""
        if self.candidate_first:
            return self.candidate_costs, self.baseline_costs
        return self.baseline_costs, self.candidate_costs

    @property
    def log_ratio(self) -> float:
        """ln(candidate / baseline), the median of the turns; above 0 the candidate is slower.

        Two runs back to back share what the machine does; the median leaves out a turn in which it
        did something to one of them.
        """
        return typical_log_ratio(*self._costs) + self._log_work

    @property
    def total_log_ratio(self) -> float:
        """ln(candidate / baseline) of what all turns cost, in which slow runs count."""
        return total_log_ratio(*self._costs) + self._log_work

    @property
    def _costs(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.baseline_costs, self.candidate_costs

    @property
    def _log_work(self) -> float:
        base, candidate = self.n_tokens
        return math.log(base / candidate)


@dataclass(frozen=True, slots=True)
class PairLength:
    """How much of a workload a pair has.

    Attributes:
        parts: that a run is timed in, one a turn.
        turns: of one of the first pairs.
    """

    parts: int
    turns: int

    @classmethod
    def of(cls, run_ns: float, divisible_into: int) -> PairLength:
        """The length for a run of this time.

        Args:
            run_ns: of the slower arm.
            divisible_into: the most equal parts that a run can be timed in.
        """
        most = min(divisible_into, int(run_ns * _LEAST_TURNS / _PAIR_NS))
        parts = max((n for n in range(1, most + 1) if divisible_into % n == 0), default=1)
        if parts == 1 and run_ns > _LONG_RUN_NS:
            return cls(1, 1)
        fitting = round(_PAIR_NS * parts / run_ns)
        return cls(parts, min(_MOST_TURNS, max(_LEAST_TURNS, fitting)))

    def turns_of(self, pairs_before: int) -> int:
        """Turns of a pair; a test that many pairs did not decide needs longer ones."""
        if self.turns == 1:
            return 1
        longer = min(_MOST_TURNS, self.turns * (1 + pairs_before // _PAIRS_OF_A_LENGTH))
        return max(self.turns, longer)

    def showing(self, workload: Workload) -> PairLength:
        """So long that a token, or a request, lies beyond the percentile that is judged."""
        if not workload.percentile:
            return self
        of_run = workload.n_counted if workload.generates else workload.users
        least = math.ceil(100 / (100 - workload.percentile) / of_run)
        return replace(self, turns=max(self.turns, least))


def most_parts(workload: Workload) -> int:
    """The most equal parts that a workload's run can be timed in."""
    if not workload.generates or workload.metered or workload.percentile:
        return 1
    most = min(_MOST_PARTS, workload.n_tokens // _LEAST_PART)
    return max((n for n in range(1, most + 1) if workload.n_tokens % n == 0), default=1)


def _tail(times_ns: Sequence[int], percentile: int) -> int:
    return round(quantiles(times_ns, n=100, method="inclusive")[percentile - 1])


class PairedRunner:
    """Two arms that take turns.

    Attributes:
        reloads: whether each pair begins with a load of each arm, or each run has its own.
        n_cores: logical cores that each pair draws, None where both arms run on all of them.
        contexts: what each arm's last context resolved to.
        lengths: of each workload's pairs.
        phases: in which the energy of the pairs' runs was measured.
    """

    def __init__(self, base: TimedArm, candidate: TimedArm, coin: random.Random) -> None:
        self._arms = (base, candidate)
        self._coin = coin
        self._usable_cores = usable_cores()
        # Of the others each run has a load and a warm-up of its own.
        self._kept = [arm for arm in self._arms if not arm.loaded.loads_each_run]
        # A server generates from a prompt, and does not go on where it ended.
        is_served = any(arm.loaded.served for arm in self._arms)
        self._has_parts = len(self._kept) == len(self._arms) and not is_served
        self.reloads = not self._kept
        self.n_cores = None if is_served else self._fewest_cores()
        two_fit = self.n_cores is not None and 2 * self.n_cores <= len(self._usable_cores)
        self._at_once = len(self._arms) if self._has_parts and two_fit else 1
        self.contexts: dict[TimedArm, ContextFacts] = {}
        self.lengths: dict[Workload, PairLength] = {}
        self.phases: list[PhaseEnergy] = []
        self._warm: set[Workload] = set()
        self._cores: tuple[int, ...] = ()

    def rehearse(self, workloads: Sequence[Workload]) -> None:
        """Run everything uncounted, and decide lengths and reloads from how long it takes."""
        for workload in workloads:
            parts = most_parts(workload) if self._has_parts else 1
            rehearse = partial(self._rehearsed_ns, workload=workload, parts=parts)
            # One meter reads the energy of both.
            of_each = map if workload.metered else self._of_each
            length = PairLength.of(parts * max(of_each(rehearse, self._arms)), parts)
            self.lengths[workload] = length.showing(workload)
        if self._kept:
            slowest_s = max(self._of_each(lambda arm: arm.reload(), self._kept))
            self.reloads = load_is_cheap(1e9 * slowest_s, _PAIR_NS)

    def begin_pair(self) -> None:
        """Draw the cores of the next pair, and load the models where each pair does."""
        if self.n_cores is not None:
            self._cores = tuple(self._coin.sample(self._usable_cores, self.n_cores))
        self._confine(self._cores)
        if self.reloads:
            self._prepare(self._drawn_order(), lambda arm: arm.reload())

    def run_turns(self, workload: Workload, pairs_before: int, *, alone: bool) -> Pair:
        """Run one workload's turns of the pair; its own coin decides which arm begins each turn.

        Args:
            workload: what is timed.
            pairs_before: its pairs so far.
            alone: whether no other workload runs in this pair.
        """
        order, length = self._drawn_order(), self.lengths[workload]
        first = sum(map(length.turns_of, range(pairs_before)))
        if self.reloads or not alone or workload not in self._warm:
            self._prepare(order, lambda arm: arm.warm_up(workload, first, length.parts))
        self._warm.add(workload)
        costs: dict[TimedArm, list[int]] = {arm: [] for arm in order}
        n_tokens: dict[TimedArm, int] = {}
        for number in range(length.turns_of(pairs_before)):
            # Always after the other: an arm that ran last finds warm caches.
            for arm in order:
                run = self._run(arm, workload, first + number, length.parts)
                costs[arm] += self._costs(run, workload)
                n_tokens[arm] = run.n_tokens
        if workload.percentile:
            costs = {arm: [_tail(each, workload.percentile)] for arm, each in costs.items()}
        base, candidate = self._arms
        return Pair(
            tuple(costs[base]),
            tuple(costs[candidate]),
            candidate_first=order[0] is candidate,
            n_tokens=(n_tokens[base], n_tokens[candidate]) if workload.is_rate else (1, 1),
            parts=length.parts,
        )

    def _prepare(self, order: Sequence[TimedArm], do: Callable[[TimedArm], object]) -> None:
        """Do what is not timed in arms that keep their model."""
        if self._at_once > 1:
            self._confine(self._usable_cores)
        self._of_each(do, [arm for arm in order if arm in self._kept])
        if self._at_once > 1:
            self._confine(self._cores)

    def _of_each(self, do: Callable[[TimedArm], Answer], arms: Sequence[TimedArm]) -> list[Answer]:
        """Have arms do something, at once if each has the cores that it needs."""
        with ThreadPoolExecutor(self._at_once) as pool:
            return list(pool.map(do, arms))

    def _confine(self, cores: tuple[int, ...]) -> None:
        if cores:
            for arm in self._arms:
                arm.worker.confine(cores)

    def _drawn_order(self) -> list[TimedArm]:
        order = list(self._arms)
        if self._coin.random() < 0.5:
            order.reverse()
        return order

    def _fewest_cores(self) -> int | None:
        """Cores that suffice for either arm; None where one needs all of them, or a device."""
        loaded = [arm.loaded for arm in self._arms]
        if any(facts.layers_offloaded or not facts.threads for facts in loaded):
            return None
        wanted = max(facts.threads for facts in loaded)
        return wanted if wanted < len(self._usable_cores) else None

    def _rehearsed_ns(self, arm: TimedArm, workload: Workload, parts: int) -> int:
        """Time of one turn of an arm, with the load where each run has its own."""
        began_ns = time.perf_counter_ns()
        run_ns = self._run(arm, workload, 0, parts).elapsed_ns
        # The first run of a context takes longer. What takes 0.1 s has four turns or one anyway.
        if run_ns < (_LONG_RUN_NS if parts > 1 else _PAIR_NS):
            began_ns = time.perf_counter_ns()
            run_ns = self._run(arm, workload, 0, parts).elapsed_ns
        return time.perf_counter_ns() - began_ns if arm not in self._kept else run_ns

    def _costs(self, run: RawRun | MeteredRun, workload: Workload) -> list[int]:
        """What a counted run cost; of a percentile each of its tokens, or requests."""
        if not isinstance(run, MeteredRun):
            return samples_ns(run, workload) if workload.percentile else [run.elapsed_ns]
        self.phases.append(run.phase)
        return [run.energy_nj]

    def _run(self, arm: TimedArm, workload: Workload, turn: int, parts: int) -> RawRun | MeteredRun:
        run = arm.run(workload, turn, parts)
        self.contexts[arm] = run.context
        return run
