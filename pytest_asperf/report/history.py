"""The stored values of a series, as estimates and for a chart."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.report.lines import Series
from pytest_asperf.store.figures import LOG_RATIO, SeriesKey, StoredPoint, Value

#: Points of a series in a chart, the latest.
DRAWN: Final = 120


def estimate_of(point: Value, unit: str) -> Estimate:
    """A point as an estimate; bounds that it lacks are infinite."""
    low = -math.inf if point.low is None else point.low
    high = math.inf if point.high is None else point.high
    confidence, n = (1.0 if low == high else 0.90), max(1, point.n)
    return Estimate(point.value, low, high, n, method="", unit=unit, confidence=confidence)


def value_of(point: Value, unit: str) -> Estimate:
    """A point for a reader: the ratio of a log ratio."""
    whole = estimate_of(point, unit)
    return whole.change_of_log().as_ratio() if unit == LOG_RATIO else whole


def history_series(
    histories: Iterable[tuple[SeriesKey, Sequence[StoredPoint]]],
) -> tuple[Series, ...]:
    """Series of stored points for a page, each over the interval of its last one."""
    return tuple(
        Series(
            key.title,
            "session",
            tuple(value_of(point, key.unit).point for point in points),
            value_of(points[-1], key.unit),
        )
        for key, points in histories
        if len(points) > 1
    )
