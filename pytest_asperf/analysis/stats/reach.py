"""How far runs scatter: the limits that their spread could reach, and those that it could not."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def reach(runs: Sequence[float]) -> tuple[float, float]:
    """The range of the runs, and of twice their spread about their geometric mean.

    The spread is the standard deviation of the logarithms, so that times and rates agree and no
    spread reaches 0. A single run has an unknown spread and reaches everything.
    """
    if len(runs) < 2:
        return -math.inf, math.inf
    logs = [math.log(run) for run in runs]
    middle, twice = fmean(logs), 2 * stdev(logs)
    return min(*runs, math.exp(middle - twice)), max(*runs, math.exp(middle + twice))


def reaches(runs: Sequence[float], limits: Iterable[float]) -> bool:
    """True if a run, or twice the runs' spread, reaches one of the limits."""
    low, high = reach(runs)
    return any(low <= limit <= high for limit in limits)


def reach_one_another(runs: Sequence[float], others: Sequence[float]) -> bool:
    """True if the ranges of two series meet."""
    (low, high), (other_low, other_high) = reach(runs), reach(others)
    return low <= other_high and other_low <= high
