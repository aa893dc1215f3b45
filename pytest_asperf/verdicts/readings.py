"""What guards leave of a verdict on readings that are not paired with one another."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.guards import Consequence, GuardFinding
from pytest_asperf.analysis.stats.reach import reach_one_another, reaches
from pytest_asperf.analysis.verdict import guarded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.api.measurement_context import Reading

_REMEDY: Final = (
    "quieten the machine (asperf doctor) and repeat, or accept the spread: --asperf-max-cv"
)


def vetted(
    verdict: Verdict, reading: Reading, limits: Iterable[float | None], *, unit: float = 1.0
) -> Verdict:
    """Return what guards leave of a verdict on one reading.

    Args:
        verdict: by the interval.
        reading: what was judged.
        limits: of the claim, None where there is none.
        unit: what a rate of 1 tok/s is in the unit of the limits.
    """
    runs = [unit * rate for rate in reading.result.rates]
    is_reached = reaches(runs, (limit for limit in limits if limit is not None))
    return guarded(verdict, _trips(reading, voids=is_reached), remedy=_REMEDY)


def vetted_order(verdict: Verdict, readings: Sequence[Reading]) -> Verdict:
    """Return what guards leave of a verdict on an order: each reading's limit is its neighbours."""
    runs = [reading.result.rates for reading in readings]
    met = [reach_one_another(a, b) for a, b in pairwise(runs)]
    guard_findings = [
        guard_finding
        for at, reading in enumerate(readings)
        for guard_finding in _trips(reading, voids=any(met[max(0, at - 1) : at + 1]))
    ]
    return guarded(verdict, guard_findings, remedy=_REMEDY)


def _trips(reading: Reading, *, voids: bool) -> Iterator[GuardFinding]:
    """Yield a reading's trips; a spread that reaches no limit is told and decides nothing."""
    for guard_finding in reading.guard_findings:
        is_harmless = guard_finding.guard == "spread" and not voids
        yield (
            replace(guard_finding, consequence=Consequence.WARNING)
            if is_harmless
            else guard_finding
        )
