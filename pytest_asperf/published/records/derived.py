"""Do the published figures that follow from others really follow from them?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_asperf.errors import ConfigError
from pytest_asperf.published.records.formulas import FORMULAS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.published.records.formulas import Formula
    from pytest_asperf.published.records.model import Derivation, RecordedCell, Records

# A computed end may miss a printed one by the arithmetic of floats alone.
_FLOAT_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class DerivedCheck:
    """A derived figure beside the least and the largest value that its inputs' rounding allows.

    `follows` says whether some value between them prints as the figure.
    """

    cell: RecordedCell
    derivation: Derivation
    low: float
    high: float
    follows: bool

    @property
    def as_recorded(self) -> bool:
        """Whether it comes out as the data says that it does."""
        return self.follows == self.derivation.follows

    def __str__(self) -> str:
        formula = FORMULAS[self.derivation.formula].meaning
        verb = "follows" if self.follows else "does not follow"
        return (
            f"{self.cell.id}: {self.cell.printed.text} {self.cell.unit}".rstrip()
            + f" {verb} from {formula}, {_interval(self.low, self.high)}"
        )


def derived_checks(records: Records) -> tuple[DerivedCheck, ...]:
    """Recompute every derived figure from the figures that it follows from.

    The inputs are taken as intervals, half a unit of their last printed digit to either side, and
    so is the figure; it follows where the two overlap.
    """
    by_id = records.by_id()
    return tuple(
        _check(cell, cell.derivation, by_id)
        for cell in by_id.values()
        if cell.derivation is not None
    )


def _check(
    cell: RecordedCell, derivation: Derivation, by_id: dict[str, RecordedCell]
) -> DerivedCheck:
    formula = FORMULAS[derivation.formula]
    boxes = [by_id[input_id].allowed() for input_id in derivation.inputs]
    if cell.printed.form == "range" and formula.name == "span":
        low, high, follows = _span(cell, boxes)
    else:
        low, high = _over(formula, boxes, cell)
        follows = _overlap((low, high), cell.allowed())
    return DerivedCheck(cell, derivation, low, high, follows)


def _over(
    formula: Formula, boxes: Sequence[tuple[float, float]], cell: RecordedCell
) -> tuple[float, float]:
    try:
        return formula.over(boxes)
    except ZeroDivisionError:
        raise ConfigError(
            f"recorded {cell.id}: {formula.meaning} divides by a figure that may be 0",
            why="a derived figure is recomputed from its inputs",
            remedy="name other inputs, with the decimals as printed, or leave out the formula",
        ) from None


def _span(cell: RecordedCell, boxes: Sequence[tuple[float, float]]) -> tuple[float, float, bool]:
    """The ends of a range of magnitudes, and whether both print as the range's ends."""
    sizes = [sorted((abs(low), abs(high))) for low, high in boxes]
    least = (min(low for low, _ in sizes), min(high for _, high in sizes))
    most = (max(low for low, _ in sizes), max(high for _, high in sizes))
    printed_least, printed_most = cell.printed.ends_allowed()
    follows = _overlap(least, printed_least) and _overlap(most, printed_most)
    return least[0], most[1], follows


def _overlap(computed: tuple[float, float], printed: tuple[float, float]) -> bool:
    """Whether a computed value can print so; ends that merely touch cannot.

    Only a value without any leeway may lie on the end itself: 27.5 prints as 28.
    """
    slack = _FLOAT_SLACK * max(1.0, *map(abs, computed))
    if computed[1] - computed[0] > slack:
        slack = -slack
    return computed[0] <= printed[1] + slack and computed[1] >= printed[0] - slack


def _interval(low: float, high: float) -> str:
    return f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} to {high:.4g}"
