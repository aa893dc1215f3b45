"""The output of llama.cpp's binaries, read: for the engine and for `asperf audit`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

NUMBER: Final = r"\d{1,15}(?:\.\d{1,15})?"
COUNT: Final = r"\d{1,15}"
#: Consoles without the sign print another one.
PLUS_MINUS: Final = r" *(?:±|\+/?-|[_?]) *"

_MOST_SHOWN: Final = 80
#: Larger than any quantity in its smallest unit.
_LARGEST: Final = 1e18


def number_of(value: object) -> float | None:
    """A number from 0, of a text or of JSON; None of anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and 0 <= number < _LARGEST else None


@dataclass(slots=True)
class Unread:
    """Lines that look like a tool's figures and were not read: their number and the first one."""

    n: int = 0
    first: str = ""

    def add(self, line: str) -> None:
        """Count one line."""
        self.n += 1
        self.first = self.first or line.strip()[:_MOST_SHOWN]
