"""Percentiles with intervals from order statistics."""

import math

import numpy as np
import pytest
from scipy.stats import binom  # type: ignore[import-untyped]

from pytest_asperf.analysis.stats.intervals import median_interval
from pytest_asperf.analysis.stats.percentiles import percentile_interval


def of_singles(values: list[float], percentile: float) -> tuple[float, float]:
    """Return the bounds of a percentile of independent samples."""
    estimate = percentile_interval([[value] for value in values], percentile, unit="ms")
    return estimate.low, estimate.high


@pytest.mark.parametrize("n", [4, 5, 8, 11, 40])
def test_p50_is_the_median(n: int) -> None:
    """For independent samples it has the same bounds."""
    values = np.random.default_rng(n).normal(size=n).tolist()
    estimate = median_interval(values, unit="ms")
    assert of_singles(values, 50) == (estimate.low, estimate.high)


@pytest.mark.parametrize(("n", "is_bounded"), [(58, False), (59, True)])
def test_p95_needs_59_samples_for_its_upper_bound(n: int, *, is_bounded: bool) -> None:
    """0.95^59 is the first power below 5 %, and then the largest sample is the bound."""
    _, high = of_singles([float(value) for value in range(n)], 95)
    assert high == (n - 1 if is_bounded else math.inf)


@pytest.mark.parametrize("percentile", [10.0, 75.0, 95.0])
def test_ranks_are_the_tightest_that_the_binomial_allows(percentile: float) -> None:
    """Each bound errs in at most 5 %, and the next sample towards the point in more."""
    n, share = 200, percentile / 100
    low, high = of_singles([float(value) for value in range(1, n + 1)], percentile)
    assert binom.cdf(low - 1, n, share) <= 0.05 < binom.cdf(low, n, share)
    assert binom.sf(high - 1, n, share) <= 0.05 < binom.sf(high - 2, n, share)


def test_samples_of_a_run_count_for_less_the_more_runs_differ() -> None:
    """Runs whose tokens all share one offset count as few."""
    rng = np.random.default_rng(1)
    alike = rng.normal(10, 1, (10, 100))
    shifted = alike + rng.normal(0, 5, (10, 1))
    narrow, wide = (percentile_interval(runs.tolist(), 50, unit="ms") for runs in (alike, shifted))
    assert narrow.high - narrow.low < 0.5
    assert wide.high - wide.low > 3
    assert "worth" in wide.method


def test_one_run_has_no_interval() -> None:
    """One run does not show how runs differ."""
    estimate = percentile_interval([[1.0, 2.0, 3.0] * 50], 50, unit="ms", counted="tokens")
    assert not estimate.has_interval
    assert "two runs" in estimate.method


def test_impossible_percentiles_are_refused() -> None:
    """No value is exceeded by all samples."""
    with pytest.raises(ValueError, match="100"):
        percentile_interval([[1.0]], 100, unit="ms")


def test_coverage_over_runs_that_differ() -> None:
    """With tokens that share a run's offset, p90's bounds err in about 5 % each."""
    rng = np.random.default_rng(3)
    # For normal tokens of variance 1 in runs whose offsets have variance 1/4.
    truth, wrong = 1.2815515655 * math.sqrt(1.25), [0, 0]
    repetitions = 300
    for _ in range(repetitions):
        runs = rng.normal(size=(12, 64)) + rng.normal(scale=0.5, size=(12, 1))
        estimate = percentile_interval(runs.tolist(), 90, unit="ms")
        wrong[0] += estimate.low > truth
        wrong[1] += estimate.high < truth
    assert max(wrong) <= binom.ppf(0.999, repetitions, 0.07)
