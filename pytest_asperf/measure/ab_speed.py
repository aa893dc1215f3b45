"""Speed of two variants: randomized pairs of runs until the answer is decided.

One pair is a new process of each variant with several run pairs: one run of each, back to back, in
random order. A disturbance of a second or longer hits both. Before every run a piece of its own
work is done untimed, so that no run finds the other variant's data in the caches. If a variant
computes on fewer cores than there are, both run on the same random draw of cores: cores differ by
up to 1.45 times for seconds on a shared virtual machine. Every workload has a sequential test of
its own, and all tests share the error. A workload is measured until its test decides or the budget
is spent. If the time does not allow new processes for each pair, a FAIL of a gate must be
reproduced in fresh processes.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Final

from pytest_asperf.analysis.outcome import Decision, Outcome
from pytest_asperf.analysis.stats.noise import noise_of
from pytest_asperf.analysis.stats.ratio_test import DifferenceTest, RatioTest
from pytest_asperf.analysis.stats.sequential import PairedTest, robust_sd
from pytest_asperf.analysis.stats.sequential_frame import BETA, GATE_ALPHA
from pytest_asperf.analysis.stats.total_time import SuiteTest, TotalTimeTest
from pytest_asperf.config.progress import Progress, SoFar
from pytest_asperf.config.workload import Workload
from pytest_asperf.hardware.readiness import readiness
from pytest_asperf.measure.experiment import Arm, MachineLease, OfAnyModel, Visit, shown
from pytest_asperf.measure.loading import LoadingArm
from pytest_asperf.measure.metered import PhaseEnergy
from pytest_asperf.measure.noise import Calibration, Surroundings
from pytest_asperf.measure.paired_runner import AnyExamined, OpenArms, Pair, PairedRunner
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.running_arms import ArmCache, RunningArm, arm_caches

#: Fewest run pairs for a gate's PASS: in twelve, 3 % of gates miss that a quarter of runs is slow.
_TURNS_FOR_PASS: Final = 12


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of a gate."""

    tolerance: float  #: slowdown that is accepted, a fraction
    max_pairs: int  #: pairs after which it gives up
    max_seconds: float  #: seconds of each workload after which it begins no further pair
    seed: int  #: of the random order
    #: pairs before which nothing is decided; with as many as `max_pairs` their number is fixed
    min_pairs: int = 5
    #: Asserted limits of the ratio of costs, candidate / baseline, instead of a tolerance; 0 and
    #: infinity are no limits. Total time is not judged then.
    claim: tuple[float, float] | None = None
    #: True if the asserted limits are for the difference of both figures, in the workload's unit,
    #: and not for the ratio of costs
    of_difference: bool = False
    beta: float = BETA  #: bound on a wrong PASS of each workload

    def faster_by(self, share: float) -> Budget:
        """A budget for the assertion that the candidate's rate is higher by at least this share."""
        # Faster by a half is a cost of two thirds.
        return replace(self, claim=(0.0, 1 / (1 + share)))

    @property
    def least_gain(self) -> float:
        """The asserted gain of the candidate, a fraction of the baseline's rate."""
        _, cost = self.claim or (0.0, 1.0)
        return 1 / cost - 1

    @property
    def is_gate(self) -> bool:
        """True if only a slowdown is looked for, beyond a tolerance."""
        return self.claim is None

    @property
    def confirms(self) -> bool:
        """True if a FAIL is to be shown twice; not where the number of pairs is fixed."""
        return self.is_gate and self.min_pairs < self.max_pairs


