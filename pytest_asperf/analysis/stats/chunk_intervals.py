"""Intervals for scores grouped by chunk.

Chunked data are sequences of chunks, each a sequence of one value per scored token; chunks may
differ in length. Tokens of one chunk share their context and are not independent, so the chunks are
the basis of the intervals.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pytest_asperf.analysis.stats.estimate import (
    DECISION_CONFIDENCE,
    SHARE,
    Chunks,
    Estimate,
    finite_array,
    nothing_measured,
    unequal_work,
)
from pytest_asperf.analysis.stats.intervals import t_half_width, t_quantile

#: Chunks from which an interval over them has bounds. With fewer, Student's t errs in far more than
#: its 5 % where a corpus has two kinds of text; see docs/statistics.md, "How many chunks".
LEAST_CHUNKS: Final = 5


def chunk_mean_interval(
    values: Chunks,
    confidence: float = DECISION_CONFIDENCE,
    *,
    unit: str,
    method: str = "mean over tokens, Student's t over chunks",
) -> Estimate:
    """The mean over all tokens, with Student's t interval over the chunks.

    Chunks of unequal length are clusters of unequal size: the mean is the ratio of summed values
    to summed tokens, its variance ``C / (C - 1) * sum((s_c - m n_c)^2) / N^2`` (Cochran,
    *Sampling Techniques*, 3rd ed., section 6.4). With equal lengths that is the t interval on
    the chunk means. Infinite below `LEAST_CHUNKS`.

    Raises:
        MeasurementError: no chunks, an empty chunk, or a value that is not finite.
    """
    mean, error = _clustered(values)
    n_chunks = len(values)
    half = math.inf
    if n_chunks >= LEAST_CHUNKS:
        half = t_half_width(error, n_chunks - 1, confidence)
    return Estimate(
        mean,
        mean - half,
        mean + half,
        n_chunks,
        method=_method_by_chunks(method, n_chunks),
        needed=LEAST_CHUNKS,
        unit=unit,
        counted="chunks",
        confidence=confidence,
    )


def chunk_difference_interval(
    base: Chunks, other: Chunks, confidence: float = DECISION_CONFIDENCE, *, unit: str
) -> Estimate:
    """The mean of ``other - base`` over tokens scored by both, paired by chunk."""
    return chunk_mean_interval(paired_differences(base, other), confidence, unit=unit)


def chunk_ratio_interval(values: Chunks, base: Chunks) -> Estimate:
    """The mean of `values` over the mean of `base`, of tokens that both have, paired by chunk.

    Fieller's interval (JRSS B 16, 1954): the ratios r that Student's t on ``values - r * base``
    does not exclude. A bound is infinite if the base's mean is not shown to be above 0.
    """
    rows = [np.array([np.sum(chunk) for chunk in side]) for side in (values, base)]
    mean, base_mean = (_clustered(side)[0] for side in (values, base))
    differences = paired_differences(base, values)
    n_chunks, n_tokens = len(differences), sum(map(len, differences))
    point = mean / base_mean if base_mean > 0 else math.inf
    if not math.isfinite(point):
        raise nothing_measured("a base above 0")
    low, high = -math.inf, math.inf
    if n_chunks >= LEAST_CHUNKS:
        counts = np.array([len(chunk) for chunk in base])
        residuals = np.array([rows[0] - mean * counts, rows[1] - base_mean * counts])
        covariance = n_chunks / (n_chunks - 1) * (residuals @ residuals.T) / n_tokens**2
        t = t_quantile(n_chunks - 1, DECISION_CONFIDENCE)
        low, high = _fieller((mean, base_mean), covariance, t)
    return Estimate(
        point,
        min(low, point),
        max(high, point),
        n_chunks,
        method=_method_by_chunks("Fieller's interval over chunks", n_chunks),
        needed=LEAST_CHUNKS,
        unit="x",
        counted="chunks",
    )


def _fieller(
    means: tuple[float, float], covariance: NDArray[np.float64], t: float
) -> tuple[float, float]:
    """The roots r of ``(m - r b)^2 = t^2 var(m - r b)``; unbounded if the base may be 0."""
    m, b = means
    square = b * b - t * t * float(covariance[1, 1])
    if square <= 0:
        return -math.inf, math.inf
    half = m * b - t * t * float(covariance[0, 1])
    root = math.sqrt(max(0.0, half * half - square * (m * m - t * t * float(covariance[0, 0]))))
    return (half - root) / square, (half + root) / square


def delta_ppl(base: Chunks, other: Chunks, confidence: float = DECISION_CONFIDENCE) -> Estimate:
    """``PPL_other / PPL_base - 1`` from token NLL by chunk in nats, paired by chunk.

    The point is that of llama-perplexity's PPL over all tokens; the interval is Student's t on
    the mean NLL difference, mapped through ``exp(x) - 1``; infinite below `LEAST_CHUNKS`.
    """
    differences = paired_differences(base, other)
    method = "Student's t on paired NLL differences of chunks"
    return chunk_mean_interval(differences, confidence, unit="", method=method).change_of_log()


def paired_differences(base: Chunks, other: Chunks) -> list[NDArray[np.float64]]:
    """``other - base`` by token and chunk; MeasurementError unless both scored the same tokens."""
    if [len(chunk) for chunk in base] != [len(chunk) for chunk in other]:
        raise unequal_work(
            "the two variants have different numbers of chunks, or of tokens in a chunk"
        )
    return [
        np.asarray(o, dtype=np.float64) - np.asarray(b, dtype=np.float64)
        for b, o in zip(base, other, strict=True)
    ]


def share_interval(
    hits: Sequence[Sequence[bool]],
    confidence: float = DECISION_CONFIDENCE,
    *,
    counted: str = "chunks",
) -> Estimate:
    """The share of hits among all tokens, with a Wilson interval widened for chunks.

    Wilson's score interval (JASA 22, 1927) with the token count divided by the design effect of the
    chunks, and t instead of the normal quantile, after Korn & Graubard (Survey Methodology 24,
    1998). Unlike a plain t interval it stays inside [0, 1] and keeps a width if every token is a
    hit; there the design effect is unknown and counts as 1.

    Raises:
        MeasurementError: no chunks, or an empty chunk.
    """
    share, _ = _clustered(hits)
    n_chunks, n_tokens = len(hits), sum(map(len, hits))
    if n_chunks < LEAST_CHUNKS:
        low, high = -math.inf, math.inf
    else:
        effective = n_tokens / design_effect(hits)
        low, high = wilson_bounds(share, effective, t_quantile(n_chunks - 1, confidence))
    return Estimate(
        share,
        low,
        high,
        n_chunks,
        method=_method_by_chunks(f"Wilson, effective token count by {counted}", n_chunks, counted),
        needed=LEAST_CHUNKS,
        unit=SHARE,
        counted=counted,
        confidence=confidence,
    )


def design_effect(hits: Sequence[Sequence[bool]]) -> float:
    """How many times the variance of a share is that of independent observations; at least 1.

    Infinite for one chunk, which shows nothing of the differences between chunks, and 1 for a share
    of 0 or 1.
    """
    share, error = _clustered(hits)
    independent = share * (1 - share) / sum(map(len, hits))
    return max(1.0, error**2 / independent) if independent else 1.0


def _clustered(values: Chunks) -> tuple[float, float]:
    """The token-weighted mean and its standard error over chunks (infinite for one)."""
    if not len(values):
        raise nothing_measured("chunks")
    sums = np.array([finite_array(chunk, "tokens in a chunk").sum() for chunk in values])
    counts = np.array([len(chunk) for chunk in values])
    n_chunks, n_tokens = len(counts), int(counts.sum())
    mean = float(sums.sum()) / n_tokens
    if n_chunks == 1:
        return mean, math.inf
    residuals = sums - mean * counts
    squares = float(residuals @ residuals)
    return mean, math.sqrt(n_chunks / (n_chunks - 1) * squares) / n_tokens


def _method_by_chunks(method: str, n_chunks: int, counted: str = "chunks") -> str:
    missing = n_chunks < LEAST_CHUNKS
    return f"{method}; an interval needs at least {LEAST_CHUNKS} {counted}" if missing else method


def wilson_bounds(share: float, n: float, z: float) -> tuple[float, float]:
    """Wilson's bounds, clipped to contain the share despite rounding at 0 and 1."""
    shrink = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return min(max(centre - half, 0.0), share), max(min(centre + half, 1.0), share)
