"""Speculation against the target alone, in two builds, and with the draft on another machine.

A pair is the whole suite of prompts in both variants, back to back on each prompt, as in a
gate. If one build is compared with itself without the draft, one process runs both, and the cost of
a step is timed in every pair, so that a prediction and its outcome come from the same minutes.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from types import MappingProxyType
from typing import Final

from pytest_asperf.config.progress import NOTHING_YET, SoFar
from pytest_asperf.config.spec import Pairing
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import StepCosts
from pytest_asperf.measure.ab_speed import ABResult, Budget, SpeedExperiment, run_pairs
from pytest_asperf.measure.drafted_target import DraftedTarget, start_drafted
from pytest_asperf.measure.experiment import MachineLease, Visit
from pytest_asperf.measure.feeding import read_prompts
from pytest_asperf.measure.paired_runner import OpenArms
from pytest_asperf.measure.running_arms import ArmCache, TimedArm, arm_caches
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
    """Measures a target with its draft against the target alone, in one process.

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
        pairing, found = self.pairing, _Found()
        with arm_caches() as caches:
            opening = partial(_BothWays, lease, self, caches, found)
            done, pairs = _timed_suites(
                lease,
                f"speculation {pairing.label}",
                pairing,
                [opening],
                caches,
                budget=self.budget,
                limits=self.limits,
                costs=found.costs,
            )
            ran, contexts = tuple(caches[0].ran), dict(caches[0].contexts)
        (timed,) = done.by_workload
        return SpeculationResult(
            pairing=pairing,
            categories=tuple(category for category, _ in read_prompts(pairing.prompts)),
            pairs=pairs,
            gain=timed.test.estimate,
            divergences=tuple(found.divergences.values()),
            contexts=contexts,
            reloads=timed.is_fresh,
            seed=self.budget.seed,
            ran=ran,
            interrupted=done.interrupted,
            watched=lease.watch.seen(),
        )


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
        of_here, of_there = lease.sides
        with arm_caches() as caches:
            opening = [
                partial(start_drafted, of_there, self.there, lease, caches[0]),
                partial(start_drafted, of_here, self.here, lease, caches[1]),
            ]
            name = f"draft there {self.here.label}"
            done, pairs = _timed_suites(lease, name, self.here, opening, caches, budget=self.budget)
            if done.interrupted:
                raise KeyboardInterrupt
            return RemoteDraftingResult(pairs, tuple(caches[0].ran))


