"""Intervals for repeated timings and for scores grouped by chunk.

Every function takes plain sequences and returns an `Estimate`. Chunked data are sequences of
chunks, each a sequence of one value per scored token; chunks may differ in length. Tokens of one
chunk share their context and are not independent, so the intervals rest on the chunks.
"""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import numpy as np
from scipy.special import bdtr, chdtri, ndtri, stdtrit  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.stats.estimate import CHANGE, DECISION_CONFIDENCE, SHARE, Estimate
from pytest_asperf.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Values = Sequence[float] | NDArray[np.float64]
    Chunks = Sequence[Values]

#: Chunks from which an interval over them has bounds. With fewer, Student's t errs in far more than
#: its 5 % where a corpus has two kinds of text; see docs/statistics.md, "How many chunks".
LEAST_CHUNKS: Final = 5

_Series = TypeVar("_Series", contravariant=True)  # noqa: PLC0105  # private, one use


class Compare(Protocol[_Series]):
    """A comparison of two series, such as `delta_ppl` or `unpaired_change_interval`."""

    def __call__(self, base: _Series, other: _Series, /, confidence: float) -> Estimate:
        """Return by how much `other` exceeds `base`; 0 means no difference."""
        ...


def median_interval(
    samples: Sequence[float],
    confidence: float = DECISION_CONFIDENCE,
    *,
    unit: str,
    counted: str = "samples",
) -> Estimate:
    """Return the median with a distribution-free interval from two order statistics.

    The bounds are the r-th smallest and r-th largest sample, r as large as
    ``1 - 2 P(Binomial(n, 1/2) < r) >= confidence`` allows; so the true coverage is at least the
    nominal one for any continuous distribution. Source: David & Nagaraja, *Order Statistics*,
    3rd ed., section 7.1. Below 5 samples no 90 % interval exists and the bounds are infinite.

    Raises:
        MeasurementError: no samples, or one that is not finite.
    """
    values = np.sort(_finite(samples, counted))
    n = len(values)
    ranks = np.arange(1, n // 2 + 1)
    coverage = 1 - 2 * bdtr(ranks - 1, n, 0.5)
    r = int(np.count_nonzero(coverage >= _proper(confidence)))
    if r:
        low, high = float(values[r - 1]), float(values[n - r])
        method = f"median, order statistics {r} and {n + 1 - r} of {n}"
    else:
        low, high = -math.inf, math.inf
        least = math.ceil(1 - math.log2(1 - confidence))
        method = f"median; an interval needs at least {least} {counted}"
    return Estimate(
        float(np.median(values)),
        low,
        high,
        n,
        method=method,
        unit=unit,
        counted=counted,
        confidence=confidence,
    )


def mean_interval_t(
    samples: Sequence[float],
    confidence: float = DECISION_CONFIDENCE,
    *,
    unit: str,
    counted: str = "samples",
) -> Estimate:
    """Return the mean with Student's t interval (Student 1908); infinite for one sample.

    Raises:
        MeasurementError: no samples, or one that is not finite.
    """
    values = _finite(samples, counted)
    sd = float(values.std(ddof=1)) if len(values) > 1 else math.inf
    return summary_interval_t(
        float(values.mean()), sd, len(values), confidence, unit=unit, counted=counted
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
    """Return Student's t interval from what is left of samples: mean, deviation and count.

    Args:
        mean: of the samples.
        sd: their sample standard deviation, with n - 1 in the denominator.
        n: how many there were.
        confidence: two-sided coverage.
        unit: of mean and deviation.
        counted: what `n` counts, in the plural.
    """
    half = _t_half_width(sd / math.sqrt(n), n - 1, confidence)
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
    base: Sequence[float],
    other: Sequence[float],
    confidence: float = DECISION_CONFIDENCE,
) -> Estimate:
    """Return the relative change ``other / base - 1`` of samples measured in pairs.

    Student's t on the log ratios, so that swapping the arms inverts the ratio and its bounds.

    Raises:
        MeasurementError: unequal numbers of samples, none, or one that is not positive and finite.
    """
    if len(base) != len(other):
        raise _unequal(f"{len(base)} and {len(other)} samples cannot be paired")
    logs = _logs(other) - _logs(base)
    half = _t_half_width(_standard_error(logs), len(logs) - 1, confidence)
    return _log_change(
        float(logs.mean()),
        half,
        len(logs),
        confidence=confidence,
        counted="pairs",
        method="Student's t on log ratios",
    )


def unpaired_change_interval(
    base: Sequence[float],
    other: Sequence[float],
    confidence: float = DECISION_CONFIDENCE,
) -> Estimate:
    """Return the relative change ``other / base - 1`` of two independent series.

    Welch's t on the logs (Welch, Biometrika 34, 1947), so the change is that of geometric means.
    It covers what varied inside each series: differences between loads only where each sample is
    from a load of its own, and never those between sessions.

    Raises:
        MeasurementError: a series is empty or holds a value that is not positive and finite.
    """
    logs_base, logs_other = _logs(base), _logs(other)
    var_base, var_other = _standard_error(logs_base) ** 2, _standard_error(logs_other) ** 2
    variance = var_base + var_other
    if 0 < variance < math.inf:
        spread = var_base**2 / (len(base) - 1) + var_other**2 / (len(other) - 1)
        half = _t_half_width(math.sqrt(variance), variance**2 / spread, confidence)
    else:
        half = variance
    return _log_change(
        float(logs_other.mean() - logs_base.mean()),
        half,
        min(len(base), len(other)),
        confidence=confidence,
        counted="samples each",
        method="Welch's t on logs",
    )


def chunk_mean_interval(
    values: Chunks, confidence: float = DECISION_CONFIDENCE, *, unit: str
) -> Estimate:
    """Return the mean over all tokens, with Student's t interval over the chunks.

    Chunks of unequal length are clusters of unequal size: the mean is the ratio of summed values
    to summed tokens, its variance ``C / (C - 1) * sum((s_c - m n_c)^2) / N^2`` (Cochran,
    *Sampling Techniques*, 3rd ed., section 6.4). With equal lengths that is the t interval on
    the chunk means. Infinite below `LEAST_CHUNKS`.

    Raises:
        MeasurementError: no chunks, an empty chunk, or a value that is not finite.
    """
    mean, error = _clustered(values)
    half = _half_width_by_chunks(error, len(values), confidence)
    return Estimate(
        mean,
        mean - half,
        mean + half,
        len(values),
        method=_method_by_chunks("mean over tokens, Student's t over chunks", len(values)),
        unit=unit,
        counted="chunks",
        confidence=confidence,
    )


def chunk_difference_interval(
    base: Chunks, other: Chunks, confidence: float = DECISION_CONFIDENCE, *, unit: str
) -> Estimate:
    """Return the mean of ``other - base`` over tokens scored by both, paired by chunk.

    Raises:
        MeasurementError: as `chunk_mean_interval`, or the arms did not score the same tokens.
    """
    return chunk_mean_interval(paired_differences(base, other), confidence, unit=unit)


def delta_ppl(base: Chunks, other: Chunks, confidence: float = DECISION_CONFIDENCE) -> Estimate:
    """Return ``PPL_other / PPL_base - 1`` from token NLL by chunk, paired by chunk.

    The point is that of llama-perplexity's PPL over all tokens; the interval is Student's t on
    the mean NLL difference, mapped through ``exp(x) - 1``; infinite below `LEAST_CHUNKS`.

    Args:
        base: NLL of each scored token in nats, by chunk, of the baseline.
        other: the same tokens scored by the other model.
        confidence: two-sided coverage.

    Raises:
        MeasurementError: as `chunk_difference_interval`.
    """
    differences = paired_differences(base, other)
    mean, error = _clustered(differences)
    n_chunks = len(differences)
    return _log_change(
        mean,
        _half_width_by_chunks(error, n_chunks, confidence),
        n_chunks,
        confidence=confidence,
        counted="chunks",
        method=_method_by_chunks("Student's t on paired NLL differences of chunks", n_chunks),
    )


def paired_differences(base: Chunks, other: Chunks) -> list[NDArray[np.float64]]:
    """Return ``other - base`` for each token scored by both, by chunk.

    Of two such differences the other functions take the difference again: by how much one step
    is larger than another.

    Raises:
        MeasurementError: the arms did not score the same tokens.
    """
    if [len(chunk) for chunk in base] != [len(chunk) for chunk in other]:
        raise _unequal("the two arms hold different numbers of chunks, or of tokens in a chunk")
    return [
        np.asarray(o, dtype=np.float64) - np.asarray(b, dtype=np.float64)
        for b, o in zip(base, other, strict=True)
    ]


def share_interval(
    hits: Sequence[Sequence[bool]], confidence: float = DECISION_CONFIDENCE
) -> Estimate:
    """Return the share of hits among all tokens, with a Wilson interval that knows of chunks.

    Wilson's score interval (JASA 22, 1927) with the token count divided by the design effect of
    the chunks, and t in place of the normal quantile, after Korn & Graubard (Survey Methodology
    24, 1998). Unlike a plain t interval it stays inside [0, 1] and keeps a width where every
    token is a hit; there the design effect is unknown and taken as 1.

    Raises:
        MeasurementError: no chunks, or an empty chunk.
    """
    share, error = _clustered(hits)
    n_chunks, n_tokens = len(hits), sum(map(len, hits))
    if n_chunks < LEAST_CHUNKS:
        low, high = -math.inf, math.inf
    else:
        independent = share * (1 - share) / n_tokens
        design_effect = max(1.0, error**2 / independent) if independent else 1.0
        low, high = _wilson(share, n_tokens / design_effect, _t(n_chunks - 1, confidence))
    return Estimate(
        share,
        low,
        high,
        n_chunks,
        method=_method_by_chunks("Wilson, effective token count by chunks", n_chunks),
        unit=SHARE,
        counted="chunks",
        confidence=confidence,
    )


def sd_interval(
    sd: float, n: int, confidence: float = DECISION_CONFIDENCE, *, unit: str, counted: str = "runs"
) -> Estimate:
    """Return a standard deviation with its chi-square interval, for normal samples.

    Raises:
        ValueError: fewer than two samples, or a negative deviation.
    """
    if n < 2 or not sd >= 0:
        raise ValueError(f"a standard deviation of {sd} over {n} {counted}")
    tail = (1 - _proper(confidence)) / 2
    low, high = (sd * math.sqrt((n - 1) / float(chdtri(n - 1, p))) for p in (tail, 1 - tail))
    return Estimate(
        sd,
        low,
        high,
        n,
        method=f"chi-square over {counted}",
        unit=unit,
        counted=counted,
        confidence=confidence,
    )


def t_quantile(degrees: float, confidence: float) -> float:
    """Return the half-width of a two-sided Student's t interval in standard errors."""
    return _t(degrees, confidence)


def z_quantile(confidence: float) -> float:
    """Return the half-width of a two-sided normal interval in standard errors."""
    return float(ndtri(0.5 + _proper(confidence) / 2))


def shared_confidence(confidence: float, comparisons: int) -> float:
    """Return the confidence of each of several intervals that together keep the error (Bonferroni).

    Raises:
        ValueError: fewer than one comparison, or a confidence outside (0, 1).
    """
    if comparisons < 1:
        raise ValueError(f"nothing to share the error between: {comparisons} comparisons")
    return 1 - (1 - _proper(confidence)) / comparisons


def neighbour_estimates(
    series: Sequence[_Series],
    compare: Compare[_Series],
    confidence: float = DECISION_CONFIDENCE,
) -> tuple[Estimate, ...]:
    """Compare each series with the next, the error shared among the neighbours.

    Args:
        series: at least two series in the claimed order.
        compare: how two of them are compared: `delta_ppl` for NLL by chunk,
            `unpaired_change_interval` for the repetitions of two measurements.
        confidence: two-sided coverage of all intervals together.

    Raises:
        ValueError: fewer than two series.
        MeasurementError: as `compare`.
    """
    each = shared_confidence(confidence, len(series) - 1)
    return tuple(compare(a, b, confidence=each) for a, b in pairwise(series))


def _log_change(
    mean: float, half: float, n: int, *, confidence: float, counted: str, method: str
) -> Estimate:
    """Map an interval on the log scale to a relative change."""
    return Estimate(
        _expm1(mean),
        _expm1(mean - half),
        _expm1(mean + half),
        n,
        method=method,
        unit=CHANGE,
        counted=counted,
        confidence=confidence,
    )


def _expm1(x: float) -> float:
    return math.expm1(x) if x < math.log(sys.float_info.max) else math.inf


def _clustered(values: Chunks) -> tuple[float, float]:
    """Return the token-weighted mean and its standard error over chunks (infinite for one)."""
    if not len(values):
        raise _empty("chunks")
    sums = np.array([_finite(chunk, "tokens in a chunk").sum() for chunk in values])
    counts = np.array([len(chunk) for chunk in values])
    n_chunks, n_tokens = len(counts), int(counts.sum())
    mean = float(sums.sum()) / n_tokens
    if n_chunks == 1:
        return mean, math.inf
    residuals = sums - mean * counts
    squares = float(residuals @ residuals)
    return mean, math.sqrt(n_chunks / (n_chunks - 1) * squares) / n_tokens


def _standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def _t(degrees: float, confidence: float) -> float:
    return float(stdtrit(degrees, 0.5 + _proper(confidence) / 2))


def _t_half_width(error: float, degrees: float, confidence: float) -> float:
    return _t(degrees, confidence) * error if degrees > 0 else math.inf


def _half_width_by_chunks(error: float, n_chunks: int, confidence: float) -> float:
    if n_chunks < LEAST_CHUNKS:
        return math.inf
    return _t_half_width(error, n_chunks - 1, confidence)


def _method_by_chunks(method: str, n_chunks: int) -> str:
    missing = n_chunks < LEAST_CHUNKS
    return f"{method}; an interval needs at least {LEAST_CHUNKS} chunks" if missing else method


def _wilson(share: float, n: float, z: float) -> tuple[float, float]:
    """Return Wilson's bounds, held to contain the share against rounding at 0 and 1."""
    shrink = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return min(max(centre - half, 0.0), share), max(min(centre + half, 1.0), share)


def _proper(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence lies between 0 and 1, not at {confidence}")
    return confidence


def _finite(values: Values, counted: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        raise _empty(counted)
    if not np.isfinite(array).all():
        raise MeasurementError(
            f"{np.count_nonzero(~np.isfinite(array))} of {array.size} {counted} are not finite",
            why="a mean or median over them would hide that the measurement broke",
            remedy="look at the engine's log for failed decodes or overflow",
        )
    return array


def _logs(values: Sequence[float]) -> NDArray[np.float64]:
    array = _finite(values, "samples")
    if not (array > 0).all():
        raise MeasurementError(
            f"a sample of {array.min():g} is not positive",
            why="a rate or duration of zero or less cannot have been measured",
            remedy="look at the engine's log for failed decodes",
        )
    return np.log(array)


def _empty(counted: str) -> MeasurementError:
    return MeasurementError(
        f"no {counted}",
        why="nothing measured can show nothing",
        remedy="look at the engine's log for why it produced none",
    )


def _unequal(what: str) -> MeasurementError:
    return MeasurementError(
        what,
        why="a paired comparison needs the same work in both arms",
        remedy="score the same chunks with both models, with the same tokenizer and context",
    )
