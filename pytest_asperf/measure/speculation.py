"""Speculation against the target alone, in two builds, and with the draft on another machine.

A pair is the whole suite of prompts in both variants. On each prompt they run back to back, in
random order; the rest is as in a gate. If one build is compared with itself without the draft, the
cost of a step is timed once in every pair, so that a prediction and its outcome come from the same
minutes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.stats.sequential import PairedTest, log_cost_ratio
from pytest_asperf.config.engines import SERVER_ENGINES
from pytest_asperf.config.progress import SoFar
from pytest_asperf.config.workload import Workload
from pytest_asperf.measure.ab_speed import Budget, SpeedExperiment
from pytest_asperf.measure.drafted_target import DraftedTarget, DraftingServer
from pytest_asperf.measure.experiment import MachineLease, Visit, shown
from pytest_asperf.measure.running_arms import ArmCache, arm_caches
from pytest_asperf.measure.running_build import open_together
from pytest_asperf.measure.speculation_result import (
    Counts,
    Divergence,
    PromptRun,
    SpeculationComparison,
    SpeculationResult,
    SuitePair,
)
from pytest_asperf.measure.throughput import load_is_cheap

if TYPE_CHECKING:
    from pytest_asperf.config.spec import Pairing
    from pytest_asperf.engine_process import StepCosts
    from pytest_asperf.worker.speculation import Generation

#: Costs are timed for batches of up to so many drafted tokens: the sweep for the best k.
SWEEP_K: Final = 8
#: The last rounds of each run that are timed again as single batches: fewer of them make a
#: prediction noisier.
_ROUNDS_TIMED: Final = 12
#: Times that a batch of each size is timed after the last prompt's runs.
_SWEEP_REPEATS: Final = 2


@dataclass(frozen=True, slots=True)
class GainExperiment:
    """Measures a target with its draft against the target alone.

    The gains in question (`limits`) are fractions; the tolerance of the budget is not used.
    """

    pairing: Pairing
    budget: Budget
    limits: tuple[float, ...]

    def run(self, lease: MachineLease) -> SpeculationResult:
        """Measure until the gain is shown to be above each limit or not above it.

        Ctrl-C ends it: before a pair is finished as KeyboardInterrupt, later with the finished
        pairs. An EngineError of kind `rollback` comes before anything was decoded in vain.
        """
        pairing, budget = self.pairing, self.budget
        # Only the test's interval is used, which is valid at any time; it never decides.
        test = PairedTest(min_pairs=budget.max_pairs, max_pairs=budget.max_pairs)
        pairs: list[SuitePair] = []
        divergences: tuple[Divergence, ...] = ()
        interrupted = False
        with DraftedTarget(lease.sides[0], pairing, lease) as drafted:
            suite = _Suite(drafted, budget.seed)
            suite.rehearse()
            deadline = time.monotonic() + budget.max_seconds
            try:
                while test.outcome is None and time.monotonic() < deadline:
                    so_far = SoFar(f"gain {shown(test.estimate)}" if test.n else "", "pairs")
                    lease.progress(f"speculation {pairing.label}", test.n, budget.max_pairs, so_far)
                    pair = suite.run_pair()
                    # The target alone as the candidate: its slowdown is the gain.
                    cost = log_cost_ratio(candidate=pair.alone_ns, baseline=pair.speculative_ns)
                    test.update(cost)
                    pairs.append(pair)
                    if self._is_decided(test):
                        break
                runs = [run for pair in pairs for run in pair.runs if not pairing.temperature]
                divergences = drafted.divergences(runs)
                drafted.end()
            except KeyboardInterrupt:
                if not pairs:
                    raise
                interrupted = True
            proofs = drafted.ran_both()
        return SpeculationResult(
            pairing=pairing,
            categories=tuple(category for category, _ in drafted.prompts),
            pairs=tuple(pairs),
            gain=test.estimate,
            divergences=divergences,
            contexts=drafted.contexts,
            reloads=suite.reloads,
            seed=budget.seed,
            ran=proofs,
            interrupted=interrupted,
            watched=lease.watch.seen(),
        )

    def _is_decided(self, test: PairedTest) -> bool:
        estimate = test.estimate
        return all(estimate.shown_above(x) or estimate.shown_at_most(x) for x in self.limits)


@dataclass(frozen=True, slots=True)
class PlacesExperiment:
    """Places sampled tokens, `n_tokens` at least, in the target's own distribution.

    Places are uniform on 0 … 1 where the output has that distribution. Any rule of accepting
    drafted tokens but `exact` is a mistake, to be found.
    """

    pairing: Pairing
    n_tokens: int
    seed: int
    rule: str = "exact"

    def run(self, lease: MachineLease) -> tuple[float, ...]:
        """Sample many short outputs with the draft."""
        pairing = replace(self.pairing, n_tokens=2 * (self.pairing.k + 1))
        with DraftedTarget(lease.sides[0], pairing, lease) as drafted:
            drafted.open_suite(max(pairing.k, SWEEP_K))
            places: list[float] = []
            n_prompts = len(drafted.prompts)
            each = -(-self.n_tokens // (pairing.n_tokens * n_prompts))
            for number in range(n_prompts):
                so_far = SoFar(counted="prompts")
                lease.progress(f"speculation {pairing.label}", number, n_prompts, so_far)
                seeds = [self.seed * 1_000_003 + number * each + n for n in range(each)]
                places += drafted.places(number, seeds=seeds, rule=self.rule)
        return tuple(places)


class _Suite:
    """The prompts with the draft and without it.

    `reloads` is True if each pair begins with a load.
    """

    def __init__(self, drafted: DraftedTarget, seed: int) -> None:
        self._drafted = drafted
        self._coin = random.Random(seed)  # noqa: S311  # logged, and to be repeated
        k_max = max(drafted.pairing.k, SWEEP_K)
        self._sizes = range(1, k_max + 2)
        drafted.open_suite(k_max)
        self.reloads = False

    def rehearse(self) -> None:
        """Run every variant once uncounted, and decide whether loading again is cheap."""
        drafted, began = self._drafted, time.perf_counter_ns()
        alone, speculative = (drafted.after(0, speculative=s) for s in (False, True))
        measured_ns = (time.perf_counter_ns() - began) * len(drafted.prompts)
        drafted.costs(PromptRun(0, alone, speculative, speculative_first=False), self._sizes)
        drafted.draft_alone(0)
        self.reloads = load_is_cheap(1e9 * drafted.reload_both(), measured_ns)

    def run_pair(self) -> SuitePair:
        """Run the suite in both variants."""
        if self.reloads:
            self._drafted.reload_both()
        n_prompts = len(self._drafted.prompts)
        order = self._coin.sample(range(n_prompts), n_prompts)
        # A fresh load's first run is a warm-up.
        for speculative in (False, True):
            self._generate(order[0], speculative=speculative)
        runs: list[PromptRun] = []
        costs: list[StepCosts] = []
        for number in order:
            runs.append(self._run(number))
            # Between the runs, so that a disturbance hits the costs alike.
            costs += self._costs(runs[-1])
        for size in self._sizes:
            costs.append(self._drafted.costs(runs[-1], (1 + _SWEEP_REPEATS) * [size]))
        return SuitePair(tuple(runs), reduce(add, costs), self._drafted.pairing.k)

    def _costs(self, run: PromptRun) -> tuple[StepCosts, StepCosts]:
        """Time batches of the sizes that the run's rounds had, in their order."""
        sizes = [round_.drafted + 1 for round_ in run.speculative.rounds]
        timed = self._drafted.costs(run, [sizes[0], *sizes][-1 - _ROUNDS_TIMED :])
        return timed, self._drafted.draft_alone(run.prompt)

    def _run(self, number: int) -> PromptRun:
        speculative_first = self._coin.random() < 0.5
        arms = (True, False) if speculative_first else (False, True)
        done = {arm: self._generate(number, speculative=arm) for arm in arms}
        return PromptRun(number, done[False], done[True], speculative_first)

    def _generate(self, number: int, *, speculative: bool) -> Generation:
        seed = self._coin.randrange(2**32)
        return self._drafted.after(number, speculative=speculative, seed=seed)


