import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.stats.spread import reach, reach_one_another, reaches

rates = st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=30)


@given(rates)
def test_every_run_is_in_reach_and_zero_is_not(runs: list[float]) -> None:
    """The range has all runs in it and, as of a rate, nothing at or below 0."""
    low, high = reach(runs)
    assert 0 < low <= min(runs) <= max(runs) <= high
    assert all(reaches(runs, [run]) for run in runs)


@given(rates, st.floats(1e-2, 1e2))
def test_reach_follows_the_unit(runs: list[float], factor: float) -> None:
    """Shares of a bandwidth are in the reach of a limit where their rates are."""
    scaled = reach([factor * run for run in runs])
    assert scaled == pytest.approx([factor * bound for bound in reach(runs)], rel=1e-9)


@given(rates)
def test_reach_is_the_same_for_times(runs: list[float]) -> None:
    """Times are the inverse of rates, and so are their bounds."""
    low, high = reach(runs)
    assert reach([1 / run for run in runs]) == pytest.approx((1 / high, 1 / low), rel=1e-9)


@given(rates, st.floats(1e-6, 1e9), st.floats(1.0, 10.0))
def test_a_limit_that_is_farther_is_not_nearer(
    runs: list[float], limit: float, more: float
) -> None:
    """Below all runs, half of an unreached limit is unreached; above them, its double is."""
    if not reaches(runs, [limit]):
        farther = limit / more if limit < min(runs) else limit * more
        assert not reaches(runs, [farther])


@given(rates, rates)
def test_series_reach_one_another_from_both_sides(a: list[float], b: list[float]) -> None:
    """It is symmetric, and true for a series and itself."""
    assert reach_one_another(a, b) == reach_one_another(b, a)
    assert reach_one_another(a, a)


def test_one_run_reaches_everything() -> None:
    """Its spread is unknown."""
    assert reach([918.0]) == (-math.inf, math.inf)
    assert reaches([918.0], [1.0])
    assert not reaches([918.0, 919.0], [])


def test_a_distant_limit_is_out_of_reach_of_a_wide_spread() -> None:
    """918 tok/s that vary by 16 % reach 1,100 and not 1; nor does a stall of ten times reach 1."""
    runs = [780.0, 900.0, 918.0, 950.0, 1244.0]
    assert not reaches(runs, [1.0, 40.0])
    assert reaches(runs, [1.0, 1100.0])
    assert not reaches([19.0, *[179.0] * 9], [10.0])
