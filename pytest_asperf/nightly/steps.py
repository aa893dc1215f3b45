"""The state of a stored series: steady, slower or faster since a run, or too few runs."""

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_asperf.analysis.stats.change_point import (
    LEAST_NIGHTS,
    Step,
    alarm_threshold,
    as_series,
    find_steps,
)
from pytest_asperf.store.figures import LOG_RATIO, SeriesKey, StoredPoint, StoredSeries

_DAY_S: Final = 86_400.0
#: Sessions that begin sooner after one that counts are of the same night, and do not count: two
#: runs have to show a step.
_SAME_NIGHT_S: Final = 6 * 3600.0
#: A series without a point for so long is no longer watched, and shares no false alarms.
_WATCHED_S: Final = 30 * _DAY_S
#: Points of a series that are looked at, the latest.
LOOKED_AT: Final = 250
_RATE: Final = "tok/s"
_TIMES: Final = (LOG_RATIO, _RATE, "ms")
_INVALID: Final = "INVALID"
#: Standard errors in half of an interval at 90 %.
_HALF_WIDTHS: Final = 1.645


@dataclass(frozen=True, slots=True)
class SeriesState:
    """The state of a series over its runs."""

    points: tuple[StoredPoint, ...]  #: those that count, one per run
    #: The steps between them. Their log ratios are those of a time or a size: above 0 is slower, or
    #: more.
    steps: tuple[Step, ...]
    is_time: bool  #: True if a larger value means "slower"

    @property
    def is_new(self) -> bool:
        """True if the last step was shown only by the last run."""
        return bool(self.steps) and self.steps[-1].seen == len(self.points) - 1

    @property
    def is_slower(self) -> bool:
        """True if the last step was to the worse."""
        return bool(self.steps) and self.steps[-1].log_ratio > 0

    @property
    def text(self) -> str:
        """The state in a few words."""
        if not self.steps:
            n = len(self.points)
            return "steady" if n >= LEAST_NIGHTS else f"{n} of {LEAST_NIGHTS} runs"
        return self.step_text(self.steps[-1])

    def step_text(self, step: Step) -> str:
        """A step: its size, and since when."""
        more, less = ("slower", "faster") if self.is_time else ("more", "less")
        size = 100 * abs(math.expm1(step.log_ratio))
        return f"{size:.1f} % {more if step.log_ratio > 0 else less} since {self.since(step)}"

    def since(self, step: Step) -> str:
        """The run at which a step began, or those between which it did."""
        nights = [_day(self.points[index]) for index in (step.first, step.index, step.last)]
        first, likely, last = nights
        return likely if first == last else f"{likely} ({first} to {last})"


def state_of(points: Sequence[StoredPoint], key: SeriesKey, threshold: float) -> SeriesState:
    """The state of a series by its points, with the evidence threshold of `threshold_of`."""
    unit = key.unit
    usable = _nights([p for p in points if p.outcome != _INVALID and _log(p.value, unit)])
    values = [_log(point.value, unit)[0] for point in usable]
    nights = [point.time / _DAY_S for point in usable]
    errors = [_error(point, unit) for point in usable]
    known = [error for error in errors if error is not None]
    series = as_series(values, nights=nights, errors=known if len(known) == len(values) else None)
    steps = find_steps(series, threshold)
    is_time = unit in _TIMES and not key.metric.startswith("ppl")
    return SeriesState(tuple(usable), steps, is_time)


def _nights(points: Sequence[StoredPoint]) -> list[StoredPoint]:
    found: list[StoredPoint] = []
    for point in points:
        if not found or point.time - found[-1].time >= _SAME_NIGHT_S:
            found.append(point)
    return found


def threshold_of(every: Iterable[StoredSeries]) -> float:
    """Evidence for a step where so many ratios are watched: they share the false alarms."""
    ratios = [series for series in every if series.key.unit == LOG_RATIO]
    latest = max((series.last for series in ratios), default=0.0)
    return alarm_threshold(sum(series.last >= latest - _WATCHED_S for series in ratios))


def _log(value: float, unit: str) -> tuple[float, ...]:
    """The log of a cost; nothing if it has none."""
    if unit == LOG_RATIO:
        return (value,)
    if value <= 0:
        return ()
    return (-math.log(value) if unit == _RATE else math.log(value),)


def _error(point: StoredPoint, unit: str) -> float | None:
    if point.low is None or point.high is None:
        return None
    bounds = [log for bound in (point.low, point.high) for log in _log(bound, unit)]
    return abs(bounds[1] - bounds[0]) / 2 / _HALF_WIDTHS if len(bounds) == 2 else None


def _day(point: StoredPoint) -> str:
    return dt.datetime.fromtimestamp(point.time).astimezone().strftime("%Y-%m-%d")
