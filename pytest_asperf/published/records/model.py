"""Published figures as dataclasses: documents, tables, their rows and printed values."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from pytest_asperf.errors import ConfigError, shown

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
    """One table cell as printed, without its unit."""

    text: str  #: as the document prints it, thousands separators and unit aside
    #: `point` (42.4), `approximate` (~14), `range` (18-28, ~79-83), `at-least` (>=2.5, 40+),
    #: `at-most` (<3) or `word` (N/A, Tied)
    form: Form
    low: Decimal | None = None  #: lower end as printed; None for a word and for at-most
    #: Upper end as printed; None for a word and for at-least. Equal to `low` for one number.
    high: Decimal | None = None

    @property
    def middle(self) -> float | None:
        """The number printed, or the middle of a range; None for a bound and a word."""
        if self.low is None or self.high is None:
            return None
        return float((self.low + self.high) / 2)

    def allowed(self, *, exact: bool = False) -> tuple[float, float]:
        """The smallest and the largest value that may be behind the printed one.

        A printed number means plus or minus half a unit of its last digit, and one that is called
        approximate a whole unit. One that is `exact` was specified, and means itself.
        """
        spare = Decimal(0) if exact else self._spare
        low = -math.inf if self.low is None else float(self.low - spare * _last_digit(self.low))
        high = math.inf if self.high is None else float(self.high + spare * _last_digit(self.high))
        return low, high

    def ends_allowed(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The possible values of the two ends of a range; ValueError without both."""
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
    """The value that a table cell prints: a number with the decimals as printed, or text.

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
    """A number well within the range of floats."""
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or not -30 <= exponent <= 30 or abs(number) >= _LARGEST:
        raise ValueError
    return number


def _last_digit(number: Decimal) -> Decimal:
    """The unit of the last printed digit: 0.1 of 42.4, 1 of 1164."""
    exponent = number.as_tuple().exponent
    return Decimal(1).scaleb(exponent) if isinstance(exponent, int) else Decimal(0)


Kind = Literal["measured", "derived", "estimated", "specified", "stated"]
NOT_PUBLISHED = "not published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document; `id` begins the ids of its numbers, and `date` is `2026`, `2026-03` or longer."""

    id: str
    title: str
    authors: tuple[str, ...] = ()
    url: str = ""
    date: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The scope of a number; the document leaves an empty field open."""

    hardware: str = ""  #: id of a profile or chip in `data/hardware.toml`
    machine: str = ""  #: the machine in words
    engine: str = ""
    model: str = ""
    quant: str = ""  #: quantization or bits per weight
    draft: str = ""  #: the draft model of speculative decoding; `model` is then the target
    workload: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The known facts about a number's spread."""

    n: int | None = None  #: measurements behind it; None if unknown
    sd: float | None = None  #: standard deviation of a single measurement, in the number's unit
    se: float | None = None
    interval: tuple[float, float] | None = None  #: confidence interval, in the number's unit
    confidence: float | None = None  #: the interval's two-sided confidence, such as 0.95
    observed: tuple[float, float] | None = None  #: smallest and largest single measurement
    raw: float | None = None  #: the number with the decimals of the raw data
    origin: str = ""  #: where that comes from when the document does not print it

    def __str__(self) -> str:
        parts = []
        if self.interval is not None:
            level = f"{self.confidence:.0%} " if self.confidence else ""
            parts.append(f"{level}interval {self.interval[0]:g} to {self.interval[1]:g}")
        if self.sd is not None:
            parts.append(f"sd {self.sd:g}")
        if self.se is not None:
            parts.append(f"standard error {self.se:g}")
        if self.observed is not None:
            parts.append(f"{self.observed[0]:g} to {self.observed[1]:g} observed")
        count = "" if self.n is None else f" (n = {self.n})"
        return (", ".join(parts) or NOT_PUBLISHED) + count


@dataclass(frozen=True, slots=True)
class Derivation:
    """How a number follows from others."""

    formula: str  #: a name in `recorded.formulas.FORMULAS`
    inputs: tuple[str, ...]
    follows: bool = True  #: whether the document's number follows from them
    why: str = ""  #: why not, if it does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The content of a column of a table."""

    key: str
    metric: str  #: the field's term: TG, PP, PPL, TTFT, size, ..
    unit: str  #: `tok/s`, `ms`, `GB`, `%`, `x` (a ratio), or empty for a count or word
    kind: Kind  #: `measured`, `derived`, `estimated`, `specified`, or a stated `claim`


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCell:
    """One published figure."""

    id: str  #: `source-id/table-id/row/column`
    metric: str
    unit: str
    kind: Kind
    scope: Scope
    printed: PrintedValue
    spread: Spread  #: the known n and spread, from the document or its raw data
    derivation: Derivation | None = None

    def __str__(self) -> str:
        return f"{self.printed.text} {self.unit}".rstrip()

    @property
    def value(self) -> float:
        """The printed number, or the middle of a range; raises for a word or one-sided bound."""
        middle = self.printed.middle
        if middle is None:
            raise ConfigError(
                f"recorded {self.id}: {shown(self.printed.text, 80)} is not one number",
                why="a finding is judged by a number",
                remedy="use its printed.low or printed.high, or another number",
            )
        return middle

    def allowed(self) -> tuple[float, float]:
        """The smallest and largest possible value of the printed figure."""
        return self.printed.allowed(exact=self.kind == "specified")


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """One row of a table; an absent column was printed empty."""

    key: str
    cells: tuple[tuple[str, RecordedCell], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table or group of claims of a document, which has it under `where`.

    Other documents that print the same figures are in `also_in`, with their place.
    """

    id: str
    title: str
    where: str
    scope: Scope
    columns: tuple[Column, ...]
    rows: tuple[RecordedRow, ...]
    also_in: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A source with its tables."""

    source: Source
    tables: tuple[Table, ...]

    def cells(self) -> Iterator[RecordedCell]:
        """Every table cell, in the document's order."""
        for table in self.tables:
            for row in table.rows:
                for _, cell in row.cells:
                    yield cell


@dataclass(frozen=True, slots=True)
class Records:
    """Several documents."""

    documents: tuple[Document, ...]

    def cells(self) -> Iterator[RecordedCell]:
        """Every table cell of every document."""
        for document in self.documents:
            yield from document.cells()

    def by_id(self) -> dict[str, RecordedCell]:
        """Every table cell by `source-id/table-id/row/column`."""
        return {cell.id: cell for cell in self.cells()}
