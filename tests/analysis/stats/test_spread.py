"""A coefficient of variation with its interval."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom  # type: ignore[import-untyped]

from pytest_asperf.analysis.stats.spread import cv_interval, cv_ratio_interval
from pytest_asperf.errors import MeasurementError


def test_it_follows_bonett() -> None:
    """The formula of the paper, written out for ten values, with t for z."""
    values = np.array([4.0, 5, 5.5, 6, 6.2, 6.4, 7, 7.5, 8.1, 10])
    n, z, t = 10, 1.6448536, 1.8331129
    trimmed = np.sort(values)[2:-2].mean()
    kurtosis = n * ((values - trimmed) ** 4).sum() / (((values - values.mean()) ** 2).sum()) ** 2
    c = n / (n - z)
    error = c * math.sqrt((kurtosis - (n - 3) / n) / (n - 1))
    bounds = [
        math.exp((math.log(c * values.var(ddof=1)) + sign * t * error) / 2) / values.mean()
        for sign in (-1, 1)
    ]
    estimate = cv_interval(values)
    assert [estimate.low, estimate.high] == pytest.approx(bounds, rel=1e-6)


@given(st.lists(st.floats(1, 2), min_size=5, max_size=30, unique=True), st.floats(0.01, 100))
def test_a_unit_does_not_matter(values: list[float], factor: float) -> None:
    """A spread of times in ns is that in ms, and a series against itself has the ratio 1."""
    estimate, scaled = cv_interval(values), cv_interval([factor * value for value in values])
    assert scaled.high == pytest.approx(estimate.high, rel=1e-6)
    assert estimate.low <= estimate.point <= estimate.high
    assert cv_ratio_interval(values, values).point == 1


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0], [1.0, -1.0], [1.0, math.nan]])
def test_what_shows_no_spread_is_refused(values: list[float]) -> None:
    """Neither one run nor equal runs show how runs vary."""
    with pytest.raises(MeasurementError):
        cv_interval(values)


@pytest.mark.parametrize("kind", ["normal", "uniform", "two speeds"])
def test_bounds_err_as_stated(kind: str) -> None:
    """With ten runs, neither bound errs in much more than 5 %, also where runs are not normal."""
    rng = np.random.default_rng(5)
    repetitions, wrong = 400, [0, 0]
    shape = (repetitions, 10)
    series, cv = {
        "normal": (rng.normal(100, 1, shape), 1 / 100),
        "uniform": (rng.uniform(99, 101, shape), 1 / math.sqrt(3) / 100),
        "two speeds": (
            rng.normal(100, 0.3, shape) + 2 * (rng.random(shape) < 0.5),
            math.sqrt(1.09) / 101,
        ),
    }[kind]
    for values in series:
        estimate = cv_interval(values)
        wrong[0] += estimate.low > cv
        wrong[1] += estimate.high < cv
    assert max(wrong) <= binom.ppf(0.999, repetitions, 0.05)
