"""A number with its interval, unit and sample count, how it is shown, and the samples for it."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from pytest_asperf.errors import MeasurementError, no_truth_value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Values: TypeAlias = "Sequence[float] | NDArray[np.float64]"
Chunks: TypeAlias = Sequence[Values]

#: Unit of a relative change, stored as a fraction (0.01 is +1 %) and shown in percent with its
#: sign.
CHANGE: Final = "change"
#: Unit of a ratio, shown as a factor: ``1.68x``.
RATIO: Final = "x"
#: Unit of a share of a whole, stored as a fraction and shown in percent.
SHARE: Final = "share"

#: Two-sided confidence that verdicts are judged at: either bound errs with probability <= 5 %.
DECISION_CONFIDENCE: Final = 0.90

_MAX_DECIMALS: Final = 12
#: Digits of a point without an interval, and of one that is exact.
_FEW, _EXACT = 2, 4
#: A limit in its original form.
_LIMIT: Final = 6
#: From here on thousands are set apart.
_LONG: Final = 10_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured quantity: point, two-sided interval, unit and sample count.

    Attributes:
        point: the best guess, finite.
        low: lower bound; ``-inf`` if `n` is too small for an interval.
        high: upper bound; ``inf`` if `n` is too small for an interval.
        n: independent observations.
        method: how the interval was computed, for a reader.
        unit: unit of point and bounds; `CHANGE` and `SHARE` are fractions shown in percent.
        counted: the unit of `n`, in the plural.
        confidence: nominal two-sided coverage of the interval; 1 for an exact quantity.
        needed: observations from which there are bounds; None if unknown.
        repetitions: of the measurement, if each gave several of the `n`.

    Raises:
        ValueError: the bounds do not enclose a finite point, or a count or coverage is impossible.
    """

    point: float
    low: float
    high: float
    n: int
    _: KW_ONLY
    method: str
    unit: str
    counted: str = "samples"
    confidence: float = DECISION_CONFIDENCE
    needed: int | None = None
    repetitions: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.point) and self.low <= self.point <= self.high):
            raise ValueError(f"[{self.low}, {self.high}] does not enclose {self.point}")
        if self.n < 1 or not 0 < self.confidence <= 1:
            raise ValueError(f"impossible n={self.n} or confidence={self.confidence}")

    def __bool__(self) -> NoReturn:
        raise no_truth_value(f"the estimate {self.text()}", "assert estimate.low >= 40")

    @classmethod
    def exact(cls, value: float, unit: str) -> Estimate:
        """A quantity that is counted, not sampled, such as a file's size."""
        return cls(value, value, value, 1, method="exact", unit=unit, confidence=1.0)

    @property
    def has_interval(self) -> bool:
        """True if the observations sufficed for an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def is_exact(self) -> bool:
        """True if the quantity, or its bounds, are known without sampling error."""
        return self.confidence == 1

    @property
    def basis(self) -> str:
        """Its basis, such as ``63 chunks``; empty if it is exact."""
        return "" if self.is_exact else counted_text(self.n, self.counted)

    def scaled(self, factor: float, unit: str) -> Estimate:
        """This quantity in another unit; ValueError for a factor that is not positive."""
        if not factor > 0:
            raise ValueError(f"a unit's factor must be positive, not {factor}")
        return replace(
            self,
            point=self.point * factor,
            low=self.low * factor,
            high=self.high * factor,
            unit=unit,
        )

    def change_of_log(self) -> Estimate:
        """The relative change, if this is the log of a ratio."""
        point, low, high = map(_expm1, (self.point, self.low, self.high))
        return replace(self, point=point, low=low, high=high, unit=CHANGE)

    def as_ratio(self) -> Estimate:
        """A relative change as a ratio: +0.3 % is 1.003."""
        return replace(self, point=1 + self.point, low=1 + self.low, high=1 + self.high, unit="")

    def inverted(self) -> Estimate:
        """1 over a positive ratio, the bounds swapped: 0.8 times the cost is 1.25 x the speed."""
        if self.point <= 0 or -math.inf < self.low <= 0:
            raise ValueError(f"[{self.low}, {self.high}] is not the interval of a ratio")
        low = 1 / self.high if self.high < math.inf else -math.inf
        high = 1 / self.low if self.low > 0 else math.inf
        return replace(self, point=1 / self.point, low=low, high=high)

    def shown_below(self, limit: float) -> bool:
        """True if the whole interval lies below `limit`."""
        return self.high < limit

    def shown_above(self, limit: float) -> bool:
        """True if the whole interval lies above `limit`."""
        return self.low > limit

    def shown_at_most(self, limit: float) -> bool:
        """True if no part of the interval lies above `limit`."""
        return self.high <= limit

    def shown_at_least(self, limit: float) -> bool:
        """True if no part of the interval lies below `limit`."""
        return self.low >= limit

    def text(self, *, apart_from: Iterable[float] = ()) -> str:
        """``+0.18 % [0.01, 0.35]``, with the digits that the interval's width supports.

        Digits are added until no bound reads like a limit, in `apart_from`, that it is not.
        """
        figure, interval = self.in_parts(apart_from=apart_from)
        if not interval and not self.is_exact:
            return f"{figure} (too few {self.counted} for an interval)"
        return " ".join(filter(None, (figure, interval)))

    def in_parts(self, *, apart_from: Iterable[float] = ()) -> tuple[str, str]:
        """The figure and its interval as text, which is empty if there is none."""
        point, low, high = (_shown(v, self.unit) for v in (self.point, self.low, self.high))
        limits = [_shown(v, self.unit) for v in apart_from]
        # The finite side of an open interval defines its width.
        widths = [abs(bound - point) for bound in (low, high) if math.isfinite(bound)]
        half_width = (high - low) / 2 if self.has_interval else max(widths, default=math.inf)
        least = shown_decimals(point, half_width, _EXACT if widths or self.is_exact else _FEW)
        decimals = _separating(low, high, limits, at_least=least)
        sign = "+" if self.unit == CHANGE else ""
        head = f"{point:{sign}z.{decimals}f}{_suffix(self.unit)}"
        if not widths or (self.is_exact and low == high):
            return head, ""
        shown = (f"{b:z.{decimals}f}" if math.isfinite(b) else "-" for b in (low, high))
        return head, f"[{', '.join(shown)}]"

    def brief(self, *, apart_from: Iterable[float] = ()) -> str:
        """The text for a column next to the observations that it is based on."""
        return " ".join(filter(None, self.brief_parts(apart_from=apart_from)))

    def brief_parts(self, *, apart_from: Iterable[float] = ()) -> tuple[str, str]:
        """The figure, marked if it is vague, and its interval."""
        figure, interval = self.in_parts(apart_from=apart_from)
        return (figure if interval or self.is_exact else f"about {figure}"), interval

    def __str__(self) -> str:
        return self.text()


def shown_decimals(point: float, half_width: float, digits: int) -> int:
    """Decimals for two digits of the interval's half-width, or so many of a point without one."""
    if math.isfinite(half_width) and half_width > 0:
        decimals = 1 - _magnitude(half_width)
    else:
        decimals = digits - 1 - _magnitude(point) if point else 0
    return min(max(decimals, 0), _MAX_DECIMALS)


