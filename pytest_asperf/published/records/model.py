"""Recorded figures as they are held: documents, tables, rows and cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_asperf.errors import ConfigError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.published.records.printed import PrintedValue

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
    """The scope of a number; the document leaves an empty field open.

    Attributes:
        hardware: id of a profile or chip in `data/hardware.toml`.
        machine: the machine in words.
        draft: the draft model of speculative decoding; `model` is then the target.
        level: quantization level or bits per weight.
    """

    hardware: str = ""
    machine: str = ""
    engine: str = ""
    model: str = ""
    level: str = ""
    draft: str = ""
    workload: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The known facts about a number's spread.

    Attributes:
        n: measurements behind it; None where that is not known.
        sd: standard deviation of a single measurement, in the number's unit.
        interval: confidence interval, in the number's unit.
        confidence: the interval's two-sided confidence, such as 0.95.
        observed: smallest and largest single measurement.
        raw: the number with the decimals of the raw data.
        origin: where that comes from when the document does not print it.
    """

    n: int | None = None
    sd: float | None = None
    se: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    observed: tuple[float, float] | None = None
    raw: float | None = None
    origin: str = ""

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
    """How a number follows from others.

    Attributes:
        formula: a name in `recorded.formulas.FORMULAS`.
        follows: whether the document's number follows from them.
        why: why not, where it does not.
    """

    formula: str
    inputs: tuple[str, ...]
    follows: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The content of a column of a table.

    Attributes:
        metric: the field's term: TG, PP, PPL, TTFT, size, ...
        unit: `tok/s`, `ms`, `GB`, `%`, `x` (a ratio), or empty for a count or word.
        kind: whether its numbers are measured, derived, estimated, specified, or stated as a claim.
    """

    key: str
    metric: str
    unit: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCell:
    """One published figure.

    Attributes:
        id: `source-id/table-id/row/column`.
        spread: what is known of n and spread, from the document or its raw data.
    """

    id: str
    metric: str
    unit: str
    kind: Kind
    scope: Scope
    printed: PrintedValue
    spread: Spread
    derivation: Derivation | None = None

    @property
    def value(self) -> float:
        """The number printed, or the middle of a range; a word or one-sided bound is refused."""
        middle = self.printed.middle
        if middle is None:
            raise ConfigError(
                f"recorded {self.id}: {shown(self.printed.text, 80)} is not one number",
                why="a claim is judged by a number",
                remedy="use its printed.low or printed.high, or another number",
            )
        return middle

    def allowed(self) -> tuple[float, float]:
        """The smallest and largest value that the printed figure may stand for."""
        return self.printed.allowed(exact=self.kind == "specified")


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """One row of a table; a column without a cell was printed empty."""

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
        """Every cell, in the document's order."""
        for table in self.tables:
            for row in table.rows:
                for _, cell in row.cells:
                    yield cell


@dataclass(frozen=True, slots=True)
class Records:
    """Several documents."""

    documents: tuple[Document, ...]

    def cells(self) -> Iterator[RecordedCell]:
        """Every cell of every document."""
        for document in self.documents:
            yield from document.cells()

    def by_id(self) -> dict[str, RecordedCell]:
        """Every cell by `source-id/table-id/row/column`."""
        return {cell.id: cell for cell in self.cells()}