@dataclass(frozen=True, slots=True)
class SpeculationExperiment:
    """Speculates with one target and draft in two variants.

    Before the pairs every prompt runs once in either variant, untimed, to count acceptance; the
    candidate also generates without the draft, and its outputs are compared. Then each run pair of
    a pair is a prompt.

    Attributes:
        pairing: the pair to run; greedily, for any temperature in it.
        budget: the maximal cost.
        comparisons: tests that share the error of a FAIL, this one among them.
        visit: continues the pairs of an earlier one, whose outputs are already compared.
    """

    pairing: Pairing
    budget: Budget
    comparisons: int = 1
    visit: Visit[SpeculationComparison] = field(default_factory=Visit)

    def run(self, lease: MachineLease) -> SpeculationComparison:
        """Count accepted tokens, compare output, then time the pairs.

        Raises:
            EngineError: a process died or reported an error.
            ModelError: the draft's tokenizer is another, or a prompt cannot be used.
        """
        with arm_caches() as (base, candidate):
            opening = self._opening(lease, 0, base), self._opening(lease, 1, candidate)
            return self._compared(lease, opening)

    def _compared(
        self,
        lease: MachineLease,
        opening: tuple[Callable[[], DraftedTarget], Callable[[], DraftedTarget]],
    ) -> SpeculationComparison:
        earlier = self.visit.earlier
        workload = Workload("sd", self.pairing.n_tokens)
        visit = self.visit.of_part(earlier.speed if earlier else None)
        paired = SpeedExperiment((workload,), self.budget, self.comparisons, visit)
        if earlier is not None:
            return replace(earlier, speed=paired.decide(lease, opening))
        # In processes of their own, so that those of a pair start as fast as possible.
        base, candidate = _rehearsed(lease, opening)
        return SpeculationComparison(
            candidate.pairing,
            paired.decide(lease, opening),
            (base.counts, candidate.counts),
            candidate.categories,
            candidate.divergences,
        )

    def attempt(self, lease: MachineLease) -> None:
        """Run every prompt once, with the draft and without, in the lease's only variant."""
        with self._opening(lease, 0)() as drafted:
            _rehearse(drafted, partial(lease.progress, "sd outputs"), with_alone=True)

    def _opening(
        self, lease: MachineLease, side: int, cache: ArmCache | None = None
    ) -> Callable[[], DraftedTarget]:
        def start() -> DraftedTarget:
            pairing = replace(self.pairing, temperature=0.0)
            is_served = lease.sides[side][0].build.engine.engine in SERVER_ENGINES
            kind = DraftingServer if is_served else DraftedTarget
            drafted = kind(lease.sides[side], pairing, lease, cache)
            with drafted.ended_on_error():
                drafted.open_suite(pairing.k)
            return drafted

        return start