@dataclass(slots=True)
class WorkloadPairs:
    """One workload's pairs so far, and its test."""

    workload: Workload  #: the timed work
    test: PairedTest | RatioTest  #: decides
    pairs: list[Pair]  #: in the order they ran
    elapsed_s: float = 0.0  #: duration of its runs
    #: pairs of earlier processes that showed a FAIL, which these look for again
    failed_before: WorkloadPairs | None = None
    #: number of the pair, drawn at random, in which a run of both variants is examined
    examined_after: int = 1
    examined: AnyExamined | None = None  #: the result for each variant; None before that pair
    examined_s: float = 0.0  #: duration of that, which no other pair has

    @property
    def pair_s(self) -> float:
        """Seconds of a further pair, without the start of its processes."""
        return (self.elapsed_s - self.examined_s) / max(1, len(self.pairs))

    def add(self, pair: Pair) -> None:
        """Add a pair and update the test."""
        self.take(pair)
        self.test.decide()

    def take(self, pair: Pair) -> None:
        """Add a pair, for the test's next update."""
        self.pairs.append(pair)
        if isinstance(self.test, SuiteTest):
            self.test.take(pair.summed_log_ratio)
        elif isinstance(self.test, DifferenceTest):
            base, candidate = pair.figures(self.workload)
            self.test.take_figures(baseline=base, candidate=candidate)
        elif isinstance(self.test, TotalTimeTest):
            self.test.take(pair.log_ratio, pair.total_log_ratio)
        else:
            self.test.take(pair.log_ratio)

    @property
    def n_processes(self) -> int:
        """Number of processes of either variant that ran pairs."""
        return sum(pair.is_renewed for pair in self.pairs)

    @property
    def is_fresh(self) -> bool:
        """True if each pair had processes of its own."""
        return self.n_processes == len(self.pairs)

    @property
    def is_unconfirmed(self) -> bool:
        """True if they show a FAIL of few processes that no others have shown."""
        is_fail = self.test.outcome is Decision.FAIL
        return is_fail and not self.is_fresh and self.failed_before is None

    def judged_again(self, test: PairedTest | RatioTest) -> WorkloadPairs:
        """The same pairs, looked at by another test until it is decided."""
        again = replace(self, test=test, pairs=[])
        for pair in self.pairs:
            if test.outcome is None:
                again.add(pair)
        return again

    def swapped(self) -> WorkloadPairs:
        """The same pairs, with the candidate as baseline; its test has not looked at them."""
        examined = self.examined[::-1] if self.examined else None
        return replace(self, pairs=[pair.swapped() for pair in self.pairs], examined=examined)

    def after(self, failed: WorkloadPairs) -> WorkloadPairs:
        """The same, behind pairs of other processes that showed a FAIL."""
        return replace(
            self,
            failed_before=failed,
            elapsed_s=failed.elapsed_s + self.elapsed_s,
            examined_s=failed.examined_s + self.examined_s,
        )

    @property
    def typical_ratio(self) -> float:
        """The median ratio of costs, candidate / baseline."""
        return math.exp(median(pair.log_ratio for pair in self.pairs))

    @property
    def arms_costs(self) -> tuple[list[int], list[int]]:
        """Costs of all runs of the baseline, and of the candidate."""
        base = [cost for pair in self.pairs for cost in pair.baseline_costs]
        return base, [cost for pair in self.pairs for cost in pair.candidate_costs]


@dataclass(frozen=True, slots=True)
class ABResult:
    """The pairs of two variants."""

    by_workload: tuple[WorkloadPairs, ...]  #: in the requested order
    #: True if each pair ran on a random draw of the cores, equal for both variants
    draws_cores: bool
    budget: Budget  #: its maximal cost
    ran: tuple[Provenance, Provenance]  #: run record of each variant, baseline first
    same_tokens: bool  #: True if both variants got equal tokens
    interrupted: bool = False  #: whether it was stopped from outside
    surroundings: Surroundings = field(default_factory=Surroundings)  #: its conditions
    phases: tuple[PhaseEnergy, ...] = ()  #: in which energy was measured, if it was

    def swapped(self) -> ABResult:
        """These pairs with the candidate as baseline, for another assertion."""
        by_workload = tuple(pairs.swapped() for pairs in self.by_workload)
        return replace(self, by_workload=by_workload, ran=self.ran[::-1])


