"""If a falling function changes its sign."""

import math
from collections.abc import Callable

import pytest

from pytest_asperf.analysis.stats.sequential_frame import crossing


@pytest.mark.parametrize(
    ("falling", "at", "most"),
    [
        (lambda x: 0.3 - x, 0.3, 10),
        (lambda x: 0.5 - x**31, 0.5 ** (1 / 31), 16),
        (lambda x: 20 * math.exp(-9 * x) - 1, math.log(20) / 9, 16),
        (lambda x: 1.0 if x < 0.3 else 0.0, 0.3, 50),  # a plateau of zeros: its beginning
        (lambda x: math.inf if x < 0.3 else -math.inf, 0.3, 50),
        (lambda x: -x, 0.0, 2),
        (lambda x: 2 - x, 1.0, 2),
    ],
)
def test_it_is_found_in_few_evaluations(
    falling: Callable[[float], float], at: float, most: int
) -> None:
    """No shape needs more than bisection's 54 evaluations, and smooth ones need far fewer."""
    asked: list[float] = []

    def counted(x: float) -> float:
        asked.append(x)
        return falling(x)

    assert crossing(counted, 0, 1) == pytest.approx(at, abs=2e-13)
    assert len(asked) <= most
