"""Percentiles of times, with intervals from order statistics."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr, bdtrc  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.stats.chunk_intervals import design_effect
from pytest_asperf.analysis.stats.estimate import DECISION_CONFIDENCE, Estimate, finite_array
from pytest_asperf.analysis.stats.intervals import checked_confidence, t_quantile, z_quantile


def percentile_interval(
    groups: Sequence[Sequence[float]],
    percentile: float,
    confidence: float = DECISION_CONFIDENCE,
    *,
    unit: str,
    counted: str = "samples",
) -> Estimate:
    """A percentile with the distribution-free interval of two order statistics.

    The lower bound is the r-th smallest of n samples, r as large as ``P(Binomial(n, p) < r)``
    within half the error allows; the upper one the s-th, by ``P(Binomial(n, p) >= s)`` (David &
    Nagaraja, *Order Statistics*, 3rd ed., section 7.1). A bound that the samples do not suffice for
    is infinite: p95 needs 59 for its upper one.

    Samples of one group are not independent where a group has several, as the tokens of a run: n
    is then divided by the design effect of the groups, as for a share (Woodruff, JASA 47, 1952;
    Korn & Graubard, Survey Methodology 24, 1998). A single such group has no bounds.

    Args:
        groups: samples, in groups that are independent of one another.
        percentile: 95 for the value that 95 % of samples do not exceed.
        confidence: two-sided coverage.
        unit: of the samples.
        counted: their unit, in the plural.

    Raises:
        MeasurementError: there are no samples, or one is not finite.
        ValueError: no such percentile.
    """
    if not 0 < percentile < 100:
        raise ValueError(f"{percentile} is not between 0 and 100")
    values = np.sort(finite_array([value for group in groups for value in group], counted))
    share, tail = percentile / 100, (1 - checked_confidence(confidence)) / 2
    point = float(np.quantile(values, share))
    n, n_effective = len(values), _effective(groups, point, confidence)
    ranks = np.arange(1, n_effective + 1)
    r = int(np.count_nonzero(bdtr(ranks - 1, n_effective, share) <= tail))
    s = n_effective + 1 - int(np.count_nonzero(bdtrc(ranks - 1, n_effective, share) <= tail))
    low, high = -math.inf, math.inf
    if r:
        low = min(point, float(values[max(1, r * n // n_effective) - 1]))
    if 1 <= s <= n_effective:
        high = max(point, float(values[math.ceil(s * n / n_effective) - 1]))
    needed = _needed(percentile, n, n_effective, tail)
    return Estimate(
        point,
        low,
        high,
        n,
        method=_method(percentile, n_effective, counted, n, needed),
        unit=unit,
        counted=counted,
        confidence=confidence,
        needed=needed,
        repetitions=len(groups) if len(groups) < n else None,
    )


def _effective(groups: Sequence[Sequence[float]], point: float, confidence: float) -> int:
    """How many independent samples the groups are worth, for the share below a point."""
    n, n_groups = sum(map(len, groups)), len(groups)
    if n == n_groups:
        return n
    if n_groups < 2:
        return 0
    below = [[value <= point for value in group] for group in groups]
    spread = z_quantile(confidence) / t_quantile(n_groups - 1, confidence)
    return int(spread**2 * n / design_effect(below))


def _needed(percentile: float, n: int, n_effective: int, tail: float) -> int | None:
    """How many observations have an upper bound; None of one run."""
    least = math.ceil(math.log(tail) / math.log(percentile / 100))
    return math.ceil(least * n / n_effective) if n_effective else None


def _method(percentile: float, n_effective: int, counted: str, n: int, needed: int | None) -> str:
    """How the interval was made, or the missing condition of an upper bound."""
    if needed is None:
        return f"p{percentile:g}; {counted} of one run have no interval, and two runs may have one"
    worth = "" if n == n_effective else f", worth {n_effective} independent {counted}"
    if n < needed:
        worth += f"; an upper bound needs about {needed} {counted}"
    return f"p{percentile:g} by order statistics{worth}"
