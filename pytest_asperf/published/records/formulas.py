"""The formulas by which a published figure may follow from others, and whether it does."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from pytest_asperf.errors import ConfigError
from pytest_asperf.published.records.model import Derivation, RecordedCell, Records

_MOST = 12
# A computed end may miss a printed one by the arithmetic of floats alone.
_FLOAT_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Formula:
    """One way in which a figure follows from others."""

    name: str
    meaning: str  #: for a reader, with the inputs called a, b, c in their order
    #: the value; each of them rises or falls throughout with every single input, so that the
    #: extremes over intervals lie at their ends
    compute: Callable[..., float]
    inputs: tuple[int, int]  #: the least and the largest number of inputs

    def over(self, boxes: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """The smallest and the largest value over intervals of the inputs.

        ZeroDivisionError: an interval contains zero where the formula divides by it.
        """
        ends = ({*box, 0.0} if box[0] < 0 < box[1] else {*box} for box in boxes)
        values = [self.compute(*corner) for corner in product(*ends)]
        return min(values), max(values)


def _speculation(accept_percent: float, k: float, target: float, draft: float) -> float:
    """(1 + a k) / (T_target + k T_draft + c) with c = T_target, in tokens per second."""
    return (1 + accept_percent / 100 * k) / (2 / target + k / draft)


_FORMULAS = (
    Formula("same", "a", lambda a: a, (1, 1)),
    Formula("ratio", "a / b", lambda a, b: a / b, (2, 2)),
    Formula("percent_of", "100 a / b", lambda a, b: 100 * a / b, (2, 2)),
    Formula("percent_change", "100 (a / b - 1)", lambda a, b: 100 * (a / b - 1), (2, 2)),
    Formula("percent_less", "100 (1 - a / b)", lambda a, b: 100 * (1 - a / b), (2, 2)),
    Formula("difference", "a - b", lambda a, b: a - b, (2, 2)),
    Formula("sum", "a + b + ...", lambda *a: math.fsum(a), (2, _MOST)),
    Formula("product", "a b", lambda a, b: a * b, (2, 2)),
    Formula("part", "a b / 100: b percent of a", lambda a, b: a * b / 100, (2, 2)),
    Formula("seconds", "a b / 1000: a times b ms, in s", lambda a, b: a * b / 1000, (2, 2)),
    Formula("mean", "(a + b + ...) / n", lambda *a: math.fsum(a) / len(a), (2, _MOST)),
    Formula("least", "the least of a, b, ...", lambda *a: min(a), (2, _MOST)),
    Formula("most", "the largest of a, b, ...", lambda *a: max(a), (2, _MOST)),
    Formula("span", "the range of |a|, |b|, ...", lambda *a: max(map(abs, a)), (2, _MOST)),
    Formula(
        "utilisation",
        "100 a b / c: rate x GB read per token / GB/s",
        lambda a, b, c: 100 * a * b / c,
        (3, 3),
    ),
    Formula("rate_from_ms", "1000 a / b: tokens in ms", lambda a, b: 1000 * a / b, (2, 2)),
    Formula("ms_from_rate", "1000 / a", lambda a: 1000 / a, (1, 1)),
    Formula("extra_ms", "1000 / a - 1000 / b", lambda a, b: 1000 / a - 1000 / b, (2, 2)),
    Formula(
        "weights_gb",
        "a b / 8: 10^9 parameters x bits per weight, in GB",
        lambda a, b: a * b / 8,
        (2, 2),
    ),
    Formula(
        "speculation",
        "(1 + a b) / (2 / c + b / d): acceptance, k, target's rate, draft's rate",
        _speculation,
        (4, 4),
    ),
)

FORMULAS: Mapping[str, Formula] = MappingProxyType({formula.name: formula for formula in _FORMULAS})


@dataclass(frozen=True, slots=True)
class DerivedCheck:
    """A derived figure with the least and the largest value that its inputs' rounding allows.

    `follows` is True if some value between them prints as the figure.
    """

    cell: RecordedCell
    derivation: Derivation
    low: float
    high: float
    follows: bool

    def __str__(self) -> str:
        formula = FORMULAS[self.derivation.formula].meaning
        verb = "follows" if self.follows else "does not follow"
        return (
            f"{self.cell.id}: {self.cell} {verb} from {formula}, {_interval(self.low, self.high)}"
        )


def derived_checks(records: Records) -> tuple[DerivedCheck, ...]:
    """Recompute every derived figure from the figures that it follows from.

    The inputs are intervals, plus or minus half a unit of their last printed digit, and so is the
    figure; it follows if the two overlap.
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
    """True if a computed value can print so; ends that merely touch cannot.

    Only a value without any leeway may lie on the end itself: 27.5 prints as 28.
    """
    slack = _FLOAT_SLACK * max(1.0, *map(abs, computed))
    if computed[1] - computed[0] > slack:
        slack = -slack
    return computed[0] <= printed[1] + slack and computed[1] >= printed[0] - slack


def _interval(low: float, high: float) -> str:
    return f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} to {high:.4g}"
