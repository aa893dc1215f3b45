"""Verdicts on rates that were not measured in pairs, after their guards."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from pytest_asperf.analysis.guards import GuardFinding, Voids
from pytest_asperf.analysis.stats.spread import reach_one_another, reaches
from pytest_asperf.analysis.verdict import Verdict, guarded

#: Assertions that a finding voids if their limit is near.
_IF_NEAR: Final = frozenset({Voids.SPREAD_SENSITIVE, Voids.LOAD_SENSITIVE})


@dataclass(frozen=True, slots=True)
class GuardedRates:
    """The runs of one workload on one model."""

    rates: Sequence[float]  #: of the runs in tok/s, or their times
    guard_findings: tuple[GuardFinding, ...]  #: the guards' findings in them
    lost_share: float = 0.0  #: of the runs' time, the most that a busy host can have cost them
    are_times: bool = False  #: whether `rates` are times

    def spared(self, limits: Sequence[float]) -> frozenset[Voids]:
        """The kinds of guard findings that cannot have moved runs across a limit.

        A quiet host makes rates higher and times shorter, by the lost share at most.
        """
        if not self.rates:
            return _IF_NEAR
        low, high, kept = min(self.rates), max(self.rates), 1 - self.lost_share
        low, high = (low * kept, high) if self.are_times else (low, high / kept)
        near = {
            Voids.LOAD_SENSITIVE: any(low <= limit <= high for limit in limits),
            Voids.SPREAD_SENSITIVE: reaches(self.rates, limits),
        }
        return frozenset(kind for kind, is_near in near.items() if not is_near)


def vetted(
    verdict: Verdict, runs: GuardedRates, limits: Iterable[float | None], *, unit: float = 1.0
) -> Verdict:
    """The verdict on one measurement, with its guards.

    A rate of 1 tok/s is `unit` in the unit of the assertion's limits.
    """
    rates = [unit * rate for rate in runs.rates]
    known = [limit for limit in limits if limit is not None]
    return guarded(verdict, runs.guard_findings, spared=replace(runs, rates=rates).spared(known))


def vetted_order(verdict: Verdict, series: Sequence[GuardedRates]) -> Verdict:
    """The verdict on an order, with guards: each measurement's limits are its neighbours.

    The runs alternate, so a busy host disturbs them alike.
    """
    met = [reach_one_another(a.rates, b.rates) for a, b in pairwise(series)]
    for at, runs in enumerate(series):
        spared = {Voids.LOAD_SENSITIVE} if any(met[max(0, at - 1) : at + 1]) else _IF_NEAR
        verdict = guarded(verdict, runs.guard_findings, spared=spared)
    return verdict
