from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.published.records.model import read_printed

PLACES = st.integers(min_value=0, max_value=6)
NUMBERS = st.floats(min_value=-1e6, max_value=1e6)


@pytest.mark.parametrize(
    ("written", "form", "low", "high"),
    [
        (Decimal("10.00"), "point", 9.995, 10.005),
        (1164, "point", 1163.5, 1164.5),
        ("~14", "approximate", 13, 15),
        ("~6.7", "approximate", 6.6, 6.8),
        ("18-28", "range", 17.5, 28.5),
        ("2-3.4", "range", 1.5, 3.45),
        ("-83--79", "range", -83.5, -78.5),
        ("~79-83", "range", 78, 84),
        ("<3", "at-most", float("-inf"), 3.5),
        (">=2.5", "at-least", 2.45, float("inf")),
        ("40+", "at-least", 39.5, float("inf")),
    ],
)
def test_what_is_printed_allows_for_its_rounding(
    written: Decimal | int | str, form: str, low: float, high: float
) -> None:
    """A number means plus or minus half its last digit's unit, an approximate one a whole unit."""
    printed = read_printed(written)
    assert printed.form == form
    assert printed.allowed() == pytest.approx((low, high))


@pytest.mark.parametrize("word", ["N/A", "Tied", "8-bit", "16/24/32", "tight", "1e5", "~", "3 GB"])
def test_anything_else_is_a_word(word: str) -> None:
    """A text that is no number is not read as one."""
    assert read_printed(word).form == "word"
    assert read_printed(word).middle is None


def test_a_specified_figure_is_exact() -> None:
    """A bandwidth of 800 GB/s was not rounded."""
    assert read_printed(800).allowed(exact=True) == (800, 800)
    assert read_printed("~18").allowed(exact=True) == (18, 18)


@given(NUMBERS, PLACES)
def test_every_rounded_number_allows_for_the_number(number: float, places: int) -> None:
    """A figure that is rounded and printed is within the print's bounds."""
    low, high = read_printed(Decimal(f"{number:.{places}f}")).allowed()
    assert low - 1e-9 <= number <= high + 1e-9
