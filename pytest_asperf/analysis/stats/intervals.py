"""Intervals for repeated timings: plain sequences in, an `Estimate` out; and their quantiles."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, chdtri, ndtri, stdtrit  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.stats.estimate import (
    CHANGE,
    DECISION_CONFIDENCE,
    Estimate,
    Values,
    finite_array,
    unequal_work,
)
from pytest_asperf.errors import MeasurementError


def z_quantile(confidence: float) -> float:
    """Half-width of a two-sided normal interval, in standard errors."""
    return float(ndtri(0.5 + checked_confidence(confidence) / 2))


def shared_confidence(confidence: float, comparisons: int) -> float:
    """Confidence of each of several intervals that share one error probability (Bonferroni)."""
    if comparisons < 1:
        raise ValueError(f"comparisons must be at least 1, not {comparisons}")
    return 1 - (1 - checked_confidence(confidence)) / comparisons


def t_quantile(degrees: float, confidence: float) -> float:
    """Half-width of a two-sided Student's t interval, in standard errors."""
    return float(stdtrit(degrees, 0.5 + checked_confidence(confidence) / 2))


def t_half_width(error: float, degrees: float, confidence: float) -> float:
    """Half-width of a two-sided Student's t interval; infinite without a degree of freedom."""
    return t_quantile(degrees, confidence) * error if degrees > 0 else math.inf


def checked_confidence(confidence: float) -> float:
    """The confidence, or a ValueError unless it is between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, not {confidence}")
    return confidence


_Series = TypeVar("_Series")


def median_interval(
    samples: Sequence[float],
    confidence: float = DECISION_CONFIDENCE,
    *,
    unit: str,
    counted: str = "samples",
) -> Estimate:
    """The median with a distribution-free interval from two order statistics.

    The bounds are the r-th smallest and r-th largest sample, r as large as
    ``1 - 2 P(Binomial(n, 1/2) < r) >= confidence`` allows; so the true coverage is at least the
    nominal one for any continuous distribution. Source: David & Nagaraja, *Order Statistics*,
    3rd ed., section 7.1. Below 5 samples no 90 % interval exists and the bounds are infinite.

    Raises:
        MeasurementError: no samples, or one that is not finite.
    """
    values = np.sort(finite_array(samples, counted))
    n = len(values)
    ranks = np.arange(1, n // 2 + 1)
    coverage = 1 - 2 * bdtr(ranks - 1, n, 0.5)
    r = int(np.count_nonzero(coverage >= checked_confidence(confidence)))
    needed = math.ceil(1 - math.log2(1 - confidence))
    if r:
        low, high = float(values[r - 1]), float(values[n - r])
        method = f"median, order statistics {r} and {n + 1 - r} of {n}"
    else:
        low, high = -math.inf, math.inf
        method = f"median; an interval needs at least {needed} {counted}"
    return Estimate(
        float(np.median(values)),
        low,
        high,
        n,
        method=method,
        unit=unit,
        counted=counted,
        confidence=confidence,
        needed=needed,
    )


def mean_interval_t(
    samples: Values, confidence: float = DECISION_CONFIDENCE, *, unit: str, counted: str = "samples"
) -> Estimate:
    """The mean of finite samples, with Student's t interval (1908); infinite for one sample."""
    values = finite_array(samples, counted)
    return summary_interval_t(
        float(values.mean()), _sd(values), len(values), confidence, unit=unit, counted=counted
    )


def summary_interval_t(
    mean: float,
    sd: float,
    n: int,
    confidence: float = DECISION_CONFIDENCE,
    *,
    unit: str,
    counted: str = "samples",
) -> Estimate:
    """Student's t interval from mean, sample standard deviation (n - 1) and count."""
    half = t_half_width(sd / math.sqrt(n), n - 1, confidence)
    return Estimate(
        mean,
        mean - half,
        mean + half,
        n,
        method=f"mean, Student's t over {counted}",
        unit=unit,
        counted=counted,
        confidence=confidence,
    )


def paired_change_interval(
    base: Sequence[float], other: Sequence[float], confidence: float = DECISION_CONFIDENCE
) -> Estimate:
    """The relative change ``other / base - 1`` of samples measured in pairs.

    Student's t on the log ratios, so that swapping the variants inverts the ratio and its bounds.

    Raises:
        MeasurementError: unequal numbers of samples, none, or one that is not positive and finite.
    """
    if len(base) != len(other):
        raise unequal_work(f"{len(base)} and {len(other)} samples cannot be paired")
    logs = mean_interval_t(_logs(other) - _logs(base), confidence, unit="", counted="pairs")
    return replace(logs.change_of_log(), method="Student's t on log ratios")


