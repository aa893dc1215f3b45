"""The printed content of a cell: a number with its decimals, a range, a bound or a word."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

Form = Literal["point", "approximate", "range", "at-least", "at-most", "word"]

_NUMBER: Final = r"[-+]?\d+(?:\.\d+)?"
_PRINTED: Final = re.compile(
    rf"(?P<mark>~|>=|<=|>|<)?(?P<low>{_NUMBER})(?:-(?P<high>{_NUMBER}))?(?P<plus>\+)?"
)
_LARGEST: Final = Decimal(10) ** 30
_BOUNDS: Final[dict[str, Form]] = {
    ">=": "at-least",
    ">": "at-least",
    "<=": "at-most",
    "<": "at-most",
}


@dataclass(frozen=True, slots=True)
class PrintedValue:
    """One cell as printed, without its unit.

    Attributes:
        text: as the document prints it, thousands separators and unit aside.
        form: `point` (42.4), `approximate` (~14), `range` (18-28, ~79-83), `at-least` (>=2.5, 40+),
            `at-most` (<3) or `word` (N/A, Tied).
        low: lower end as printed; None for a word and for at-most.
        high: upper end as printed; None for a word and for at-least. Equal to `low` for one number.
    """

    text: str
    form: Form
    low: Decimal | None = None
    high: Decimal | None = None

    @property
    def middle(self) -> float | None:
        """The number printed, or the middle of a range; None for a bound and a word."""
        if self.low is None or self.high is None:
            return None
        return float((self.low + self.high) / 2)

    def allowed(self, *, exact: bool = False) -> tuple[float, float]:
        """The smallest and the largest value that may stand behind what is printed.

        A printed number stands for half a unit of its last digit to either side, and one that is
        called approximate for a whole unit. One that is `exact` was specified, and stands for
        itself.
        """
        spare = Decimal(0) if exact else self._spare
        low = -math.inf if self.low is None else float(self.low - spare * _last_digit(self.low))
        high = math.inf if self.high is None else float(self.high + spare * _last_digit(self.high))
        return low, high

    def ends_allowed(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The values that the two ends of a range may stand for; ValueError without both."""
        if self.low is None or self.high is None:
            raise ValueError
        low, high = (
            (float(end - self._spare * unit), float(end + self._spare * unit))
            for end, unit in (
                (self.low, _last_digit(self.low)),
                (self.high, _last_digit(self.high)),
            )
        )
        return low, high

    @property
    def _spare(self) -> Decimal:
        """How many units of its last digit a printed number may be off."""
        return Decimal(1) if self.text.startswith("~") else Decimal("0.5")


def read_printed(value: Decimal | int | str) -> PrintedValue:
    """The value that a cell prints: a number with the decimals as printed, or text.

    ValueError: a number is not finite or beyond reason, or a range ends below its start.
    """
    if isinstance(value, int | Decimal):
        number = _within_reason(Decimal(value))
        return PrintedValue(str(value), "point", number, number)
    match = _PRINTED.fullmatch(value)
    if match is None:
        return PrintedValue(value, "word")
    low = _within_reason(Decimal(match["low"]))
    high = _within_reason(Decimal(match["high"])) if match["high"] else low
    if high < low:
        raise ValueError
    bound = "at-least" if match["plus"] else _BOUNDS.get(match["mark"] or "")
    if bound == "at-least":
        return PrintedValue(value, "at-least", low=low)
    if bound == "at-most":
        return PrintedValue(value, "at-most", high=high)
    if match["high"]:
        return PrintedValue(value, "range", low, high)
    return PrintedValue(value, "approximate" if match["mark"] else "point", low, high)


def _within_reason(number: Decimal) -> Decimal:
    """A number that floats hold with room to spare."""
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or not -30 <= exponent <= 30 or abs(number) >= _LARGEST:
        raise ValueError
    return number


def _last_digit(number: Decimal) -> Decimal:
    """The unit of the last printed digit: 0.1 of 42.4, 1 of 1164."""
    exponent = number.as_tuple().exponent
    return Decimal(1).scaleb(exponent) if isinstance(exponent, int) else Decimal(0)
