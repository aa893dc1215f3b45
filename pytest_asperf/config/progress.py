"""The progress of a measurement, as the measurement reports it."""

from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class SoFar:
    """The state of a measurement before its end; empty or None is not known yet."""

    figure: str = ""  #: the estimate, with its interval
    counted: str = ""  #: the steps' unit, such as ``pairs``
    expected: int | None = None  #: steps in all that will probably decide it
    place: str = ""  #: which of several measurements it is, such as ``2/13 decided``
    left_s: float | None = None  #: seconds until all of them are over


NOTHING_YET: Final = SoFar()


class Progress(Protocol):
    """A function that is called with the progress of a measurement."""

    def __call__(self, label: str, done: int, total: int, so_far: SoFar = ...) -> None:
        """`done` of at most `total` steps are over; 0 of 0 is a preparation."""


class Notify:
    """Receives the progress of a measurement; by itself it shows nothing."""

    def progress(self, label: str, done: int, total: int, so_far: SoFar = NOTHING_YET) -> None:
        """`done` of at most `total` steps of a measurement are over; 0 of 0 is a preparation."""

    def done(self) -> None:
        """The measurement is over."""

    def wait(self, reason: str) -> None:
        """The measurement cannot start yet."""

    def say(self, text: str) -> None:
        """Something is worth knowing before the measurement is over."""
