"""Speculation against the target alone, in two builds, and with the draft on another machine.

A pair is the whole suite of prompts in both variants. On each prompt they run back to back, in
random order; the rest is as in a gate. If one build is compared with itself without the draft, the
cost of a step is timed once in every pair, so that a prediction and its outcome come from the same
minutes.
"""

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import Final

from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.stats.sequential import PairedTest, log_cost_ratio
from pytest_asperf.config.progress import SoFar
from pytest_asperf.config.spec import Pairing
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import StepCosts
from pytest_asperf.measure.ab_speed import Budget, SpeedExperiment
from pytest_asperf.measure.drafted_target import DraftedTarget, start_drafted
from pytest_asperf.measure.experiment import MachineLease, Visit, shown
from pytest_asperf.measure.feeding import read_prompts
from pytest_asperf.measure.running_arms import ArmCache, arm_caches
from pytest_asperf.measure.running_build import open_together
from pytest_asperf.measure.speculation_result import (
    Counts,
    Divergence,
    PromptRun,
    RemoteDraftingResult,
    SpeculationComparison,
    SpeculationResult,
    SuitePair,
)
from pytest_asperf.measure.throughput import load_is_cheap
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
        pairing, seed = self.pairing, self.budget.seed
        with DraftedTarget(lease.sides[0], pairing, lease) as drafted:
            suite = _Suite(drafted, seed)
            suite.rehearse()
            label = f"speculation {pairing.label}"
            pairs, gain, interrupted = _timed_pairs(
                lease, label, self.budget, suite.run_pair, self._is_decided
            )
            divergences: tuple[Divergence, ...] = ()
            if not interrupted:
                runs = [run for pair in pairs for run in pair.runs if not pairing.temperature]
                divergences = drafted.divergences(runs)
                drafted.end()
            proofs = drafted.ran_both()
        return SpeculationResult(
            pairing=pairing,
            categories=tuple(category for category, _ in drafted.prompts),
            pairs=pairs,
            gain=gain,
            divergences=divergences,
            contexts=drafted.contexts,
            reloads=suite.reloads,
            seed=seed,
            ran=proofs,
            interrupted=interrupted,
            watched=lease.watch.seen(),
        )

    def _is_decided(self, gain: Estimate) -> bool:
        return all(gain.shown_above(x) or gain.shown_at_most(x) for x in self.limits)


@dataclass(frozen=True, slots=True)
class RemoteDraftingExperiment:
    """Times a pairing, greedily, with its draft here and on another machine.

    Each variant has a process, as a server serves one client. All pairs or all seconds of the
    budget are used, independent of the results, so that each interval is valid.
    """

    here: Pairing
    there: Pairing
    budget: Budget

    def run(self, lease: MachineLease) -> RemoteDraftingResult:
        """Time the pairs."""
        coin = random.Random(self.budget.seed)  # noqa: S311  # logged
        with ExitStack() as stack:
            sides = zip(lease.sides, (self.here, self.there), strict=True)
            here, there = (stack.enter_context(start_drafted(*side, lease)) for side in sides)
            for arm in (here, there):
                arm.after(0)

            def run_pair() -> SuitePair:
                order = coin.sample(range(len(here.prompts)), len(here.prompts))
                runs = tuple(_in_turns(coin, number, (here.after, there.after)) for number in order)
                return SuitePair(runs, StepCosts({}, {}), self.here.k)

            label = f"draft there {self.here.label}"
            pairs, _, interrupted = _timed_pairs(
                lease, label, self.budget, run_pair, lambda _: False
            )
            if interrupted:
                raise KeyboardInterrupt
            there.end()
            return RemoteDraftingResult(pairs, there.ran_both())


