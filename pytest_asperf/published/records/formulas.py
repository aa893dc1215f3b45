"""The closed set of formulas by which a published figure may follow from others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_MOST = 12


@dataclass(frozen=True, slots=True)
class Formula:
    """One way in which a figure follows from others.

    Attributes:
        meaning: for a reader, with the inputs called a, b, c in their order.
        compute: the value; each of them rises or falls throughout with every single input, so that
            the extremes over intervals lie at their ends.
        inputs: the least and the largest number of inputs.
    """

    name: str
    meaning: str
    compute: Callable[..., float]
    inputs: tuple[int, int]

    def over(self, boxes: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """The smallest and the largest value over intervals of the inputs.

        ZeroDivisionError: an interval holds zero where the formula divides by it.
        """
        ends = ({*box, 0.0} if box[0] < 0 < box[1] else {*box} for box in boxes)
        values = [self.compute(*corner) for corner in product(*ends)]
        return min(values), max(values)


def _largest(*inputs: float) -> float:
    return max(abs(value) for value in inputs)


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
    Formula("span", "the range of |a|, |b|, ...", _largest, (2, _MOST)),
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