def counted_text(n: int, counted: str) -> str:
    """A number of things that are given in the plural: ``1 run of one load``."""
    things = re.sub(r"s\b", "", counted, count=1) if n == 1 else counted
    return f"{n} {things}"


def number_text(value: float, digits: int = 3) -> str:
    """A number in so many digits, without an exponent: ``0.00082``, ``7200``, ``72,000``."""
    decimals = min(max(0, digits - 1 - _magnitude(value)), _MAX_DECIMALS) if value else 0
    text = f"{value:{',' if abs(value) >= _LONG else ''}.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def memory_text(nbytes: float) -> str:
    """A number of bytes in the units that memory is sold in: ``64 GiB``."""
    unit, size = ("GiB", 2**30) if nbytes >= 2**30 else ("MiB", 2**20)
    return f"{number_text(nbytes / size)} {unit}"


def limit_text(limit: float, unit: str) -> str:
    """A threshold as a reader writes it: ``1 %``, ``40 tok/s``."""
    return f"{number_text(_shown(limit, unit), _LIMIT)}{_suffix(unit)}"


def percent_text(fraction: float, digits: int = 3) -> str:
    """A share in so many digits without an exponent: ``0.82 %``, ``72,000 %``."""
    percent = 100 * fraction
    return f"{number_text(percent, digits)} %"


def _expm1(log: float) -> float:
    """``exp(log) - 1`` without overflow; an unknown bound stays infinite."""
    if log == -math.inf:
        return log
    return math.expm1(log) if log < math.log(sys.float_info.max) else math.inf


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value)))


def _shown(value: float, unit: str) -> float:
    return 100 * value if unit in {CHANGE, SHARE} else value


def _suffix(unit: str) -> str:
    if unit == RATIO:
        return unit
    return " %" if unit in {CHANGE, SHARE} else f" {unit}" if unit else ""


def _separating(low: float, high: float, limits: list[float], *, at_least: int) -> int:
    for decimals in range(at_least, _MAX_DECIMALS):
        if not any(
            bound != limit and round(bound, decimals) == round(limit, decimals)
            for bound in (low, high)
            if math.isfinite(bound)
            for limit in limits
        ):
            return decimals
    return _MAX_DECIMALS


def finite_array(values: Values, counted: str) -> NDArray[np.float64]:
    """The values as an array; MeasurementError without any, or with one that is not finite."""
    import numpy as np  # noqa: PLC0415  # guards import this module, and most need none

    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        raise nothing_measured(counted)
    if not np.isfinite(array).all():
        raise MeasurementError(
            f"{np.count_nonzero(~np.isfinite(array))} of {array.size} {counted} are not finite",
            why="a mean or median over them would hide that the measurement broke",
            remedy="look at the engine's log for failed decodes or overflow",
        )
    return array


def nothing_measured(counted: str) -> MeasurementError:
    """The error for an empty measurement."""
    return MeasurementError(
        f"no {counted}",
        why="a verdict needs a measurement",
        remedy="look at the engine's log for why it produced none",
    )


def unequal_work(what: str) -> MeasurementError:
    """The error for variants that did different work."""
    return MeasurementError(
        what,
        why="a paired comparison needs the same work in both variants",
        remedy="score the same chunks with both models, with the same tokenizer and context",
    )