def _timed_pairs(
    lease: MachineLease,
    label: str,
    budget: Budget,
    run_pair: Callable[[], SuitePair],
    is_decided: Callable[[Estimate], bool],
) -> tuple[tuple[SuitePair, ...], Estimate, bool]:
    """Run pairs of a suite, one at least, until the gain is decided or the budget is spent.

    Gives also the gain, and whether Ctrl-C ended it after a finished pair.
    """
    # Only the test's interval is used, which is valid at any time; it never decides.
    test = PairedTest(min_pairs=budget.max_pairs, max_pairs=budget.max_pairs)
    pairs: list[SuitePair] = []
    interrupted = False
    deadline = time.monotonic() + budget.max_seconds
    try:
        while not pairs or (test.outcome is None and time.monotonic() < deadline):
            so_far = SoFar(f"gain {shown(test.estimate)}" if pairs else "", "pairs")
            lease.progress(label, test.n, budget.max_pairs, so_far)
            pair = run_pair()
            # The first variant as the candidate: its slowdown is the gain of the second.
            test.update(log_cost_ratio(candidate=pair.alone_ns, baseline=pair.speculative_ns))
            pairs.append(pair)
            if is_decided(test.estimate):
                break
    except KeyboardInterrupt:
        if not pairs:
            raise
        interrupted = True
    return tuple(pairs), test.estimate, interrupted


def _in_turns(
    coin: random.Random, number: int, variants: Sequence[Callable[[int], Generation]]
) -> PromptRun:
    """Run both variants on a prompt, back to back in random order."""
    order = (1, 0) if coin.random() < 0.5 else (0, 1)
    done = {arm: variants[arm](number) for arm in order}
    return PromptRun(number, done[0], done[1], speculative_first=order[0] == 1)


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
        variants = [partial(self._generate, speculative=s) for s in (False, True)]
        runs: list[PromptRun] = []
        costs: list[StepCosts] = []
        for number in order:
            runs.append(_in_turns(self._coin, number, variants))
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
        earlier = self.visit.earlier
        workload = Workload("sd", self.pairing.n_tokens)
        visit = self.visit.of_part(earlier.speed if earlier else None)
        paired = SpeedExperiment((workload,), self.budget, self.comparisons, visit)
        with arm_caches() as (base, candidate):
            opening = self._opening(lease, 0, base), self._opening(lease, 1, candidate)
            if earlier is not None:
                return replace(earlier, speed=paired.decide(lease, opening))
            # In processes of their own, so that those of a pair start as fast as possible.
            counts, divergences = _rehearsed(lease, opening)
            speed = paired.decide(lease, opening)
        categories = tuple(category for category, _ in read_prompts(self.pairing.prompts))
        return SpeculationComparison(self._greedy, speed, counts, categories, divergences)

    def attempt(self, lease: MachineLease) -> None:
        """Run every prompt once, with the draft and without, in the lease's only variant."""
        with self._opening(lease, 0)() as drafted:
            _rehearse(drafted, partial(lease.progress, "sd outputs"), with_alone=True)

    @property
    def _greedy(self) -> Pairing:
        return replace(self.pairing, temperature=0.0)

    def _opening(
        self, lease: MachineLease, side: int, cache: ArmCache | None = None
    ) -> Callable[[], DraftedTarget]:
        return partial(start_drafted, lease.sides[side], self._greedy, lease, cache)


def _rehearse(
    drafted: DraftedTarget, progress: Callable[[int, int], object], *, with_alone: bool
) -> tuple[Counts, tuple[Divergence, ...]]:
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
    return counts, drafted.divergences(runs)


def _rehearsed(
    lease: MachineLease, opening: Sequence[Callable[[], DraftedTarget]]
) -> tuple[tuple[Counts, Counts], tuple[Divergence, ...]]:
    """The counts of both variants, and where the candidate's outputs with and without draft part.

    Both run at once, and the candidate, which has more to do, reports the progress.
    """
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        base, candidate = open_together(stack, opening)
        progress = partial(lease.progress, "sd outputs")
        of_base = pool.submit(_rehearse, base, lambda *_: None, with_alone=False)
        counts, divergences = pool.submit(_rehearse, candidate, progress, with_alone=True).result()
        return (of_base.result()[0], counts), divergences