@dataclass(frozen=True, slots=True)
class SpeedExperiment(OfAnyModel):
    """Times workloads of one model in pairs of two variants."""

    workloads: tuple[Workload, ...]  #: the timed work
    budget: Budget  #: the maximal cost
    comparisons: int = 1  #: tests that share the error of a FAIL, these workloads among them
    visit: Visit[ABResult] = field(default_factory=Visit)  #: continues the pairs of an earlier one
    #: for a FAIL, of tests among those that have ended
    evidence_elsewhere: tuple[float, ...] = field(default=(), kw_only=True, compare=False)
    #: prompts that each pair runs once; 0 if the duration of a run decides its length
    suite: int = field(default=0, kw_only=True)
    #: of a suite's gain, until each of which is decided
    limits: tuple[float, ...] = field(default=(), kw_only=True)

    @property
    def timed(self) -> tuple[Workload, ...]:
        """The workloads."""
        return self.workloads

    def run(self, lease: MachineLease) -> ABResult:
        """Time the pairs; every K-th gate of a machine is preceded by a self-check."""
        (base,), (candidate,) = lease.sides
        every = None if self.visit.number else lease.plan.self_check_every
        if every is not None and self.budget.is_gate and lease.noise().count_gate() % every == 0:
            self._check_itself(lease, base)
        with self._opened_each_time(lease, base, candidate) as opening:
            return self.decide(lease, opening)

    def decide(self, lease: MachineLease, opening: OpenArms) -> ABResult:
        """Time the pairs; look for a gate's FAIL of few processes again in others."""
        budget, began = self.budget, time.monotonic()
        first = time_pairs(lease, opening, self)
        failed = {p.workload: p for p in first.by_workload if p.is_unconfirmed}
        if not failed or first.interrupted or not budget.confirms:
            return first
        others = (p.test.evidence_for_fail() for p in first.by_workload if p.workload not in failed)
        confirming = replace(
            self,
            workloads=tuple(failed),
            budget=replace(budget, seed=budget.seed + 1),
            visit=self.visit.of_part(spent_s=time.monotonic() - began),
            evidence_elsewhere=(*self.evidence_elsewhere, *others),
        )
        second = time_pairs(lease, opening, confirming)
        again = {p.workload: p.after(failed[p.workload]) for p in second.by_workload}
        return replace(
            second,
            by_workload=tuple(again.get(p.workload, p) for p in first.by_workload),
            budget=budget,
            phases=(*first.phases, *second.phases),
        )

    def test_of(self, turns: int, unit: str) -> PairedTest | RatioTest:
        """The test of a workload with this many run pairs a pair, and a unit."""
        budget = self.budget
        if self.suite:
            return SuiteTest(self.limits, budget.max_pairs)
        pairs_for_pass = math.ceil(_TURNS_FOR_PASS / turns)
        make: Callable[..., PairedTest | RatioTest] = partial(
            TotalTimeTest,
            budget.tolerance,
            alpha=GATE_ALPHA,
            pairs_for_pass=pairs_for_pass,
        )
        if budget.claim is not None:
            make = partial(RatioTest, *budget.claim)
            if budget.of_difference:
                make = partial(DifferenceTest, *budget.claim, unit=unit)
        return make(
            beta=budget.beta,
            min_pairs=min(budget.min_pairs, budget.max_pairs),
            max_pairs=budget.max_pairs,
            comparisons=self.comparisons,
        )

    def attempt(self, lease: MachineLease) -> None:
        """Run each workload once in the lease's only variant."""
        ((arm,),) = lease.sides
        with self._started(arm, lease) as running:
            for workload in self.workloads:
                running.run(workload, 0, 1)

    def _check_itself(self, lease: MachineLease, base: Arm) -> None:
        """Compare the baseline with itself, and note whether that is a FAIL."""
        alone = replace(self, comparisons=len(self.workloads), evidence_elsewhere=())
        with self._opened_each_time(lease, base, base) as opening:
            result = alone.decide(lease, opening)
        if result.interrupted:
            raise KeyboardInterrupt
        outcomes = [pairs.test.outcome_if_stopped for pairs in result.by_workload]
        lease.noise().note_self_check(failed=Outcome.FAIL in outcomes)

    @contextmanager
    def _opened_each_time(self, lease: MachineLease, *arms: Arm) -> Iterator[OpenArms]:
        with arm_caches() as caches:
            sides = zip(arms, caches, strict=True)
            base, candidate = (partial(self._started, arm, lease, cache) for arm, cache in sides)
            yield base, candidate

    def _started(self, arm: Arm, lease: MachineLease, cache: ArmCache | None = None) -> RunningArm:
        """The variant that runs these workloads, or its own workload; a load runs alone."""
        workload = arm.workload or self.workloads[0]
        if workload.is_load:
            return LoadingArm(arm, lease, workload, cache)
        return RunningArm(arm, lease, cache)


