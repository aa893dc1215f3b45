"""Measurements of speculation as a table and a picture show them, read back from their rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_asperf.analysis.guards import Consequence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_asperf.report.rows import ReportRow


@dataclass(frozen=True, slots=True)
class Span:
    """A figure with its interval; both bounds are the point where there is none."""

    point: float
    low: float
    high: float

    @property
    def has_interval(self) -> bool:
        """Whether the bounds are known."""
        return self.low < self.high


@dataclass(frozen=True, slots=True)
class SpeculationPoint:
    """One measured pair.

    Attributes:
        gain: rate with the draft over that of the target alone, less 1.
        ratio: speed ratio of draft to target.
        predicted: the gain that acceptance and costs predict.
        acceptance: accepted of drafted tokens.
        emitted: tokens that a round emits, on average.
        drafting: what drafting costs in a round, on average, in steps of the target alone.
        verifying: what the rest of a round costs by prediction, likewise.
        break_even: speed ratio from which the pair would gain; infinite where none.
        best_k: number of drafted tokens with the highest predicted gain, and that gain.
    """

    label: str
    gain: Span
    ratio: Span
    predicted: Span
    acceptance: float
    emitted: float
    drafting: float
    verifying: float
    break_even: float
    best_k: tuple[int, float]
    is_invalid: bool

    def predicted_at(self, ratio: float) -> float:
        """The gain predicted for a draft of another speed that is accepted as often."""
        drafting = self.drafting * self.ratio.point / ratio
        return self.emitted / (drafting + self.verifying) - 1

    def cells(self) -> tuple[str, ...]:
        """Ratio, gain, predicted gain, acceptance, break-even and best k as text."""
        k, gain = self.best_k
        return (
            ratio_text(self.ratio.point),
            "INVALID" if self.is_invalid else _gain_text(self.gain),
            _gain_text(self.predicted),
            f"{100 * self.acceptance:.1f} %",
            ratio_text(self.break_even),
            f"{k}: {100 * gain:+.1f} %",
        )

    @property
    def explanation(self) -> str:
        """What explains the gain: acceptance, speeds, and what they predict."""
        ratio, _, predicted, accepted, even, best = self.cells()
        invalid = "INVALID: " if self.is_invalid else ""
        return (
            f"{invalid}{accepted} accepted, {self.emitted:.2f} tokens a round, ratio {ratio}, "
            f"break-even {even}, predicted {predicted}, best k={best}"
        )


def points_of(rows: Iterable[ReportRow]) -> list[SpeculationPoint]:
    """Each measurement of speculation once, in the order of the rows."""
    measured = [row for row in rows if "predicted_gain" in row.raw]
    # What several tests share, each of them notes.
    distinct = {(row.model, row.measured, row.ran): row for row in measured}
    return [_point(row.model, row.raw) for row in distinct.values()]


def ratio_text(ratio: float) -> str:
    """A speed ratio, or that there is none."""
    if ratio == math.inf:
        return "none"
    return f"{ratio:,.0f} x" if ratio >= 1000 else f"{ratio:.3g} x"


def _gain_text(gain: Span) -> str:
    bounds = f" [{100 * gain.low:.1f}, {100 * gain.high:.1f}]" if gain.has_interval else ""
    return f"{100 * gain.point:+.1f} %{bounds}"


def _point(label: str, raw: Mapping[str, Any]) -> SpeculationPoint:
    even = raw["break_even_ratio"]
    return SpeculationPoint(
        label,
        _span(raw["gain"]),
        _span(raw["ratio"]),
        _span(raw["predicted_gain"]),
        raw["acceptance"],
        raw["mean_length"],
        raw["drafting"],
        raw["verifying"],
        math.inf if even is None else even,
        (raw["best_k"]["k"], raw["best_k"]["gain"]),
        any(guard_finding["consequence"] == Consequence.INVALID for guard_finding in raw["trips"]),
    )


def _span(estimate: Mapping[str, Any]) -> Span:
    point, low, high = (estimate[key] for key in ("point", "low", "high"))
    return Span(point, point, point) if low is None or high is None else Span(point, low, high)
