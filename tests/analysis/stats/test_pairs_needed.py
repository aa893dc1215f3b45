import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.stats.estimate import percent_text
from pytest_asperf.analysis.stats.sequential import detectable_tolerance, is_fit, unfit_text


@given(st.floats(0, 50))
def test_fit_is_what_thirty_pairs_can_decide(sd: float) -> None:
    """The rule and its text are about the same tolerance."""
    least = detectable_tolerance(sd, 30)
    if abs(least - 0.25) > 1e-9:
        assert is_fit(sd) == (least < 0.25)
    assert percent_text(least) in unfit_text(sd)


def test_an_impossible_spread_is_unfit() -> None:
    """An input that overflows an exponential, or is no number, is an error of asperf's."""
    assert not is_fit(1e9)
    assert not is_fit(math.nan)


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0, "0 %"),
        (0.0082, "0.82 %"),
        (0.05, "5 %"),
        (0.105, "10.5 %"),
        (7.2, "720 %"),
        (72, "7200 %"),
    ],
)
def test_shares_are_written_out(fraction: float, text: str) -> None:
    """Three digits, no exponent, no idle zeros."""
    assert percent_text(fraction) == text