@dataclass(frozen=True, slots=True)
class _Rehearsal:
    """The results of one variant's suite before the pairs."""

    pairing: Pairing
    counts: Counts
    categories: tuple[str, ...]
    divergences: tuple[Divergence, ...]


def _rehearse(
    drafted: DraftedTarget, progress: Callable[[int, int], object], *, with_alone: bool
) -> _Rehearsal:
    """Run every prompt once, and count accepted tokens.

    Args:
        drafted: the running pair.
        progress: called with prompts done and prompts in all.
        with_alone: whether outputs are compared with those of the target alone.
    """
    done: list[Generation] = []
    runs: list[PromptRun] = []
    for number in range(len(drafted.prompts)):
        progress(number, len(drafted.prompts))
        done.append(drafted.after(number))
        if with_alone:
            alone = drafted.after(number, speculative=False)
            runs.append(PromptRun(number, alone, done[-1], speculative_first=True))
    counts = Counts(drafted.pairing.n_tokens, tuple((run.drafted, run.accepted) for run in done))
    categories = tuple(category for category, _ in drafted.prompts)
    return _Rehearsal(drafted.pairing, counts, categories, drafted.divergences(runs))


def _rehearsed(
    lease: MachineLease, opening: Sequence[Callable[[], DraftedTarget]]
) -> list[_Rehearsal]:
    """The results of each prompt in both variants, and in the candidate's without the draft.

    Both run at once, and the candidate, which has more to do, reports the progress.
    """
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        base, candidate = open_together(stack, opening)
        progress = partial(lease.progress, "sd outputs")
        done = (
            pool.submit(_rehearse, base, lambda *_: None, with_alone=False),
            pool.submit(_rehearse, candidate, progress, with_alone=True),
        )
        return [future.result() for future in done]
