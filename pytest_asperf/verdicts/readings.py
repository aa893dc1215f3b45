"""Verdicts on rates that were not measured in pairs, after their guards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.guards import Consequence, GuardFinding
from pytest_asperf.analysis.stats.reach import reach_one_another, reaches
from pytest_asperf.analysis.verdict import guarded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pytest_asperf.analysis.verdict import Verdict

#: Guards whose findings matter where a limit is near.
_WEIGHED: Final = ("spread", "host-busy")
_SPREAD: Final = ("spread",)
_REMEDY: Final = (
    "quieten the machine (asperf doctor) and repeat, or accept the spread: --asperf-max-cv"
)


@dataclass(frozen=True, slots=True)
class GuardedRates:
    """The runs of one workload on one model.

    Attributes:
        rates: of the runs in tok/s, or their times.
        guard_findings: what guards found in them.
        lost_share: of the runs' time, the most that a busy host can have cost them.
        are_times: whether `rates` are times.
    """

    rates: Sequence[float]
    guard_findings: tuple[GuardFinding, ...]
    lost_share: float = 0.0
    are_times: bool = False

    def voided(self, limits: Sequence[float]) -> frozenset[str]:
        """The guards whose findings could have changed on which side of a limit the runs lie.

        A quiet host makes rates higher and times shorter, by the lost share at most.
        """
        if not self.rates:
            return frozenset()
        low, high, kept = min(self.rates), max(self.rates), 1 - self.lost_share
        low, high = (low * kept, high) if self.are_times else (low, high / kept)
        is_near = any(low <= limit <= high for limit in limits)
        by_spread = {"spread"} if reaches(self.rates, limits) else set()
        return frozenset(by_spread | ({"host-busy"} if is_near else set()))


def vetted(
    verdict: Verdict, runs: GuardedRates, limits: Iterable[float | None], *, unit: float = 1.0
) -> Verdict:
    """The verdict on one reading, as its guards leave it.

    A rate of 1 tok/s is `unit` in the unit of the limits of the claim.
    """
    rates = [unit * rate for rate in runs.rates]
    known = [limit for limit in limits if limit is not None]
    voided = replace(runs, rates=rates).voided(known)
    return guarded(verdict, _weighed(runs, voided), remedy=_REMEDY)


def vetted_order(verdict: Verdict, series: Sequence[GuardedRates]) -> Verdict:
    """The verdict on an order, as guards leave it: each reading's limits are its neighbours.

    Readings take turns, so a busy host disturbs them alike.
    """
    met = [reach_one_another(a.rates, b.rates) for a, b in pairwise(series)]
    guard_findings = [
        guard_finding
        for at, runs in enumerate(series)
        for guard_finding in _weighed(runs, _SPREAD if any(met[max(0, at - 1) : at + 1]) else ())
    ]
    return guarded(verdict, guard_findings, remedy=_REMEDY)


def _weighed(runs: GuardedRates, voided: Collection[str]) -> Iterator[GuardFinding]:
    """The findings; a spread or busy host that can have changed no verdict is a warning."""
    for guard_finding in runs.guard_findings:
        if guard_finding.guard in _WEIGHED and guard_finding.guard not in voided:
            yield replace(guard_finding, consequence=Consequence.WARNING)
        else:
            yield guard_finding