def continued(earlier: ABResult, budget: Budget, number: int) -> SpeedExperiment:
    """Times further pairs of two variants, for another assertion about one workload.

    Args:
        earlier: the pairs so far, which count for this assertion too: its test bets anew on each.
        budget: the assertion's limits, and the cost limit of all pairs together.
        number: of earlier assertions about these variants.
    """
    (pairs,) = earlier.by_workload
    turns = len(pairs.pairs[0].baseline_costs) if pairs.pairs else 1
    experiment = SpeedExperiment((pairs.workload,), budget)
    again = pairs.judged_again(experiment.test_of(turns, pairs.workload.unit))
    known = replace(earlier, by_workload=(again,), budget=budget)
    left_s = max(0.0, budget.max_seconds - pairs.elapsed_s)
    return replace(experiment, visit=Visit(number, left_s, known))


def time_pairs(lease: MachineLease, open_arms: OpenArms, experiment: SpeedExperiment) -> ABResult:
    """Time the pairs of two variants, with the noise of this machine as measured before.

    Args:
        lease: where and how.
        open_arms: start baseline and candidate; they are ended here.
        experiment: the timed comparison.
    """
    conditions = readiness()
    result = run_pairs(open_arms, experiment, lease.progress)
    names = [workload.name for workload in experiment.workloads]
    surroundings = lease.noise().around(result.ran[0], names, conditions)
    return replace(result, surroundings=replace(surroundings, watched=lease.watch.seen()))


def run_pairs(open_arms: OpenArms, experiment: SpeedExperiment, progress: Progress) -> ABResult:
    """Measure pairs of two variants until every workload is decided or the budget is spent."""
    began = time.monotonic()
    workloads, budget, visit = experiment.workloads, experiment.budget, experiment.visit
    begun = {p.workload: p for p in visit.earlier.by_workload} if visit.earlier else {}
    coin = random.Random(visit.seed(budget.seed))  # noqa: S311  # logged
    with PairedRunner(open_arms, coin, budget.tolerance, experiment.suite) as paired:
        base, candidate = paired.arms
        same_tokens = all(base.fed(w) == candidate.fed(w) for w in workloads)
        own_deadline = time.monotonic() + budget.max_seconds * len(workloads)
        deadline = min(began + visit.max_seconds, own_deadline)
        latest = max(deadline, min(began + visit.most_seconds, own_deadline))
        paired.rehearse(workloads, latest - time.monotonic())
        ran = paired.ran()  # a wrong run record makes timing pointless
        by_workload = tuple(
            begun.get(w)
            or WorkloadPairs(
                w,
                experiment.test_of(paired.lengths[w].turns, w.unit),
                [],
                # No test decides before that.
                examined_after=coin.randint(1, min(budget.min_pairs, budget.max_pairs)),
            )
            for w in workloads
        )
        interrupted = False
        try:
            while (now := time.monotonic()) < latest or (
                experiment.suite and not by_workload[0].pairs
            ):
                undecided = [pairs for pairs in by_workload if pairs.test.outcome is None]
                if not undecided or (
                    now >= deadline and not _will_decide(undecided, latest - now, paired.renewal_s)
                ):
                    break
                label = ", ".join(pairs.workload.name for pairs in undecided)
                test = undecided[0].test
                progress(label, test.n, budget.max_pairs, _so_far(test, budget.max_pairs))
                ran = _run_pair(paired, by_workload, experiment.evidence_elsewhere)
        except KeyboardInterrupt:
            interrupted = True
        else:
            for arm in paired.arms:
                arm.end()
            ran = paired.ran()
    return ABResult(
        by_workload,
        paired.n_cores is not None,
        budget,
        ran,
        same_tokens,
        interrupted,
        phases=tuple(paired.phases),
    )


