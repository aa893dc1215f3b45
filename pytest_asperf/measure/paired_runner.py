"""Runs two variants in pairs: decides processes, order, cores and duration.

Each pair has a new process of either variant: one process can be slow for its whole life, by the
layout of its memory or by its core, and only further processes show that. If the time does not
allow as many processes as a verdict needs, they are kept, and the verdict says so. A pair is as
short as possible: a test needs a number of pairs, and a pair longer than its noise requires wastes
time. So a pair has a few run pairs, a long generation is timed in parts, and pairs are longer only
where run pairs differ.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median, quantiles, variance
from typing import Final, Self, TypeAlias, TypeVar

import psutil

from pytest_asperf.analysis.stats.sequential import log_cost_ratio
from pytest_asperf.analysis.stats.total_time import total_log_ratio
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import ContextFacts, usable_cores
from pytest_asperf.measure.metered import MeteredRun, PhaseEnergy
from pytest_asperf.measure.results import Provenance, samples_ns
from pytest_asperf.measure.running_arms import SuiteReply, TimedArm, TimedRun
from pytest_asperf.measure.running_build import open_together
from pytest_asperf.measure.served_answers import ExaminedServers, examine_answers
from pytest_asperf.measure.timed_work import ExaminedPair, ExaminedRun

#: The result for each variant, of states or of answers.
AnyExamined: TypeAlias = "ExaminedPair | ExaminedServers"
#: Start a process of each variant, or one of both.
OpenArms = Sequence[Callable[[], TimedArm]]

Answer = TypeVar("Answer")

#: Timed work of one variant in the first pair: long compared with a scheduler's slice.
_PAIR_NS: Final = 100_000_000
#: The same in a later pair, at most; a longer run without parts is a pair by itself.
_LONGEST_PAIR_NS: Final = 500_000_000
#: Share of the time for new processes that is spent on timing them, at least.
_OPENING_SHARE: Final = 0.5
#: Run pairs of a pair. With fewer than three the median removes no disturbance.
_LEAST_TURNS: Final = 3
_MOST_TURNS: Final = 25
#: A longer run has no warm-up: the first run's extra time is small compared with it.
_WARM_BY_ITSELF_NS: Final = 1_000_000_000
#: Fewest processes of each variant, and fewest pairs, for a decision.
_LEAST_OPENED: Final = 5
#: Cores without a run on which the next processes are started meanwhile, at least, and their
#: models' share of the memory that is free, at most: 1 / `_ROOM`.
_LEAST_SPARE: Final = 2
_ROOM: Final = 2
#: A generation is timed in parts of at least so long. Neighbors of a virtual machine slow its cores
#: for about 0.1 s at a time: parts that are much shorter meet the same speed in both variants
#: (docs/benchmarks.md).
_LEAST_PART_NS: Final = 7_000_000
#: A workload of parts that lasts at most so long is examined as a whole, too.
_EXAMINED_WHOLE_NS: Final = 1_000_000_000
#: Runs of a short workload before its pairs, whose least time counts.
_REHEARSALS: Final = 3
#: A pair has as many run pairs, by the spread of those in so many pairs before, as give its median
#: a standard error of this share of the tolerance.
_PAIRS_BEFORE: Final = 5
_ERROR_OF_PAIR: Final = 0.6
#: Standard error of a median, as a multiple of that of a mean, of normal noise.
_OF_MEDIAN: Final = 1.25
_MOST_TURNS_LATER: Final = 100


@dataclass(frozen=True, slots=True)
class Pair:
    """One finished pair of one workload."""

    #: of the baseline's runs, by run pair: times in ns, or energies in nJ; or one percentile of the
    #: times of their tokens, or requests
    baseline_costs: tuple[int, ...]
    candidate_costs: tuple[int, ...]  #: of the candidate's runs, by run pair
    #: True if the candidate ran first in the first run pair, a random choice; the order alternates
    #: after that
    candidate_first: bool
    #: that the cost of a run of the baseline, and of the candidate, is divided by
    n_tokens: tuple[int, int] = (1, 1)
    parts: int = 1  #: number of parts that the workload was timed in, one per run pair
    is_renewed: bool = True  #: whether it is the first of the workload in its processes

    @property
    def log_ratios(self) -> list[float]:
        """ln(candidate / baseline) of each run pair."""
        return [
            log_cost_ratio(candidate=candidate, baseline=base) + self._log_work
            for base, candidate in zip(*self._costs, strict=True)
        ]

    @property
    def in_turn(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Costs of the first runs, and of the second runs, of all run pairs."""
        sides = zip(self.baseline_costs, self.candidate_costs, strict=True)
        turned = (
            pair[::-1] if (turn + self.candidate_first) % 2 else pair
            for turn, pair in enumerate(sides)
        )
        first, second = zip(*turned, strict=True)
        return first, second

    @property
    def log_ratio(self) -> float:
        """ln(candidate / baseline), the median of the run pairs; above 0 the candidate is slower.

        Two runs back to back share the machine's drift; the median removes a run pair in which only
        one of them was disturbed.
        """
        return median(self.log_ratios)

    @property
    def total_log_ratio(self) -> float:
        """ln(candidate / baseline) of the summed costs, in which slow runs count."""
        return total_log_ratio(*self._costs) + self._log_work

    @property
    def summed_log_ratio(self) -> float:
        """ln(candidate / baseline) of the summed costs as they are: of prompts, not of stalls."""
        base, candidate = map(math.fsum, self._costs)
        return log_cost_ratio(candidate=candidate, baseline=base)

    def figures(self, workload: Workload) -> tuple[float, float]:
        """The typical figure of the baseline and of the candidate, in the workload's unit."""
        base, candidate = map(median, self.each_figure(workload))
        return base, candidate

    def each_figure(self, workload: Workload) -> tuple[list[float], list[float]]:
        """The figures of the baseline's runs, and of the candidate's, in the workload's unit."""
        parts = self.parts if workload.is_judged_whole else 1
        base, candidate = (
            [parts * _figure(cost, n_tokens, workload) for cost in costs]
            for costs, n_tokens in zip(self._costs, self.n_tokens, strict=True)
        )
        return base, candidate

    def swapped(self) -> Pair:
        """The same runs, with the candidate as baseline."""
        return replace(
            self,
            baseline_costs=self.candidate_costs,
            candidate_costs=self.baseline_costs,
            candidate_first=not self.candidate_first,
            n_tokens=self.n_tokens[::-1],
        )

    @property
    def _costs(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.baseline_costs, self.candidate_costs

    @property
    def _log_work(self) -> float:
        base, candidate = self.n_tokens
        return math.log(base / candidate)


@dataclass(frozen=True, slots=True)
class PairLength:
    """How much of a workload a pair has."""

    parts: int  #: number of parts that a run is timed in, one per run pair
    turns: int  #: run pairs in the first pair, and the fewest in others
    most_turns: int = 1  #: run pairs in a later pair, at most, unless the first one has more
    warms_up: bool = True  #: whether an untimed run of a new process comes first

    @classmethod
    def of(cls, run_ns: float, divisible_into: int, opening_ns: float = 0.0) -> PairLength:
        """The length for a run of this time.

        Args:
            run_ns: of the slower variant.
            divisible_into: the most equal parts that a run can be timed in.
            opening_ns: start time of new processes for a pair; a pair is at least half as long.
        """
        most = min(divisible_into, int(run_ns / _LEAST_PART_NS))
        parts = max((n for n in range(1, most + 1) if divisible_into % n == 0), default=1)
        warms_up = run_ns / parts <= _WARM_BY_ITSELF_NS
        if parts == 1 and run_ns > _LONGEST_PAIR_NS:
            return cls(1, 1, warms_up=warms_up)
        fitting = round(max(_PAIR_NS, _OPENING_SHARE * opening_ns) * parts / run_ns)
        turns = min(_MOST_TURNS, max(_LEAST_TURNS, fitting))
        most = min(_MOST_TURNS_LATER, round(_LONGEST_PAIR_NS * parts / run_ns))
        return cls(parts, turns, most, warms_up)

    def turns_after(self, earlier: Sequence[Pair], tolerance: float) -> int:
        """Run pairs of the next pair: the more the run pairs of the last ones differ, the more."""
        of_pairs = [pair.log_ratios for pair in earlier[-_PAIRS_BEFORE:]]
        variances = [variance(ratios) for ratios in of_pairs if len(ratios) > 1]
        if not variances:
            return self.turns
        needed = math.ceil(fmean(variances) * (_OF_MEDIAN / (_ERROR_OF_PAIR * tolerance)) ** 2)
        return max(self.turns, min(self.most_turns, needed))

    def showing(self, workload: Workload) -> PairLength:
        """So long that a token, or a request, lies beyond the percentile that is judged."""
        if not workload.percentile:
            return self
        of_run = workload.n_counted if workload.generates else workload.users
        least = math.ceil(100 / (100 - workload.percentile) / of_run)
        return replace(self, turns=max(self.turns, least))


def _figure(cost: int, n_tokens: int, workload: Workload) -> float:
    """A run's cost, in ns or nJ, as its workload's figure: in J/token, tok/s or ms."""
    if workload.metered:
        return cost / 1e9 / n_tokens
    return 1e9 * n_tokens / cost if workload.is_rate else cost / 1e6 / n_tokens


def _most_parts(arms: Sequence[TimedArm], workload: Workload) -> int:
    """The most equal parts that the runs of all variants can be timed in."""
    return min(arm.most_parts(workload) for arm in arms)


def _tail(times_ns: Sequence[int], percentile: int) -> int:
    return round(quantiles(times_ns, n=100, method="inclusive")[percentile - 1])


@dataclass(frozen=True, slots=True)
class _Opened:
    """Processes of both variants, the stack that ends them, and their start time."""

    stack: ExitStack
    arms: tuple[TimedArm, TimedArm]
    seconds: float


def _start(opening: OpenArms, cores: Collection[int] = ()) -> _Opened:
    """Start processes of both variants, on these cores if any are named."""
    if cores and sys.platform == "linux":
        # For the calling thread, and for the processes that it starts.
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
    began, stack = time.monotonic(), ExitStack()
    opened = open_together(stack, opening)
    base, candidate = (variant for process in opened for variant in process.variants)
    return _Opened(stack, (base, candidate), time.monotonic() - began)


class PairedRunner:
    """Two variants that run alternately; a context manager that ends their processes.

    Args:
        opening: starts a process of baseline and candidate, each with its model loaded.
        coin: the random generator of orders and cores.
        tolerance: the accepted slowdown, a fraction, which decides the length of pairs.
        suite: prompts that each pair runs once; 0 if the duration of a run decides its length.

    Attributes:
        renews: whether each pair has processes of its own.
        n_cores: logical cores that each pair draws, None if both variants run on all of them.
        contexts: the settings of each variant's last context, as resolved by the engine.
        lengths: of each workload's pairs.
        phases: in which the energy of the pairs' runs was measured.
        examined: the last examination of both variants; None before.
        examined_s: its duration.
        renewal_s: seconds for which a pair waits for its processes.
    """

    def __init__(
        self, opening: OpenArms, coin: random.Random, tolerance: float, suite: int = 0
    ) -> None:
        self._opening = opening
        self._coin = coin
        self._tolerance = tolerance
        self._suite = suite
        self._usable_cores = usable_cores()
        self._stack = ExitStack()
        self._ahead = ThreadPoolExecutor(1)
        self._next: Future[_Opened] | None = None
        self.renews = self._is_used = self._is_examined = False
        self.lengths: dict[Workload, PairLength] = {}
        self._before_ns: dict[Workload, int] = {}
        self.phases: list[PhaseEnergy] = []
        self.examined: AnyExamined | None = None
        self.examined_s = self.renewal_s = 0.0
        self._opening_s = 0.0
        self._cores: tuple[int, ...] = ()
        self._open()
        try:
            # Every other run has a load and a warm-up of its own.
            self._loads_each_run = [arm.loads_each_run for arm in self.arms]
            is_served = any(arm.loaded.served for arm in self.arms)
            self.n_cores = None if is_served else self._fewest_cores()
        except BaseException:
            self._stack.close()
            raise
        two_fit = self.n_cores is not None and 2 * self.n_cores <= len(self._usable_cores)
        base, candidate = self.arms
        two_fit = two_fit and base.worker is not candidate.worker
        self._at_once = 2 if two_fit and not any(self._loads_each_run) else 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self._next is not None and not self._next.exception():
            self._next.result().stack.close()
        self._ahead.shutdown()

    def rehearse(self, workloads: Sequence[Workload], left_s: float) -> None:
        """Run everything uncounted; its duration decides the length of a pair.

        Args:
            workloads: the timed work.
            left_s: for all pairs. Processes are kept if that is too little for `_LEAST_OPENED`.
        """
        runs_ns = {}
        for workload in workloads:
            parts = _most_parts(self.arms, workload)
            self._before_ns[workload] = self._answered_before_ns(workload, parts)
            rehearse = partial(self._rehearsed_ns, workload=workload, parts=parts)
            # One meter reads the energy of both.
            of_each = map if workload.metered else self._of_each
            runs_ns[workload] = parts * max(of_each(rehearse, range(2)))
        # A server by its URL is not ours to start; of other engines each run starts a process.
        is_kept = any(arm.is_kept for arm in self.arms) or all(self._loads_each_run)
        pair_s = self._lengthen(runs_ns, self._opening_s)
        self.renews = not is_kept and _LEAST_OPENED * pair_s <= left_s
        if not self.renews:
            self._lengthen(runs_ns, 0.0)

    def _lengthen(self, runs_ns: Mapping[Workload, float], opening_s: float) -> float:
        """Set the lengths of pairs for this start time of processes; returns a pair's duration."""
        pair_ns = 1e9 * opening_s
        for workload, run_ns in runs_ns.items():
            parts = _most_parts(self.arms, workload)
            before_ns = self._before_ns[workload]
            length = PairLength.of(run_ns, parts, 1e9 * opening_s + before_ns).showing(workload)
            if self._suite:
                length = PairLength(1, self._suite)
            # The requests before a workload are part of its warm-up.
            length = replace(length, warms_up=length.warms_up or before_ns > 0)
            self.lengths[workload] = length
            pair_ns += 2 * (length.turns + length.warms_up) * run_ns / length.parts + before_ns
        return pair_ns / 1e9

    def begin_pair(self) -> None:
        """Start the next pair's processes, if those before ran one, and draw its cores."""
        if self.renews and self._is_used:
            self._open()
        self._is_used = True
        if self.n_cores is not None:
            self._cores = tuple(self._coin.sample(self._usable_cores, self.n_cores))
        self._confine(self._cores)
        if self.renews and (spare := self._spare_cores()):
            self._next = self._ahead.submit(_start, self._opening, spare)
        waits = self.renews and self._next is None
        self.renewal_s = self._opening_s if waits else 0.0

    def run_turns(
        self, workload: Workload, earlier: Sequence[Pair], *, alone: bool, examines: bool = False
    ) -> Pair:
        """Run one workload's run pairs of the pair; a random choice decides which variant begins.

        Args:
            workload: the timed work.
            earlier: its pairs so far.
            alone: whether no other workload runs in this pair.
            examines: whether both variants are examined after a random one of the run pairs.
        """
        order, length = [0, 1], self.lengths[workload]
        if self._coin.random() < 0.5:
            order.reverse()
        first = sum(len(pair.baseline_costs) for pair in earlier)
        is_renewed = workload not in self._warm
        warm_up = partial(self._warm_up, workload=workload, turn=first, parts=length.parts)
        needs_warm_up = is_renewed or not alone or self._is_examined
        self._warm.add(workload)
        n_turns = length.turns_after(earlier, self._tolerance)
        examined_turn = self._coin.randrange(n_turns) if examines else None
        costs: tuple[list[int], list[int]] = [], []
        n_tokens = [1, 1]
        for number in range(n_turns):
            if length.warms_up and (needs_warm_up or self._is_examined):
                self._prepare(order, warm_up)
            needs_warm_up = self._is_examined = False
            # In alternation, so that drift hits both variants.
            for side in order if number % 2 == 0 else reversed(order):
                if not self._loads_each_run[side]:
                    self.arms[side].settle(workload, first + number, length.parts)
                run = self._run(side, workload, first + number, length.parts)
                costs[side].extend(self._costs(run, workload))
                n_tokens[side] = self.arms[side].own(workload).n_compared(run.n_tokens)
            self.arms[0].end_turn(first + number)
            if number == examined_turn:
                lasts_ns = length.parts * max(own[-1] for own in costs)
                is_short = length.parts > 1 and lasts_ns <= _EXAMINED_WHOLE_NS
                began = time.monotonic()
                self.examined = self._examine(workload, length.parts if is_short else 1)
                self.examined_s = time.monotonic() - began
        base, candidate = costs
        if workload.percentile:
            base, candidate = ([_tail(each, workload.percentile)] for each in costs)
        return Pair(
            tuple(base),
            tuple(candidate),
            candidate_first=order[0] == 1,
            n_tokens=(n_tokens[0], n_tokens[1]),
            parts=length.parts,
            is_renewed=is_renewed or all(self._loads_each_run),
        )

    def _examine(self, workload: Workload, parts: int) -> AnyExamined | None:
        """Examine the state that each variant's last run left, at the same positions.

        It is the state after so many parts. If both are servers, their answers are examined.
        """
        if workload.kind != "sd" and all(arm.loaded.served for arm in self.arms):
            return examine_answers(self.arms, workload, self._coin, others=self.lengths)
        seed = self._coin.getrandbits(32)

        def examine(side: int) -> ExaminedRun | None:
            # The same positions in both.
            return self.arms[side].examine_last(random.Random(seed), parts)  # noqa: S311

        self._is_examined = True  # the next runs find no memory that they could go on with
        if self._at_once > 1:
            self._confine(self._usable_cores)
        base, candidate = self._of_each(examine, range(2))
        self._confine(self._cores)
        return base, candidate

    def ran(self) -> tuple[Provenance, Provenance]:
        """The run record of each variant, as its last run's context resolved.

        Raises:
            MeasurementError: the engine did not run as requested.
        """
        base, candidate = (
            arm.ran(context) for arm, context in zip(self.arms, self.contexts, strict=True)
        )
        return base, candidate

    def _open(self) -> None:
        """Start processes of both variants, instead of the present ones."""
        self._stack.close()
        opened = _start(self._opening) if self._next is None else self._next.result()
        self._stack, self.arms, self._opening_s = opened.stack, opened.arms, opened.seconds
        self._next = None
        self.contexts: list[ContextFacts | None] = [None, None]
        self._warm: set[Workload] = set()
        self._is_used = False

    def _spare_cores(self) -> set[int]:
        """Cores on which the next processes can be started during a pair; none if too few.

        Nor where memory is too small for two more copies of the model.
        """
        spare = set(self._usable_cores).difference(self._cores) if self._cores else set()
        if len(spare) < _LEAST_SPARE:
            return set()
        size_bytes = sum(arm.loaded.size_bytes for arm in self.arms)
        return spare if _ROOM * size_bytes <= psutil.virtual_memory().available else set()

    def _prepare(self, sides: Sequence[int], do: Callable[[int], object]) -> None:
        """Do untimed work in variants that keep their model."""
        if self._at_once > 1:
            self._confine(self._usable_cores)
        self._of_each(do, [side for side in sides if not self._loads_each_run[side]])
        if self._at_once > 1:
            self._confine(self._cores)

    def _of_each(self, do: Callable[[int], Answer], sides: Sequence[int]) -> list[Answer]:
        """Run a function in both variants, at once if each has the cores that it needs."""
        with ThreadPoolExecutor(self._at_once) as pool:
            return list(pool.map(do, sides))

    def _confine(self, cores: tuple[int, ...]) -> None:
        if cores:
            for arm in self.arms:
                arm.worker.confine(cores)

    def _fewest_cores(self) -> int | None:
        """Number of cores that is enough for either variant; None if one needs all, or a device."""
        loaded = [arm.loaded for arm in self.arms]
        if any(facts.layers_offloaded or not facts.threads for facts in loaded):
            return None
        wanted = max(facts.threads for facts in loaded)
        return wanted if wanted < len(self._usable_cores) else None

    def _warm_up(self, side: int, *, workload: Workload, turn: int, parts: int) -> None:
        self.arms[side].warm_up(workload, turn, parts)

    def _answered_before_ns(self, workload: Workload, parts: int) -> int:
        """Time of both variants for the requests before a workload; 0 if there are none."""
        if not any(arm.own(workload).before for arm in self.arms):
            return 0
        began_ns = time.perf_counter_ns()
        self._of_each(partial(self._warm_up, workload=workload, turn=0, parts=parts), range(2))
        return time.perf_counter_ns() - began_ns

    def _rehearsed_ns(self, side: int, *, workload: Workload, parts: int) -> int:
        """Time of one run of a variant, with the load if each run has its own."""
        if workload.depth and not self._loads_each_run[side]:
            self.arms[side].settle(workload, 0, parts)  # as before a run

        def run() -> int:
            began_ns = time.perf_counter_ns()
            run_ns = self._run(side, workload, 0, parts).elapsed_ns
            return time.perf_counter_ns() - began_ns if self._loads_each_run[side] else run_ns

        run_ns = run()
        # The first run of a context is slower, and any can be disturbed. That hardly changes the
        # pairs of longer whole runs.
        if run_ns < (2 * _PAIR_NS if parts > 1 else _PAIR_NS):
            run_ns = min(run() for _ in range(_REHEARSALS))
        return run_ns

    def _costs(self, run: TimedRun, workload: Workload) -> list[int]:
        """The cost of a counted run; for a percentile, of each of its tokens or requests."""
        if isinstance(run, MeteredRun):
            self.phases.append(run.phase)
            return [run.energy_nj]
        if not workload.percentile or isinstance(run, SuiteReply):
            return [run.elapsed_ns]
        return samples_ns(run, workload)

    def _run(self, side: int, workload: Workload, turn: int, parts: int) -> TimedRun:
        run = self.arms[side].run(workload, turn, parts)
        self.contexts[side] = run.context
        return run
