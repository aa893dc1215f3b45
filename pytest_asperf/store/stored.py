"""The content of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.store.figures import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.store.figures import SeriesKey

#: The kind of a report that grows while its session runs.
UNFINISHED: Final = "unfinished"
#: The parts of a key, for a reader.
_WORDS: Final = {
    "machine": "machine",
    "engine": "engine",
    "model_sha256": "model file",
    "settings": "settings",
    "metric": "metric",
    "unit": "unit",
    "anchor": "baseline build",
}


@dataclass(frozen=True, slots=True)
class StoredPoint(Value):
    """A value that was stored.

    Attributes:
        time: when its session began, seconds since the epoch.
        session: the session's id.
    """

    time: float
    session: str


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """A series, with how many points it has and the times of the first and the last."""

    id: str
    key: SeriesKey
    n: int
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session, without its document.

    Attributes:
        time: when it began, seconds since the epoch; after sessions before it on its machine.
        clock_back_s: seconds that were added to its time, because its clock had been set back.
    """

    id: str
    kind: str
    time: float
    clock_back_s: float
    machine: str
    host: str
    hardware: str
    version: str


@dataclass(frozen=True, slots=True)
class NewSeries:
    """A series that began with a session.

    Attributes:
        after: id of the most similar series before it; empty where there is none.
        changed: the parts of the key that differ from that one's.
    """

    key: SeriesKey
    after: str = ""
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """The effect of storing a document.

    Attributes:
        session: the session's id.
        is_new: whether it was not in the store before.
        n_figures: how many it added to series.
        began: the series that it began.
        clock_back_s: as `StoredSession` has it.
    """

    session: str
    is_new: bool
    n_figures: int = 0
    began: tuple[NewSeries, ...] = ()
    clock_back_s: float = 0.0

    def notes(self) -> Iterator[str]:
        """The remarks on it."""
        for new in self.began:
            if new.after:
                what = " and ".join(_WORDS[name] for name in new.changed)
                yield f"new series {new.key.id}, {new.key.title}: not the {what} of {new.after}"
        if self.clock_back_s:
            yield (
                f"the clock of this machine was set back by {self.clock_back_s:.0f} s: the session "
                "is put after those before it"
            )