def unpaired_change_interval(
    base: Sequence[float], other: Sequence[float], confidence: float = DECISION_CONFIDENCE
) -> Estimate:
    """The relative change ``other / base - 1`` of two independent series.

    Welch's t on the logs (Welch, Biometrika 34, 1947), so the change is that of geometric means. It
    covers the variation inside each series: differences between loads only if each sample is from a
    load of its own, and never those between sessions.

    Raises:
        MeasurementError: a series is empty or has a value that is not positive and finite.
    """
    logs_base, logs_other = _logs(base), _logs(other)
    var_base, var_other = ((_sd(x) / math.sqrt(len(x))) ** 2 for x in (logs_base, logs_other))
    variance = var_base + var_other
    if 0 < variance < math.inf:
        spread = var_base**2 / (len(base) - 1) + var_other**2 / (len(other) - 1)
        half = t_half_width(math.sqrt(variance), variance**2 / spread, confidence)
    else:
        half = variance
    mean = float(logs_other.mean() - logs_base.mean())
    return Estimate(
        mean,
        mean - half,
        mean + half,
        min(len(base), len(other)),
        method="Welch's t on logs",
        unit="",
        counted="samples each",
        confidence=confidence,
    ).change_of_log()


def independent_change(base: Estimate, other: Estimate) -> Estimate:
    """The change from one positive quantity to another that was measured apart from it.

    ``other / base - 1``, with the bounds of `difference_apart` on the log scale. A relative change
    itself changes by the difference.

    Raises:
        ValueError: the units or confidences differ, or a quantity is not positive.
    """
    if other.unit == CHANGE:
        return difference_apart(base, other)
    logs = [
        replace(e, point=_log(e.point), low=_log(e.low), high=_log(e.high)) for e in (base, other)
    ]
    return replace(difference_apart(*logs), unit="").change_of_log()


def difference_apart(base: Estimate, other: Estimate) -> Estimate:
    """``other - base`` of quantities that were measured apart from each other.

    A bound's distance from the point is the root of the summed squares of both estimates'
    distances (MOVER: Zou & Donner, Statistics in Medicine 27, 2008).
    """
    confidence = min(base.confidence, other.confidence)
    if base.unit != other.unit or not {base.confidence, other.confidence} <= {confidence, 1}:
        raise ValueError(f"{base.unit} at {base.confidence} and {other.unit} at {other.confidence}")
    point = other.point - base.point
    below = math.hypot(other.point - other.low, base.high - base.point)
    above = math.hypot(other.high - other.point, base.point - base.low)
    return Estimate(
        point,
        point - below,
        point + above,
        other.n,
        method="exact"
        if confidence == 1
        else f"{other.method}; against: {base.method}; bounds combined (MOVER)",
        unit=other.unit,
        counted=other.counted,
        confidence=confidence,
    )


def sd_interval(sd: float, n: int, confidence: float, *, unit: str) -> Estimate:
    """A standard deviation with its chi-square interval, for two normal samples or more."""
    if n < 2 or not sd >= 0:
        raise ValueError(f"a standard deviation of {sd} over {n} runs")
    tail = (1 - checked_confidence(confidence)) / 2
    low, high = (sd * math.sqrt((n - 1) / float(chdtri(n - 1, p))) for p in (tail, 1 - tail))
    return Estimate(
        sd,
        low,
        high,
        n,
        method="chi-square over runs",
        unit=unit,
        counted="runs",
        confidence=confidence,
    )


def neighbour_estimates(
    series: Sequence[_Series],
    compare: Callable[[_Series, _Series, float], Estimate],
    confidence: float = DECISION_CONFIDENCE,
) -> tuple[Estimate, ...]:
    """Compare each of two or more series with the next, the error shared among the neighbours.

    `compare` is such as `delta_ppl` or `unpaired_change_interval`.
    """
    shared = shared_confidence(confidence, len(series) - 1)
    return tuple(compare(a, b, shared) for a, b in pairwise(series))


def _sd(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.inf


def _logs(values: Sequence[float]) -> NDArray[np.float64]:
    array = finite_array(values, "samples")
    if not (array > 0).all():
        raise MeasurementError(
            f"a sample of {array.min():g} is not positive",
            why="a rate or duration of zero or less cannot have been measured",
            remedy="look at the engine's log for failed decodes",
        )
    return np.log(array)


def _log(value: float) -> float:
    """The log of a positive quantity or of a bound of one, which may reach below 0."""
    return math.log(value) if value > 0 else -math.inf
