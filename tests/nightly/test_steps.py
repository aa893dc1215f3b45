"""The state of a stored series, and the notes of a run: functions of plain values."""

import math
import random
from dataclasses import replace

import pytest

from pytest_asperf.analysis.stats.change_point import alarm_threshold
from pytest_asperf.nightly.record import FactChange, changes_between, missed_nights
from pytest_asperf.nightly.steps import state_of, threshold_of
from pytest_asperf.store.figures import LOG_RATIO, SeriesKey, StoredPoint, StoredSeries

DAY_S = 86_400.0
KEY = SeriesKey("machine", "llama_cpp", "m", "sha", "{}", "tg128 ratio", LOG_RATIO, "lib 1")


def _points(n: int = 40, step: float = 0.05, since: int = 30) -> list[StoredPoint]:
    draw = random.Random(1)  # noqa: S311
    values = [draw.gauss(0, 0.005) + step * (night >= since) for night in range(n)]
    return [
        StoredPoint(
            value, value - 0.01, value + 0.01, 30, "PASS", "", (), night * DAY_S, str(night)
        )
        for night, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("metric", "unit", "step", "word"),
    [
        ("tg128 ratio", LOG_RATIO, 0.05, "slower"),
        ("tg128 ratio", LOG_RATIO, -0.05, "faster"),
        ("ppl ratio", LOG_RATIO, 0.05, "more"),
        ("tg128", "tok/s", 0.05, "faster"),
        ("ttft512", "ms", 0.05, "slower"),
        ("memory@4096", "bytes", -0.05, "less"),
    ],
)
def test_a_step_is_named_by_what_it_means(metric: str, unit: str, step: float, word: str) -> None:
    """A higher rate is faster, a longer time slower, and memory is neither."""
    points = _points(step=step)
    if unit != LOG_RATIO:
        points = [
            replace(p, value=math.exp(p.value), low=math.exp(p.value - 0.01), high=None)
            for p in points
        ]
    state = state_of(points, replace(KEY, metric=metric, unit=unit), alarm_threshold())
    assert f" % {word} since 1970-01-31" in state.text
    assert not state.is_new


def test_a_step_is_new_in_the_night_that_shows_it() -> None:
    """One run later it is known already, so that nobody is notified twice."""
    states = [state_of(_points()[:n], KEY, alarm_threshold()) for n in (31, 32, 33)]
    assert [state.is_new for state in states] == [False, True, False]


def test_what_does_not_count() -> None:
    """INVALID points, values without a logarithm, and further sessions of one night."""
    points = _points(12)
    broken = replace(points[3], outcome="INVALID", value=9.0)
    again = [replace(point, time=point.time + 3600) for point in points]
    mixed = sorted([*points, *again, broken], key=lambda point: point.time)
    assert state_of(mixed, KEY, alarm_threshold()).points == tuple(points)
    rates = [replace(point, value=0.0) for point in points]
    assert state_of(rates, replace(KEY, unit="tok/s"), 1.0).text == "0 of 10 runs"


def test_only_ratios_that_are_still_measured_share_the_alarms() -> None:
    """A rate is no ratio, and a series without a point for a month is over."""
    lasts = {"a": 100.0, "b": 99.0, "c": 60.0}
    series = [StoredSeries(name, KEY, 9, 0.0, days * DAY_S) for name, days in lasts.items()]
    rate = StoredSeries("d", replace(KEY, unit="tok/s"), 9, 0.0, 100 * DAY_S)
    assert threshold_of([*series, rate]) == alarm_threshold(2)
    assert threshold_of([]) == alarm_threshold(1)


def test_changes_are_those_that_both_nights_know() -> None:
    """A fact that only one of them has is no change."""
    before = {"os": "macOS 15.1", "build": "a", "driver": "1"}
    now = {"os": "macOS 15.2", "build": "a", "power mode": "automatic"}
    assert changes_between(before, now) == [FactChange("os", "macOS 15.1", "macOS 15.2")]


@pytest.mark.parametrize(
    ("days", "missed"), [(0.1, 0), (1.4, 0), (1.6, 1), (2, 1), (4, 3), (-1, 0)]
)
def test_missed_nights(days: float, missed: int) -> None:
    """One is missing from a day and a half on; a clock set back misses none."""
    assert missed_nights(1e9, 1e9 + days * DAY_S) == missed
