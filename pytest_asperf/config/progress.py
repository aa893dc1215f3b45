"""The progress of a measurement, as the measurement reports it."""

from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class SoFar:
    """The state of a measurement before its end; empty or None is not known yet.

    Attributes:
        figure: the estimate, with its interval.
        counted: the steps' unit, such as ``pairs``.
        expected: steps in all that will probably decide it.
        place: which of several measurements it is, such as ``2/13 decided``.
        left_s: seconds until all of them are over.
    """

    figure: str = ""
    counted: str = ""
    expected: int | None = None
    place: str = ""
    left_s: float | None = None


NOTHING_YET: Final = SoFar()


class Progress(Protocol):
    """A function that is called with the progress of a measurement."""

    def __call__(self, label: str, done: int, total: int, so_far: SoFar = ...) -> None:
        """`done` of at most `total` steps are over; 0 of 0 is a preparation."""


class Notify(Protocol):
    """Receives the progress of a measurement."""

    def progress(self, label: str, done: int, total: int, so_far: SoFar = NOTHING_YET) -> None:
        """`done` of at most `total` steps of a measurement are over; 0 of 0 is a preparation."""

    def done(self) -> None:
        """The measurement is over."""

    def wait(self, reason: str) -> None:
        """The measurement cannot start yet."""

    def say(self, text: str) -> None:
        """Something is worth knowing before the measurement is over."""
