"""What an audit found, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.analysis.guards import Consequence
from pytest_asperf.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.analysis.guards import Trip
    from pytest_asperf.analysis.stats.estimate import Estimate

CLEAN: Final = 0
BROKEN: Final = 1
UNREAD: Final = 2
_SCHEMA: Final = 1
_SHOWN: Final = 200
#: Findings of one file that are kept; a table may hold thousands of rows.
MOST_FINDINGS: Final = 200


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that was measured.

    Attributes:
        name: metric and what it is of.
        value: with its interval; None where the file holds no more than a point.
        text: the figure where there is no `value`, or a remark on it.
    """

    name: str
    value: Estimate | None = None
    text: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, ["" if self.value is None else str(self.value), self.text]))


@dataclass(slots=True)
class Findings:
    """What one file, or several together, show.

    Attributes:
        title: the file, or what is compared.
        format: what the file is; empty where it could not be read.
        problem: why it could not be read; empty where it was.
        ran: proof of path, as far as the file has it.
        figures: what was measured.
        trips: guards that tripped, each with what it is about.
        notes: what a reader must know beside the figures.
    """

    title: str
    format: str = ""
    problem: str = ""
    ran: list[tuple[str, str]] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    trips: list[tuple[str, Trip]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def trip(self, about: str, trip: Trip | None) -> None:
        """Keep a guard that tripped."""
        if trip is not None:
            self.trips.append((about, trip))

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON, text from outside escaped and bounded."""
        return {
            "title": printable(self.title, _SHOWN),
            "format": self.format,
            "problem": printable(self.problem),
            "ran": {name: printable(text) for name, text in self.ran},
            "figures": [_figure_dict(figure) for figure in self.figures],
            "trips": [
                {
                    "about": printable(about, _SHOWN),
                    "guard": trip.guard,
                    "consequence": str(trip.consequence),
                    "found": printable(trip.found),
                    "rule": trip.rule,
                }
                for about, trip in self.trips
            ],
            "notes": [printable(note) for note in self.notes],
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """Everything that was found.

    Attributes:
        files: of each file, in the order given.
        together: of files seen together.
    """

    files: tuple[Findings, ...]
    together: tuple[Findings, ...] = ()

    @property
    def trips(self) -> Iterator[Trip]:
        """Every guard that tripped."""
        for found in (*self.files, *self.together):
            yield from (trip for _, trip in found.trips)

    @property
    def unread(self) -> int:
        """How many files could not be read."""
        return sum(bool(found.problem) for found in self.files)

    def count(self, consequence: Consequence) -> int:
        """Return how many guards tripped with a consequence."""
        return sum(trip.consequence is consequence for trip in self.trips)

    @property
    def exit_code(self) -> int:
        """1 where something is INVALID or INCONCLUSIVE, else 2 where a file was not read, else 0.

        So 0 means that all of every file was held against the guards and none of them objects.
        """
        if self.count(Consequence.INVALID) or self.count(Consequence.INCONCLUSIVE):
            return BROKEN
        return UNREAD if self.unread else CLEAN

    @property
    def headline(self) -> str:
        """The answer, in one line."""
        counts = [f"{n} {c}" for c in Consequence if (n := self.count(c))]
        read = len(self.files) - self.unread
        unread = f", {self.unread} not" if self.unread else ""
        files = f"{read} file{'' if read == 1 else 's'} read{unread}"
        return f"{files}; {', '.join(counts) or 'no guard tripped'}"

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "schema": _SCHEMA,
            "exit_code": self.exit_code,
            "headline": self.headline,
            "files": [found.as_dict() for found in self.files],
            "together": [found.as_dict() for found in self.together],
        }


def _figure_dict(figure: Figure) -> dict[str, Any]:
    value = figure.value
    found: dict[str, Any] = {"name": printable(figure.name, _SHOWN), "text": printable(figure)}
    if value is not None:
        bounds = [value.low, value.high] if value.has_interval else None
        found |= {
            "point": value.point,
            "interval": bounds,
            "confidence": value.confidence,
            "n": value.n,
            "counted": value.counted,
            "unit": value.unit,
            "method": value.method,
        }
    return found