def _will_decide(undecided: Sequence[WorkloadPairs], left_s: float, renewal_s: float) -> bool:
    """True if some of these workloads will probably be decided by pairs of all in so many seconds.

    Without a pair there is no forecast yet, and one is run.
    """
    if any(not pairs.test.n for pairs in undecided):
        return True
    pair_s = renewal_s + sum(pairs.pair_s for pairs in undecided)
    return any(
        left is not None and left * pair_s <= left_s
        for left in (_expected_pairs_left(pairs.test) for pairs in undecided)
    )


def _expected_pairs_left(test: PairedTest | RatioTest) -> int | None:
    """Pairs that will probably decide; before as many as any verdict needs, at least those."""
    missing = test.min_pairs - test.n
    return missing if missing > 0 else test.expected_pairs_left


def _so_far(test: PairedTest | RatioTest, max_pairs: int) -> SoFar:
    """The ratio that the pairs show, and how many will probably decide."""
    if not test.n:
        return SoFar(counted="pairs")
    left = test.expected_pairs_left
    expected = None if left is None else min(test.n + left, max_pairs)
    estimate = test.estimate
    if isinstance(test, SuiteTest):
        return SoFar(f"gain {shown(estimate)}", "pairs")
    estimate = estimate if isinstance(test, DifferenceTest) else estimate.as_ratio()
    return SoFar(shown(estimate), "pairs", expected)


def _run_pair(
    paired: PairedRunner, by_workload: Sequence[WorkloadPairs], elsewhere: Sequence[float]
) -> tuple[Provenance, Provenance]:
    """Run one pair of every undecided workload; gives the run records."""
    undecided = [pairs for pairs in by_workload if pairs.test.outcome is None]
    paired.begin_pair()
    for pairs in undecided:
        began = time.monotonic()
        examines = len(pairs.pairs) + 1 == pairs.examined_after
        is_alone = len(undecided) == 1
        pair = paired.run_turns(pairs.workload, pairs.pairs, alone=is_alone, examines=examines)
        pairs.elapsed_s += time.monotonic() - began
        pairs.take(pair)
        if examines:
            pairs.examined, pairs.examined_s = paired.examined, paired.examined_s
    ran = paired.ran()
    # Workloads that ran in the same processes are looked at together: one slow process is in all
    # of their evidence.
    seen = {pairs.workload: pairs.test.evidence_for_fail() for pairs in by_workload}
    for pairs in undecided:
        others = [e for workload, e in seen.items() if workload != pairs.workload]
        pairs.test.share_with([*others, *elsewhere])
        pairs.test.decide()
    return ran


def _noisier(pairs: WorkloadPairs) -> list[float]:
    """Log ratios of the pairs' cost: a gate judges two, and the noisier one needs more pairs."""
    costs = (
        [pair.log_ratio for pair in pairs.pairs],
        [pair.total_log_ratio for pair in pairs.pairs],
    )
    return max(costs, key=robust_sd)


def spread_of(pairs: WorkloadPairs) -> float | None:
    """Robust standard deviation of log ratios from pair to pair; None of fewer than three."""
    return robust_sd(_noisier(pairs)) if len(pairs.pairs) > 2 else None


def calibration_of(pairs: WorkloadPairs, result: ABResult, model: str) -> Calibration:
    """The machine's noise, from pairs of equal builds; two pairs at least."""
    noise = noise_of(
        _noisier(pairs),
        [(pair.baseline_costs, pair.candidate_costs) for pair in pairs.pairs],
        [pair.in_turn for pair in pairs.pairs],
        reloads=pairs.is_fresh,
    )
    base = result.ran[0]
    return Calibration(
        pairs.workload.name,
        base.engine.build,
        model,
        base.sha256,
        noise.spread,
        noise.position.point,
        noise.position.low,
        noise.position.high,
        noise.load_sd,
        len(pairs.pairs),
        dt.datetime.now(tz=dt.UTC).date().isoformat(),
        pairs.pair_s,
    )
