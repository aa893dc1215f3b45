"""A series as lines of text: one for each session, with changes of the run record between them."""

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.errors import printable
from pytest_asperf.store.figures import (
    Origin,
    SeriesValue,
    StoredPoint,
    StoredSeries,
    StoredSession,
    Value,
)

_DAY: Final = "%Y-%m-%d"
_LEAST_COLUMNS: Final = 12
#: The beginning of an id, enough to distinguish a few dozen.
SHORT: Final = 8


def day(time: float, form: str = f"{_DAY} %H:%M") -> str:
    """A time in the reader's own zone."""
    return dt.datetime.fromtimestamp(time).astimezone().strftime(form)


def unit_text(value: SeriesValue) -> str:
    """A value for a table, in the unit of its series."""
    return value_text(value, value.key.unit)


def value_text(point: Value, unit: str) -> str:
    """A point for a table."""
    from pytest_asperf.report.history import value_of  # numpy comes with it

    return value_of(point, unit).brief()


def machine_names(sessions: Sequence[StoredSession | Origin]) -> dict[str, str]:
    """A name for each machine: its host's latest, with the fingerprint where hosts share one."""
    hosts = {one.machine: printable(one.host, 24) for one in sessions}
    names = list(hosts.values())
    return {
        machine: f"{host} ({machine[:6]})" if names.count(host) > 1 else host
        for machine, host in hosts.items()
    }


def series_rows(
    listed: Sequence[tuple[StoredSeries, StoredPoint, str]], machines: dict[str, str]
) -> list[tuple[str, ...]]:
    """A table of series with their last points and their states, under its head."""
    several = len(machines) > 1
    head = (
        "what",
        "series",
        *(("machine",) if several else ()),
        "points",
        "last value",
        "last",
        "state",
    )
    rows = [
        (
            printable(series.key.title, 60),
            series.id[:SHORT],
            *((machines[series.key.machine],) if several else ()),
            str(series.n),
            value_text(last, series.key.unit),
            day(series.last, _DAY),
            state,
        )
        for series, last, state in listed
    ]
    return [head, *rows]


def counted(n: int, noun: str, more: str = "") -> str:
    """A number of things: `1 session`, `2 sessions`."""
    return f"{n} {noun if n == 1 else more or f'{noun}s'}"


@dataclass(frozen=True, slots=True)
class _Scale:
    """Columns for values from `least` to `most`."""

    least: float
    most: float
    columns: int

    def at(self, value: float) -> int:
        share = (value - self.least) / (self.most - self.least)
        return min(self.columns - 1, max(0, round(share * (self.columns - 1))))


def drawn(points: Sequence[StoredPoint], unit: str, width: int) -> Iterator[str]:
    """A series, the first session at the top: its day, its value, and both on one scale.

    Above a session are the changes of its run record since the one before.
    """
    from pytest_asperf.report.history import value_of  # as above

    if not points:
        return
    values = [value_of(point, unit) for point in points]
    texts = [value_text(point, unit) for point in points]
    wide = max(map(len, texts))
    scale = _scale(values, max(_LEAST_COLUMNS, width - wide - 20))
    before: StoredPoint | None = None
    for point, value, text in zip(points, values, texts, strict=True):
        yield from changes(before, point)
        note = f" {point.outcome}" if point.outcome not in {"", "PASS"} else ""
        yield f"{day(point.time)}  {text:{wide}}  {_bar(value, scale)}{note}"
        before = point


def changes(before: StoredPoint | None, point: StoredPoint) -> Iterator[str]:
    """The differences from the earlier run, one line each."""
    known = dict(before.provenance) if before else {}
    for label, text in point.provenance:
        if label in known and known[label] != text:
            yield f"  {label}: {printable(known[label])} -> {printable(text)}"


def _scale(values: Sequence[Estimate], columns: int) -> _Scale:
    bounds = [b for v in values for b in (v.point, v.low, v.high) if math.isfinite(b)]
    least, most = min(bounds), max(bounds)
    room = 0.02 * (most - least) or 0.01 * abs(most) or 1.0
    return _Scale(least - room, most + room, columns)


def _bar(value: Estimate, scale: _Scale) -> str:
    cells = [" "] * scale.columns
    if value.has_interval:
        low, high = scale.at(value.low), scale.at(value.high)
        cells[low : high + 1] = "-" * (high + 1 - low)
    cells[scale.at(value.point)] = "o"
    return "".join(cells).rstrip()