def _timed_suites(
    lease: MachineLease,
    name: str,
    pairing: Pairing,
    opening: OpenArms,
    caches: tuple[ArmCache, ArmCache],
    *,
    budget: Budget,
    limits: tuple[float, ...] = (),
    costs: Mapping[int, Sequence[StepCosts]] = MappingProxyType({}),
) -> tuple[ABResult, tuple[SuitePair, ...]]:
    """Run pairs of a suite, one at least, until the gain is decided or the budget is spent.

    The baseline is the variant that is judged: the slowdown of the candidate is its gain.
    """
    n = len(read_prompts(pairing.prompts))
    suite = SpeedExperiment((Workload("sd", pairing.n_tokens),), budget, suite=n, limits=limits)

    def progress(label: str, done: int, total: int, so_far: SoFar = NOTHING_YET) -> None:
        del label
        lease.progress(name, done, total, so_far)

    done = run_pairs(opening, suite, progress)
    (timed,) = done.by_workload
    if not timed.pairs:
        raise KeyboardInterrupt
    judged, other = (cache.replies for cache in caches)
    return done, tuple(
        SuitePair(
            tuple(
                PromptRun(
                    prompt,
                    other[number * n + prompt],
                    judged[number * n + prompt],
                    speculative_first=(prompt + pair.candidate_first) % 2 == 0,
                )
                for prompt in range(n)
            ),
            reduce(add, costs.get(number, ()), StepCosts({}, {})),
            pairing.k,
        )
        for number, pair in enumerate(timed.pairs)
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """Findings between the runs of a suite, which outlast the processes."""

    #: of single batches, by pair
    costs: defaultdict[int, list[StepCosts]] = field(default_factory=lambda: defaultdict(list))
    #: where greedy outputs diverge
    divergences: dict[tuple[int, ...], Divergence] = field(default_factory=dict)


class _BothWays(DraftedTarget):
    """A process that runs a target with its draft and alone, and times single batches between."""

    def __init__(
        self,
        lease: MachineLease,
        experiment: GainExperiment,
        caches: tuple[ArmCache, ArmCache],
        found: _Found,
    ) -> None:
        pairing, (cache, self._of_alone) = experiment.pairing, caches
        super().__init__(lease.sides[0], pairing, lease, cache)
        self.seed, self._found = experiment.budget.seed, found
        k_max = max(pairing.k, SWEEP_K)
        self._sizes = range(1, k_max + 2)
        with self.ended_on_error():
            self.open_suite(k_max)

    @property
    def variants(self) -> tuple[TimedArm, TimedArm]:
        """The target with its draft, and the same process without it."""
        alone = copy(self)
        alone.drafts, alone.left = False, self._of_alone
        return self, alone

    def end_turn(self, turn: int) -> None:
        """Time batches between the runs, so that a disturbance hits the costs alike."""
        pair, prompt = divmod(turn, len(self.prompts))
        alone, speculative = self._of_alone.replies[turn], self.left.replies[turn]
        run = PromptRun(prompt, alone, speculative, speculative_first=False)
        # Batches of the sizes that the run's rounds had, in their order.
        sizes = [round_.drafted + 1 for round_ in speculative.rounds]
        costs = self._found.costs[pair]
        costs.append(self.costs(run, [sizes[0], *sizes][-1 - _ROUNDS_TIMED :]))
        costs.append(self.draft_alone(prompt))
        if prompt == len(self.prompts) - 1:
            for size in self._sizes:
                costs.append(self.costs(run, (1 + _SWEEP_REPEATS) * [size]))
        if not self.pairing.temperature:
            self.divergences([run], self._found.divergences)


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


@dataclass(frozen=True, slots=True)
class SpeculationExperiment:
    """Speculates with one target and draft in two variants.

    Before the pairs every prompt runs once in either variant, untimed, to count acceptance; the
    candidate also generates without the draft, and its outputs are compared. Then each run pair of
    a pair is a reply to a prompt, or the next part of one.
    """

    pairing: Pairing  #: the pair to run; greedily, for any temperature in it
    budget: Budget  #: the maximal cost
    comparisons: int = 1  #: tests that share the error of a FAIL, this one among them
    #: continues the pairs of an earlier one, whose outputs are already compared
    visit: Visit[SpeculationComparison] = field(default_factory=Visit)

    def run(self, lease: MachineLease) -> SpeculationComparison:
        """Count accepted tokens, compare output, then time the pairs."""
        earlier = self.visit.earlier
        workload = Workload("sd", self.pairing.n_tokens)
        visit = self.visit.of_part(earlier.speed if earlier else None)
        paired = SpeedExperiment((workload,), self.budget, self.comparisons, visit)
        with arm_caches() as caches:
            base, candidate = caches
            opening = self._opening(lease, 0, base), self._opening(lease, 1, candidate)
            if earlier is not None:
                for cache, known in zip(caches, earlier.outputs, strict=True):
                    cache.outputs.update(known)
                return replace(earlier, speed=paired.decide(lease, opening))
            # In processes of their own, so that those of a pair start as fast as possible.
            counts, divergences = _rehearsed(lease, opening)
            speed = paired.decide(lease, opening)
        categories = tuple(category for category, _ in read_prompts(self.pairing.prompts))
        outputs = base.outputs, candidate.outputs
        return SpeculationComparison(self._greedy, speed, counts, categories, divergences, outputs)

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
    """Run every prompt once, and count accepted tokens; `with_alone`, compare the outputs too."""
    done: list[Generation] = []
    runs: list[PromptRun] = []
    for number in range(len(drafted.prompts)):
        progress(number, len(drafted.prompts))
        done.append(drafted.after(number))
        drafted.left.outputs[number] = done[-1].tokens
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
