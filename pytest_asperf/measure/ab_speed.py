"""Speed of two arms: randomised pairs of runs until the answer is decided.

One pair is a load of each arm, and turns of one run of each back to back, in an order that a fair
coin decides: what the machine does over a second, it does to both. Every run follows one of the
other arm, as caches are warm after a run of one's own.
What it does to one core it does to both as well: where an arm computes on fewer cores than there
are, the two share a draw of them. A process keeps to the core it is on, and cores differ (by 1.45
times for seconds, on a virtual machine whose neighbours come and go).
Every workload has a sequential test of its own, which shares the error with the others, and is
measured until that test decides or the budget is spent. A FAIL of a gate has to be shown again in
fresh processes: one process can be slow on one core as long as it lives.
"""

from __future__ import annotations

import math
import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.stats.ratio_test import RatioTest
from pytest_asperf.analysis.stats.sequential_frame import BETA
from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.config.progress import SoFar
from pytest_asperf.hardware.readiness import readiness
from pytest_asperf.measure.experiment import Visit, shown
from pytest_asperf.measure.paired_runner import Pair, PairedRunner
from pytest_asperf.measure.running_arms import RunningArm, open_together
from pytest_asperf.measure.surroundings import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_asperf.analysis.stats.sequential import PairedTest
    from pytest_asperf.config.progress import Progress
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.measure.ab_arms import Arm
    from pytest_asperf.measure.experiment import MachineLease
    from pytest_asperf.measure.metered import PhaseEnergy
    from pytest_asperf.measure.results import Provenance
    from pytest_asperf.measure.running_arms import TimedArm

    OpenArms = tuple[Callable[[], TimedArm], Callable[[], TimedArm]]

#: Turns without which no gate is a PASS: a quarter of slow runs hides from twelve in 3 %.
_TURNS_FOR_PASS: Final = 12
#: Of the error of a PASS, the share of pairs in fresh processes after others had shown a FAIL. With
#: the rest five pairs still suffice.
_AGAIN: Final = 0.008


@dataclass(frozen=True, slots=True)
class Budget:
    """What a gate may cost.

    Attributes:
        tolerance: slowdown that is accepted, a fraction.
        claim: limits of the ratio of costs, candidate / baseline, between which it is claimed to
            lie, instead of a tolerance; 0 and infinity are none. Total time is not judged then.
        max_pairs: pairs after which it gives up.
        max_seconds: seconds of each workload after which it begins no further pair.
        seed: of the coin.
        min_pairs: pairs before which nothing is decided; with as many as `max_pairs` their number
            is fixed.
        beta: bound on a wrong PASS of each workload.
        beta_for_pass: of that what is left, where a part was spent before; None for all.
    """

    tolerance: float
    max_pairs: int
    max_seconds: float
    seed: int
    min_pairs: int = 5
    claim: tuple[float, float] | None = None
    beta: float = BETA
    beta_for_pass: float | None = None

    def faster_by(self, share: float) -> Budget:
        """The same, for the claim that the candidate's rate is higher by a share at least."""
        # Faster by a half is a cost of two thirds.
        return replace(self, claim=(0.0, 1 / (1 + share)))

    @property
    def least_gain(self) -> float:
        """By how much the candidate is claimed to be faster, a fraction of the baseline's rate."""
        _, cost = self.claim or (0.0, 1.0)
        return 1 / cost - 1

    @property
    def is_gate(self) -> bool:
        """Whether only a slowdown is looked for, beyond a tolerance."""
        return self.claim is None

    @property
    def confirms(self) -> bool:
        """Whether a FAIL is to be shown twice; not where the number of pairs is fixed."""
        return self.is_gate and self.min_pairs < self.max_pairs

    @property
    def first_look(self) -> Budget:
        """The same, with what of the error of a PASS a look at fresh processes leaves."""
        return replace(self, beta=(1 - _AGAIN) * self.beta)

    @property
    def second_look(self) -> Budget:
        """The same for fresh processes: other coins, and the rest of the error of a PASS."""
        return replace(self.first_look, seed=self.seed + 1, beta_for_pass=_AGAIN * self.beta)


