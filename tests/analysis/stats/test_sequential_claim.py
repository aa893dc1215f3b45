import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.outcome import Decision
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.stats.ratio_test import RatioTest

differences = st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=40)
limits = st.floats(-0.6, 2.0)


def fed(ratios: list[float], limit: float) -> RatioTest:
    """Return a test of one limit that was given ratios until it was decided."""
    test = RatioTest(at_most=1 + limit)
    next(filter(None, map(test.update, ratios)), None)
    return test


@pytest.mark.parametrize(
    ("effect", "outcome"), [(-0.05, Decision.PASS), (0.05, Decision.FAIL), (0.0, None)]
)
def test_either_side_of_the_limit_is_a_verdict(effect: float, outcome: Decision | None) -> None:
    """Five quiet pairs decide the direction of the cost, and nothing decides at the limit."""
    test = fed([math.log1p(-0.2) + effect] * 59, -0.2)
    assert test.outcome == outcome
    assert test.n == (5 if outcome else 59)
    assert test.expected_pairs_left == (0 if outcome else None)


@given(differences, limits)
def test_the_verdict_is_that_of_the_whole_interval(ratios: list[float], limit: float) -> None:
    """A PASS has its interval at or below the limit, a FAIL at or above, and none is on both."""
    test = fed(ratios, limit)
    low, high = test.interval
    assert low <= high
    bound = math.log1p(limit)
    if test.outcome == Decision.PASS:
        assert high <= bound + 1e-12
    elif test.outcome == Decision.FAIL:
        assert low >= bound - 1e-12
    else:
        assert low <= bound <= high or test.n < test.min_pairs


@given(differences, limits)
def test_reflection_about_the_limit_mirrors_the_verdict(ratios: list[float], limit: float) -> None:
    """With the variants swapped and the limit inverted, PASS and FAIL are exchanged."""
    mirror = {Decision.PASS: Decision.FAIL, Decision.FAIL: Decision.PASS}
    bound = math.log1p(limit)
    # On a grid, so that rounding does not decide about the needed evidence.
    offsets = [round(r * 1024) / 1024 for r in ratios]
    test = fed([bound + o for o in offsets], limit)
    swapped = fed([-bound - o for o in offsets], 1 / (1 + limit) - 1)
    assert swapped.n == test.n
    assert swapped.outcome == (mirror.get(test.outcome) if test.outcome else None)


def test_error_rates_at_the_limit() -> None:
    """If the truth is the limit, with outliers, each wrong verdict stays within its 5 %."""
    rng = np.random.default_rng(11)
    gates = 300
    outcomes = []
    for _ in range(gates):
        outliers = rng.choice((-0.18, 0.18), 60) * (rng.random(60) < 0.1)
        ratios = math.log1p(-0.3) + rng.normal(0, 0.028, 60) + outliers
        outcomes.append(fed(ratios.tolist(), -0.3).outcome)
    # Above the bound by chance in one of 1,000 such tests.
    assert outcomes.count(Decision.PASS) <= 28
    assert outcomes.count(Decision.FAIL) <= 28


def test_what_would_decide_it_is_forecast() -> None:
    """Two thirds through a steady series, the forecast is of the size of the final number."""
    series = [0.02 + (0.04 if i % 2 else -0.03) for i in range(120)]
    whole = fed(series, 0.0)
    half = fed(series[: 2 * whole.n // 3], 0.0)
    assert half.outcome is None
    assert half.expected_pairs_left == pytest.approx(whole.n - half.n, rel=1)


@pytest.mark.parametrize("limit", [-1.0, math.nan, 1e7])
def test_impossible_limits_are_refused(limit: float) -> None:
    """No cost is 100 % less."""
    with pytest.raises(ValueError, match="cannot be tested"):
        RatioTest(at_most=1 + limit)


def test_a_ratio_of_costs_becomes_one_of_rates() -> None:
    """The bounds change places, and nothing excluded stays so."""
    cost = Estimate(0.5, 0.4, 0.8, 9, method="m", unit="")
    rate = cost.inverted()
    assert (rate.point, rate.low, rate.high) == (2.0, 1.25, 2.5)
    unbounded = Estimate(0.5, -math.inf, math.inf, 2, method="m", unit="").inverted()
    assert (unbounded.low, unbounded.high) == (-math.inf, math.inf)
    with pytest.raises(ValueError, match="ratio"):
        Estimate(0.5, -0.1, 0.8, 9, method="m", unit="").inverted()


@given(differences, st.floats(-0.4, 0.4), st.floats(0.01, 0.5))
def test_two_limits_are_judged_by_the_whole_interval(
    ratios: list[float], low: float, width: float
) -> None:
    """A PASS has its interval within both limits, and a FAIL beyond one of them."""
    test = RatioTest(math.exp(low), math.exp(low + width))
    next(filter(None, map(test.update, ratios)), None)
    bounds = test.interval
    if test.outcome == Decision.PASS:
        assert low - 1e-12 <= bounds[0] <= bounds[1] <= low + width + 1e-12
    elif test.outcome == Decision.FAIL:
        assert bounds[0] >= low + width - 1e-12 or bounds[1] <= low + 1e-12


@pytest.mark.parametrize("limits", [(0.0, math.inf), (2.0, 1.0), (1.0, 1.0), (-1.0, 2.0)])
def test_limits_that_leave_no_claim_are_refused(limits: tuple[float, float]) -> None:
    """There is a limit, and room below it."""
    with pytest.raises(ValueError, match="cannot be tested"):
        RatioTest(*limits)
