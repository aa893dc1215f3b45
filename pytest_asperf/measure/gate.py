"""The gate: two builds, or two settings, run in randomised pairs until the answer is decided.

One pair is a run of each arm back to back, in an order that a fair coin decides: what the machine
does over minutes, it does to both. Every workload has a sequential test of its own, which shares
the error with the others, and is measured until that test decides or the budget is spent.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.measure.arms import MODEL, Side
from pytest_asperf.measure.noise import Surroundings
from pytest_asperf.measure.throughput import load_is_cheap, time_workload, workload_tokens
from pytest_asperf.stats.sequential import PairedTest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_asperf.measure.arms import Arm
    from pytest_asperf.measure.files import LocatedModel
    from pytest_asperf.measure.results import Ran
    from pytest_asperf.spec import Workload

#: Timed work of one arm in one pair: long against a scheduler's slice, short against a drift.
_RUN_NS: Final = 300_000_000
_MOST_REPEATS: Final = 25


@dataclass(frozen=True, slots=True)
class Budget:
    """What a gate may cost.

    Attributes:
        tolerance: slowdown that is accepted, a fraction.
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


@dataclass(frozen=True, slots=True)
class Pair:
    """One finished pair of one workload.

    Attributes:
        baseline_runs_ns: times of the baseline's repeats, in the order they ran.
        candidate_runs_ns: the same of the candidate's.
        candidate_first: the side on which the coin fell.
    """

    baseline_runs_ns: tuple[int, ...]
    candidate_runs_ns: tuple[int, ...]
    candidate_first: bool

    @property
    def baseline_ns(self) -> float:
        """Time of the baseline's run, the median of its repeats."""
        return statistics.median(self.baseline_runs_ns)

    @property
    def candidate_ns(self) -> float:
        """Time of the candidate's run, the median of its repeats."""
        return statistics.median(self.candidate_runs_ns)

    @property
    def in_order_ns(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Times of the repeats, of the side that ran first and of the other."""
        sides = (self.baseline_runs_ns, self.candidate_runs_ns)
        return sides[::-1] if self.candidate_first else sides

    @property
    def log_ratio(self) -> float:
        """ln(candidate / baseline); above 0 the candidate is slower."""
        return math.log(self.candidate_ns / self.baseline_ns)


@dataclass(slots=True)
class Contest:
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


@dataclass(frozen=True, slots=True)
class Duel:
    """What a gate gave.

    Attributes:
        contests: by workload, in the order asked for.
        reloads: whether each run began with a load.
        budget: what it could cost.
        ran: proof of path of each arm, baseline first.
        interrupted: whether it was stopped from outside.
        surroundings: what it ran in.
    """

    contests: tuple[Contest, ...]
    reloads: bool
    budget: Budget
    ran: tuple[Ran, Ran]
    interrupted: bool = False
    surroundings: Surroundings = field(default_factory=Surroundings)

    @property
    def covers(self) -> str:
        """Which variance the intervals cover, in words."""
        return "loads and runs" if self.reloads else "runs of one load each, not of loads"


def run_gate(
    arms: tuple[Arm, Arm],
    model: LocatedModel,
    workloads: Sequence[Workload],
    budget: Budget,
    *,
    comparisons: int,
    text: str,
    timeout_s: float,
    progress: Callable[[str, int, int], None],
) -> Duel:
    """Hold the second arm against the first on one model file.

    Args:
        arms: baseline and candidate.
        model: the model file, the same for both.
        workloads: what is timed.
        budget: what it may cost.
        comparisons: tests that share the error, these workloads among them.
        text: the corpus that workloads are fed from.
        timeout_s: deadline of one call to an engine.
        progress: told a label, pairs done and pairs at most.

    Raises:
        EngineError: an arm died or refused: what it was measuring is not decided but broken.
    """
    contests = [_contest(workload, budget, comparisons) for workload in workloads]
    with ExitStack() as stack:
        base, candidate = sides = [Side(arm, model, timeout_s) for arm in arms]
        for side in sides:
            stack.callback(side.worker.close)
        tokens = {
            (side, w): workload_tokens(side.worker, MODEL, text, w)
            for side in sides
            for w in workloads
        }
        bout = _Bout(base, candidate, tokens, random.Random(budget.seed))  # noqa: S311  # logged
        bout.rehearse(workloads)
        for side in sides:
            side.ran(bout.contexts[side])  # what is not what was asked for need not be timed
        deadline = time.monotonic() + budget.max_seconds
        interrupted = False
        try:
            while time.monotonic() < deadline:
                undecided = [c for c in contests if c.test.outcome is None]
                if not undecided:
                    break
                label = ", ".join(c.workload.name for c in undecided)
                progress(label, undecided[0].test.n, budget.max_pairs)
                bout.run_pair(undecided)
        except KeyboardInterrupt:
            interrupted = True
    ran = (base.ran(bout.contexts[base]), candidate.ran(bout.contexts[candidate]))
    return Duel(tuple(contests), bout.reloads, budget, ran, interrupted)


def _contest(workload: Workload, budget: Budget, comparisons: int) -> Contest:
    test = PairedTest(
        budget.tolerance,
        min_pairs=min(budget.min_pairs, budget.max_pairs),
        max_pairs=budget.max_pairs,
        comparisons=comparisons,
    )
    return Contest(workload, test, [])


class _Bout:
    """The two sides taking turns.

    Attributes:
        reloads: whether each run begins with a load.
        contexts: what each side's last context resolved to.
    """

    def __init__(
        self,
        base: Side,
        candidate: Side,
        tokens: Mapping[tuple[Side, Workload], Sequence[int]],
        coin: random.Random,
    ) -> None:
        self._base = base
        self._candidate = candidate
        self._tokens = tokens
        self._coin = coin
        self._repeats: dict[Workload, int] = {}
        self.reloads = False
        self.contexts: dict[Side, dict[str, Any]] = {}

    def rehearse(self, workloads: Sequence[Workload]) -> None:
        """Run everything once uncounted, and decide repeats and reloads from how long it takes."""
        sides = (self._base, self._candidate)
        for workload in workloads:
            for side in sides:
                self._time(side, workload)
            slowest_ns = max(self._time(side, workload) for side in sides)
            self._repeats[workload] = min(_MOST_REPEATS, max(1, round(_RUN_NS / slowest_ns)))
        self.reloads = load_is_cheap(1e9 * max(side.reload() for side in sides), _RUN_NS)

    def run_pair(self, contests: Sequence[Contest]) -> None:
        """Run one pair of every workload that is still open."""
        candidate_first = self._coin.random() < 0.5
        order = [self._base, self._candidate]
        if candidate_first:
            order.reverse()
        times_ns: dict[tuple[Side, Workload], tuple[int, ...]] = {}
        for side in order:
            if self.reloads:
                side.reload()
            for contest in contests:
                began = time.monotonic()
                workload = contest.workload
                self._time(side, workload)  # the load's warm-up
                repeats = range(self._repeats[workload])
                times_ns[side, workload] = tuple(self._time(side, workload) for _ in repeats)
                contest.elapsed_s += time.monotonic() - began
        for contest in contests:
            base_ns, candidate_ns = (
                times_ns[side, contest.workload] for side in (self._base, self._candidate)
            )
            pair = Pair(base_ns, candidate_ns, candidate_first)
            contest.pairs.append(pair)
            contest.test.update(pair.log_ratio)

    def _time(self, side: Side, workload: Workload) -> int:
        run = time_workload(side.worker, MODEL, self._tokens[side, workload], workload)
        self.contexts[side] = run.context
        return run.elapsed_ns