@dataclass(slots=True)
class WorkloadPairs:
    """One workload's pairs so far, and its test.

    Attributes:
        workload: what is timed.
        test: decides.
        pairs: in the order they ran.
        elapsed_s: time that its runs took.
        failed_before: pairs of earlier processes that showed a FAIL, which these look for again.
    """

    workload: Workload
    test: PairedTest | RatioTest
    pairs: list[Pair]
    elapsed_s: float = 0.0
    failed_before: WorkloadPairs | None = None

    def add(self, pair: Pair) -> None:
        """Take a pair and let the test see it."""
        self.pairs.append(pair)
        if isinstance(self.test, TotalTimeTest):
            self.test.update(pair.log_ratio, pair.total_log_ratio)
        else:
            self.test.update(pair.log_ratio)

    @property
    def is_unconfirmed(self) -> bool:
        """Whether they show a FAIL that no other processes have shown."""
        return self.test.outcome is Outcome.FAIL and self.failed_before is None

    def after(self, failed: WorkloadPairs) -> WorkloadPairs:
        """The same, behind pairs of other processes that showed a FAIL."""
        return replace(self, failed_before=failed, elapsed_s=failed.elapsed_s + self.elapsed_s)

    @property
    def arms_costs(self) -> tuple[list[int], list[int]]:
        """Costs of all runs of the baseline, and of the candidate."""
        base = [cost for pair in self.pairs for cost in pair.baseline_costs]
        return base, [cost for pair in self.pairs for cost in pair.candidate_costs]


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
        phases: in which energy was measured, where it was.
    """

    by_workload: tuple[WorkloadPairs, ...]
    reloads: bool
    draws_cores: bool
    budget: Budget
    ran: tuple[Provenance, Provenance]
    same_tokens: bool
    interrupted: bool = False
    surroundings: Surroundings = field(default_factory=Surroundings)
    phases: tuple[PhaseEnergy, ...] = ()

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
        evidence_elsewhere: for a FAIL, of tests among those that have ended.
    """

    workloads: tuple[Workload, ...]
    budget: Budget
    comparisons: int = 1
    visit: Visit[ABResult] = field(default_factory=Visit)
    evidence_elsewhere: tuple[float, ...] = field(default=(), kw_only=True, compare=False)

    def run(self, lease: MachineLease) -> ABResult:
        """Time the pairs; every K-th gate of a machine is preceded by a self-check.

        Raises:
            EngineError: an arm died or refused: what it was measuring is not decided but broken.
        """
        (base,), (candidate,) = lease.sides
        every = None if self.visit.number else lease.self_check_every
        if every is not None and self.budget.is_gate and lease.noise().count_gate() % every == 0:
            self._check_itself(lease, base)
        return self.decide(lease, _opening(lease, base, candidate))

    def decide(self, lease: MachineLease, opening: OpenArms) -> ABResult:
        """Time the pairs; look for a gate's FAIL again in fresh processes."""
        budget, began = self.budget, time.monotonic()
        if not budget.confirms:
            return time_pairs(lease, opening, self)
        looking = replace(self, budget=budget.first_look)
        first = replace(time_pairs(lease, opening, looking), budget=budget)
        failed = {p.workload: p for p in first.by_workload if p.is_unconfirmed}
        if not failed or first.interrupted:
            return first
        lease.idle_workers.close()
        left_s = max(0.0, self.visit.max_seconds - (time.monotonic() - began))
        others = (p.test.evidence_for_fail() for p in first.by_workload if p.workload not in failed)
        confirming = replace(
            self,
            workloads=tuple(failed),
            budget=budget.second_look,
            visit=Visit(self.visit.number, left_s),
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

    def attempt(self, lease: MachineLease) -> None:
        """Run each workload once with the lease's one side."""
        ((arm,),) = lease.sides
        with RunningArm(arm, lease) as running:
            for workload in self.workloads:
                running.run(workload, 0, 1)

    def _check_itself(self, lease: MachineLease, base: Arm) -> None:
        """Compare the baseline with itself, and note whether that is a FAIL."""
        alone = replace(self, comparisons=len(self.workloads), evidence_elsewhere=())
        result = alone.decide(lease, _opening(lease, base, base))
        if result.interrupted:
            raise KeyboardInterrupt
        outcomes = [pairs.test.outcome_if_stopped for pairs in result.by_workload]
        lease.noise().note_self_check(failed=Outcome.FAIL in outcomes)


def _opening(lease: MachineLease, *arms: Arm) -> OpenArms:
    base, candidate = (partial(RunningArm, arm, lease) for arm in arms)
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
    return replace(result, surroundings=replace(surroundings, watched=lease.watch.seen()))


def run_pairs(open_arms: OpenArms, experiment: SpeedExperiment, progress: Progress) -> ABResult:
    """Run pairs of two arms until every workload is decided or the budget is spent."""
    began = time.monotonic()
    workloads, budget, visit = experiment.workloads, experiment.budget, experiment.visit
    begun = {p.workload: p for p in visit.earlier.by_workload} if visit.earlier else {}
    with ExitStack() as stack:
        base, candidate = arms = open_together(stack, open_arms)
        same_tokens = all(base.fed(w) == candidate.fed(w) for w in workloads)
        coin = random.Random(visit.seed(budget.seed))  # noqa: S311  # logged
        paired = PairedRunner(base, candidate, coin)
        paired.rehearse(workloads)
        for arm in arms:
            arm.ran(paired.contexts[arm])  # what is not what was asked for need not be timed
        by_workload = tuple(
            begun.get(w) or WorkloadPairs(w, _test_of(experiment, paired.lengths[w].turns), [])
            for w in workloads
        )
        own_deadline = time.monotonic() + budget.max_seconds * len(workloads)
        deadline = min(began + visit.max_seconds, own_deadline)
        interrupted = False
        try:
            while time.monotonic() < deadline:
                undecided = [pairs for pairs in by_workload if pairs.test.outcome is None]
                if not undecided:
                    break
                label = ", ".join(pairs.workload.name for pairs in undecided)
                label += " again" * (budget.beta_for_pass is not None)
                test = undecided[0].test
                progress(label, test.n, budget.max_pairs, _so_far(test, budget.max_pairs))
                _run_pair(paired, by_workload, experiment.evidence_elsewhere)
        except KeyboardInterrupt:
            interrupted = True
        ran = base.ran(paired.contexts[base]), candidate.ran(paired.contexts[candidate])
    return ABResult(
        by_workload,
        paired.reloads,
        paired.n_cores is not None,
        budget,
        ran,
        same_tokens,
        interrupted,
        phases=tuple(paired.phases),
    )


def _so_far(test: PairedTest | RatioTest, max_pairs: int) -> SoFar:
    """The ratio that the pairs show, and how many will probably decide."""
    if not test.n:
        return SoFar(counted="pairs")
    left = test.expected_pairs_left
    expected = None if left is None else min(test.n + left, max_pairs)
    return SoFar(shown(test.estimate.as_ratio()), "pairs", expected)


def _run_pair(
    paired: PairedRunner, by_workload: Sequence[WorkloadPairs], elsewhere: Sequence[float]
) -> None:
    """Run one pair of every undecided workload."""
    undecided = [pairs for pairs in by_workload if pairs.test.outcome is None]
    paired.begin_pair()
    for pairs in undecided:
        began = time.monotonic()
        pair = paired.run_turns(pairs.workload, len(pairs.pairs), alone=len(undecided) == 1)
        pairs.elapsed_s += time.monotonic() - began
        others = [other.test.evidence_for_fail() for other in by_workload if other is not pairs]
        pairs.test.share_with([*others, *elsewhere])
        pairs.add(pair)


def _test_of(experiment: SpeedExperiment, turns: int) -> PairedTest | RatioTest:
    """The test of a workload whose pairs have so many turns."""
    budget = experiment.budget
    pairs_for_pass = math.ceil(_TURNS_FOR_PASS / turns)
    make: Callable[..., PairedTest | RatioTest] = partial(
        TotalTimeTest,
        budget.tolerance,
        pairs_for_pass=pairs_for_pass,
        beta_for_pass=budget.beta_for_pass,
    )
    if budget.claim is not None:
        make = partial(RatioTest, *budget.claim)
    return make(
        beta=budget.beta,
        min_pairs=min(budget.min_pairs, budget.max_pairs),
        max_pairs=budget.max_pairs,
        comparisons=experiment.comparisons,
    )
