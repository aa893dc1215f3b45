"""The change from one estimate to another that was made apart from it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.stats.estimate import CHANGE, Estimate
from pytest_asperf.analysis.stats.intervals import independent_change, median_interval, t_quantile

POSITIVE = st.floats(1e-3, 1e6)
RATES = st.tuples(POSITIVE, st.floats(0, 0.9), st.floats(0, 5)).map(
    lambda t: estimate(t[0], t[0] * (1 - t[1]), t[0] * (1 + t[2]))
)


def estimate(point: float, low: float, high: float, unit: str = "tok/s") -> Estimate:
    """Return an estimate with these bounds."""
    return Estimate(point, low, high, 5, method="made up", unit=unit)


@given(RATES, POSITIVE)
def test_against_an_exact_figure_the_interval_stays(live: Estimate, figure: float) -> None:
    """Nothing is added for a known figure: each bound is divided by it."""
    change = independent_change(Estimate.exact(figure, "tok/s"), live)
    bounds = [value / figure - 1 for value in (live.point, live.low, live.high)]
    assert [change.point, change.low, change.high] == pytest.approx(bounds, rel=1e-9, abs=1e-9)
    assert (change.confidence, change.n) == (0.9, 5)


@given(RATES, RATES)
def test_swapped_estimates_invert_the_change(one: Estimate, other: Estimate) -> None:
    """The change back has the inverse ratio and bounds, and both are wider than either alone."""
    there, back = (
        independent_change(one, other).as_ratio(),
        independent_change(other, one).as_ratio(),
    )
    assert there.low * back.high == pytest.approx(1)
    assert there.high * back.low == pytest.approx(1)
    # A ratio near 0 is stored as a change near -1, which has fewer digits.
    assert there.high / there.point >= other.high / other.point * (1 - 1e-6)
    assert there.high / there.point >= one.point / one.low * (1 - 1e-6)


def test_changes_are_subtracted() -> None:
    """Two relative changes differ by points, each bound by both widths squared and added."""
    change = independent_change(
        estimate(0.01, 0.01 - 0.003, 0.02, CHANGE), estimate(0.015, 0.011, 0.02, CHANGE)
    )
    assert change.point == pytest.approx(0.005)
    assert change.low == pytest.approx(0.005 - math.hypot(0.004, 0.01))
    assert change.high == pytest.approx(0.005 + math.hypot(0.005, 0.003))


@pytest.mark.parametrize("low", [-math.inf, -1.0])
def test_an_unknown_bound_leaves_that_side_open(low: float) -> None:
    """An estimate without a lower bound gives a change without an upper one."""
    change = independent_change(estimate(10, low, 11), estimate(10, 9, 11))
    assert change.high == math.inf
    assert change.low > -0.3


def test_different_units_are_refused() -> None:
    """A rate is not compared with a time."""
    with pytest.raises(ValueError, match="tok/s"):
        independent_change(estimate(1, 1, 1, "ms"), estimate(1, 1, 1))


@pytest.mark.parametrize(
    ("n", "cv", "published_n", "published_cv"), [(8, 0.005, 3, 0.03), (12, 0.03, 3, 0.02)]
)
def test_each_bound_errs_in_at_most_one_of_twenty(
    n: int, cv: float, published_n: int, published_cv: float
) -> None:
    """A median of runs against a published mean with its sd and n, if nothing has changed."""
    rng, repeats = np.random.default_rng(16), 1000
    too_high = too_low = 0
    for _ in range(repeats):
        live = median_interval(np.exp(rng.normal(0, cv, n)).tolist(), unit="tok/s")
        runs = np.exp(rng.normal(0, published_cv, published_n))
        error = float(runs.std(ddof=1) / runs.mean()) / math.sqrt(published_n)
        half = math.exp(t_quantile(published_n - 1, 0.9) * error)
        mean = float(runs.mean())
        change = independent_change(estimate(mean, mean / half, mean * half), live)
        too_high += change.low > 0
        too_low += change.high < 0
    assert max(too_high, too_low) <= 0.05 * repeats + 3 * math.sqrt(0.05 * 0.95 * repeats)
