"""Where a measurement reports what it is doing."""

from __future__ import annotations

from typing import Protocol


class Notify(Protocol):
    """Receives the progress of a measurement."""

    def progress(self, label: str, done: int, total: int) -> None:
        """`done` of `total` steps of a measurement are over."""

    def done(self) -> None:
        """The measurement is over."""

    def wait(self, reason: str) -> None:
        """The measurement cannot start yet."""

    def say(self, text: str) -> None:
        """Something is worth knowing before the measurement is over."""
