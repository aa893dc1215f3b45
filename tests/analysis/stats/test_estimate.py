import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.stats.estimate import CHANGE, SHARE, Estimate, limit_text


def make(point: float, low: float, high: float, unit: str = "tok/s", n: int = 10) -> Estimate:
    """Return an estimate with the given figures."""
    return Estimate(point, low, high, n, method="by hand", unit=unit)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (make(0.0018, 0.0001, 0.0035, CHANGE), "+0.18 % [0.01, 0.35]"),
        (make(412.34, 409.12, 414.04), "412.3 tok/s [409.1, 414.0]"),
        (make(2.67, 2.15, 3.28, CHANGE), "+267 % [215, 328]"),
        (make(-0.0734, -0.0791, -0.0677, CHANGE), "-7.34 % [-7.91, -6.77]"),
        (make(0.9631, 0.9589, 0.9671, SHARE), "96.31 % [95.89, 96.71]"),
        (make(0.000123, 0.000101, 0.000144, "nats"), "0.000123 nats [0.000101, 0.000144]"),
        (make(12.5, 12.5, 12.5, "ms"), "12.50 ms [12.50, 12.50]"),
        (make(0.0, 0.0, 0.0, CHANGE), "+0 % [0, 0]"),
        (make(-0.00001, -0.002, 0.002, CHANGE), "+0.00 % [-0.20, 0.20]"),
        (make(9.87, -math.inf, math.inf, ""), "9.9 (too few samples for an interval)"),
        (make(0.981, -math.inf, 1.0314, ""), "0.981 [-, 1.031]"),
        (make(1.102, 1.021, math.inf, ""), "1.102 [1.021, -]"),
        (Estimate.exact(4482.4, "MB"), "4482 MB"),
    ],
)
def test_text_shows_what_the_width_supports(estimate: Estimate, text: str) -> None:
    """A figure carries two significant digits of its interval's half-width, and its unit."""
    assert str(estimate) == text


def test_text_keeps_a_bound_apart_from_the_limit() -> None:
    """A bound just below the limit is not printed as the limit."""
    near = make(0.0054, 0.001, 0.009996, CHANGE)
    assert near.text() == "+0.54 % [0.10, 1.00]"
    assert near.text(apart_from=(0.01,)) == "+0.5400 % [0.1000, 0.9996]"
    assert make(0.0054, 0.001, 0.01, CHANGE).text(apart_from=(0.01,)) == "+0.54 % [0.10, 1.00]"


def test_limit_text_hides_binary_noise() -> None:
    """A limit is printed as it was written."""
    assert limit_text(0.07, CHANGE) == "7 %"
    assert limit_text(40.0, "tok/s") == "40 tok/s"
    assert limit_text(11.5, "") == "11.5"


@pytest.mark.parametrize(
    ("point", "low", "high", "n"),
    [(2, 0, 1, 3), (-1, 0, 1, 3), (math.nan, 0, 1, 3), (0, math.nan, 1, 3), (0, -1, 1, 0)],
)
def test_impossible_estimates_are_refused(point: float, low: float, high: float, n: int) -> None:
    """Bounds that do not enclose the point, NaN and n = 0 cannot be represented."""
    with pytest.raises(ValueError, match=r"enclose|impossible"):
        make(point, low, high, n=n)


def test_impossible_confidence_is_refused() -> None:
    """A coverage above 1 cannot be represented."""
    with pytest.raises(ValueError, match="confidence"):
        Estimate(0, 0, 0, 1, method="", unit="", confidence=1.5)


def test_a_limit_on_the_bound_separates_strict_from_inclusive() -> None:
    """An interval that ends on the limit is shown at most it, not below it."""
    estimate = make(1, 0, 2)
    assert estimate.shown_at_most(2)
    assert not estimate.shown_below(2)
    assert estimate.shown_at_least(0)
    assert not estimate.shown_above(0)


finite = st.floats(-1e6, 1e6)


@given(st.tuples(finite, finite, finite), st.floats(1e-6, 1e6))
def test_scaling_keeps_the_order(values: tuple[float, float, float], factor: float) -> None:
    """For any positive factor, the bounds still enclose the point."""
    low, point, high = sorted(values)
    scaled = make(point, low, high).scaled(factor, "x")
    assert (scaled.low, scaled.point, scaled.high) == (low * factor, point * factor, high * factor)
    assert scaled.unit == "x"


@pytest.mark.parametrize("factor", [0, -1, math.nan])
def test_scaling_by_a_non_positive_factor_is_refused(factor: float) -> None:
    """A factor that would swap or merge the bounds is a programming error."""
    with pytest.raises(ValueError, match="positive"):
        make(1, 0, 2).scaled(factor, "x")


@given(st.tuples(finite, finite, finite), st.sampled_from([CHANGE, SHARE, "ms", ""]))
def test_text_never_fails(values: tuple[float, float, float], unit: str) -> None:
    """Every estimate can be printed, apart from any of its own bounds."""
    low, point, high = sorted(values)
    assert make(point, low, high, unit).text(apart_from=(low, point, high))


def test_verdicts_load_without_numpy() -> None:
    """Judging and rendering need neither numpy nor scipy."""
    code = (
        "import sys, pytest_asperf.analysis.verdict; print({'numpy', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
