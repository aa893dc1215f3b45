"""Verdicts on rates that were not measured in pairs, after their guards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.guards import Consequence, GuardFinding
from pytest_asperf.analysis.stats.reach import reach_one_another, reaches
from pytest_asperf.analysis.verdict import guarded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_asperf.analysis.verdict import Verdict

_REMEDY: Final = (
    "quieten the machine (asperf doctor) and repeat, or accept the spread: --asperf-max-cv"
)


@dataclass(frozen=True, slots=True)
class GuardedRates:
    """The rates of one workload's runs on one model in tok/s, and what guards found in them."""

    rates: Sequence[float]
    guard_findings: tuple[GuardFinding, ...]


def vetted(
    verdict: Verdict, runs: GuardedRates, limits: Iterable[float | None], *, unit: float = 1.0
) -> Verdict:
    """The verdict on one reading, as its guards leave it.

    A rate of 1 tok/s is `unit` in the unit of the limits of the claim.
    """
    rates = [unit * rate for rate in runs.rates]
    is_reached = reaches(rates, (limit for limit in limits if limit is not None))
    return guarded(verdict, _weighed(runs, voids=is_reached), remedy=_REMEDY)


def vetted_order(verdict: Verdict, series: Sequence[GuardedRates]) -> Verdict:
    """The verdict on an order, as guards leave it: each reading's limits are its neighbours."""
    met = [reach_one_another(a.rates, b.rates) for a, b in pairwise(series)]
    guard_findings = [
        guard_finding
        for at, runs in enumerate(series)
        for guard_finding in _weighed(runs, voids=any(met[max(0, at - 1) : at + 1]))
    ]
    return guarded(verdict, guard_findings, remedy=_REMEDY)


def _weighed(runs: GuardedRates, *, voids: bool) -> Iterator[GuardFinding]:
    """The findings; a spread that reaches no limit is a warning."""
    for guard_finding in runs.guard_findings:
        if guard_finding.guard == "spread" and not voids:
            yield replace(guard_finding, consequence=Consequence.WARNING)
        else:
            yield guard_finding
