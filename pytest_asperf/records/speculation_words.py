"""The figures of a measurement of speculation in words, for verdicts and reports."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.estimate import number_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def acceptance_text(by_category: Mapping[str, float], by_position: Sequence[float]) -> str:
    """Acceptance by category and by position of the draft."""
    positions = " ".join(f"{100 * share:.0f}" for share in by_position)
    return f"{each_text(by_category, '.0%')}; by position {positions} %"


def break_even_text(ratio: float | None, emitted: float, verifying: float) -> str:
    """The speed ratio from which a pair would gain; None, or infinity, where there is none."""
    if ratio is not None and ratio < math.inf:
        return f"break-even at {number_text(ratio)} x"
    return (
        f"no break-even: a round emits {emitted:.2f}, and verifying it costs {verifying:.2f} steps"
    )


def best_text(k: int, gain: float) -> str:
    """The number of drafted tokens with the highest predicted gain."""
    return f"best k={k} ({100 * gain:+.1f} %)"


def split_text(time_split: Mapping[str, float]) -> str:
    """The parts of the time of the speculative runs."""
    return ", ".join(f"{part} {100 * share:.1f} %" for part, share in time_split.items())


def each_text(figures: Mapping[str, float], form: str) -> str:
    """Figures by category."""
    return ", ".join(f"{category} {figure:{form}}" for category, figure in figures.items())
