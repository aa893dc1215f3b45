"""The finding of a guard that tripped, and its consequence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from pytest_asperf.analysis.stats.estimate import number_text


class Consequence(StrEnum):
    """What a tripped guard does to the verdict on a claim."""

    INVALID = "INVALID"
    INCONCLUSIVE = "INCONCLUSIVE"
    WARNING = "WARNING"


@dataclass(frozen=True, slots=True)
class GuardFinding:
    """A guard that tripped.

    Attributes:
        guard: its short name, such as ``roofline-high``.
        consequence: effect on the verdict.
        found: what happened, one sentence with its figures.
        rule: the rule that it breaks, with its constant.
    """

    guard: str
    consequence: Consequence
    found: str
    rule: str

    def __str__(self) -> str:
        return f"{self.guard}: {self.found} ({self.rule})"


def figure(value: float) -> str:
    """A number with at least four digits, without an exponent if it is large."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else number_text(value, 4)


def require_positive(**values: float) -> None:
    """Refuse figures that are not positive and finite, with a ValueError."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} = {value} is not a positive number")
