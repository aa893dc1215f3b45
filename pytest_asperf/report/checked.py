"""Values of a JSON report that somebody else may have written, each of the expected type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.errors import shown
from pytest_asperf.report.measurements import NUMBERS, TEXTS

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What a value of another type than expected raises where it is used.
MALFORMED: Final = (
    *(KeyError, TypeError, ValueError, AttributeError, IndexError),
    *(ZeroDivisionError, OverflowError),
)
#: Evidence grows as a power of the number of pairs, and stays below this by far.
_LARGEST: Final = 1e100


def number(value: object) -> float:
    """A number that can be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
        raise ValueError(f"{shown(value, 60)} is not a number that can be drawn")
    return float(value)


def positive(value: object) -> float:
    """A number above zero."""
    found = number(value)
    if found <= 0:
        raise ValueError(f"{found:g} is not above zero")
    return found


def text(value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError(f"{shown(value, 60)} is not a text")
    return value


def estimate(data: Mapping[str, Any]) -> Estimate:
    """An estimate from the data that `estimate_data` made of it."""
    low, high = data["low"], data["high"]
    return Estimate(
        number(data["point"]),
        -math.inf if low is None else number(low),
        math.inf if high is None else number(high),
        int(number(data["n"])),
        method=text(data["method"]),
        unit=text(data["unit"]),
        counted=text(data.get("counted", "samples")),
        confidence=number(data["confidence"]),
    )


def measurement(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record of `measurements.table`, without its runs."""
    numbers = {key: record[key] for key in NUMBERS}
    return {
        **{key: text(record[key]) for key in TEXTS},
        **{key: None if value is None else number(value) for key, value in numbers.items()},
    }
