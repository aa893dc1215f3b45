"""Recorded figures as they are held: documents, tables, rows, cells, and finding one by its id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from pytest_asperf.errors import ConfigError, shown, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_asperf.published.records.printed import PrintedValue

Kind = Literal["measured", "derived", "estimated", "specified", "stated"]
NOT_PUBLISHED = "not published"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document.

    Attributes:
        id: the first part of the ids of its numbers.
        title: in our own words where the document's is long.
        url: an address or identifier, where the document gives one.
        date: as far as the document gives one: `2026`, `2026-03` or `2026-03-14`.
    """

    id: str
    title: str
    authors: tuple[str, ...] = ()
    url: str = ""
    date: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a number holds for; an empty field is one that the document leaves open.

    Attributes:
        hardware: id of a profile or chip in `data/hardware.toml`.
        machine: the machine in words.
        draft: the draft model of speculative decoding; `model` is then the target.
        level: quantisation level or bits per weight.
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
    """What is known of a number beyond the number.

    Attributes:
        n: measurements behind it; None where that is not known.
        sd: standard deviation of a single measurement, in the number's unit.
        se: standard error of the number.
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
        inputs: ids of the numbers, in the formula's order.
        follows: whether the document's number follows from them.
        why: why not, where it does not.
    """

    formula: str
    inputs: tuple[str, ...]
    follows: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What a column of a table holds.

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
        printed: what the document prints.
        spread: what is known of n and spread, from the document or its raw data.
        derivation: how it follows from others, for a derived one.
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
    def is_number(self) -> bool:
        """Whether it is more than a word."""
        return self.printed.form != "word"

    @property
    def value(self) -> float:
        """The number printed, or the middle of a range.

        Raises:
            ConfigError: it is a word or a one-sided bound.
        """
        middle = self.printed.middle
        if middle is None:
            raise ConfigError(
                f"recorded {self.id}: {shown(self.printed.text, 80)} is not one number",
                why="a claim is judged by a number",
                remedy="use its printed.low or printed.high, or another number",
            )
        return middle

    def allowed(self) -> tuple[float, float]:
        """Return the smallest and largest value that the printed figure may stand for."""
        return self.printed.allowed(exact=self.kind == "specified")


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """One row of a table.

    Attributes:
        key: a stable name: level, model, machine, draft, prompt.
        cells: by column, in the table's order; a column without a cell was printed empty.
    """

    key: str
    cells: tuple[tuple[str, RecordedCell], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table or group of claims of a document.

    Attributes:
        where: the document's own number or section.
        also_in: the other documents that print the same figures, with their place.
    """

    id: str
    title: str
    where: str
    scope: Scope
    columns: tuple[Column, ...]
    rows: tuple[RecordedRow, ...]
    also_in: tuple[str, ...] = ()
    note: str = ""

    def column(self, key: str) -> tuple[RecordedCell, ...]:
        """Return the cells of a column, in the order of the rows.

        Raises:
            ConfigError: the table has no such column.
        """
        keys = [column.key for column in self.columns]
        if key not in keys:
            raise _unknown("column", key, keys, where=f"recorded table {self.id}")
        return tuple(cell for row in self.rows for name, cell in row.cells if name == key)


@dataclass(frozen=True, slots=True)
class Document:
    """A source with its tables."""

    source: Source
    tables: tuple[Table, ...]

    def cells(self) -> Iterator[RecordedCell]:
        """Yield every cell, in the document's order."""
        for table in self.tables:
            for row in table.rows:
                for _, cell in row.cells:
                    yield cell


@dataclass(frozen=True, slots=True)
class Records:
    """Several documents, and the way to a table or cell by its id."""

    documents: tuple[Document, ...]

    def cells(self) -> Iterator[RecordedCell]:
        """Yield every cell of every document."""
        for document in self.documents:
            yield from document.cells()

    def cell(self, id: str) -> RecordedCell:  # noqa: A002  # it is what the field is called
        """Return a cell by `source-id/table-id/row/column`.

        Raises:
            ConfigError: there is none.
        """
        return _find("number", id, self.cells(), lambda cell: cell.id)

    def number(self, id: str) -> RecordedCell:  # noqa: A002  # it is what the field is called
        """Return a cell that is a number, by its id.

        Raises:
            ConfigError: there is none, or it is a word such as "N/A".
        """
        cell = self.cell(id)
        if not cell.is_number:
            raise ConfigError(
                f"recorded {cell.id}: {shown(cell.printed.text, 80)} is no number",
                why="the document prints a word there",
                remedy="name another number",
            )
        return cell

    def source(self, id: str) -> Source:  # noqa: A002  # it is what the field is called
        """Return a source by its id.

        Raises:
            ConfigError: there is none.
        """
        document = _find("source", id, self.documents, lambda known: known.source.id)
        return document.source

    def table(self, id: str) -> Table:  # noqa: A002  # it is what the field is called
        """Return a table by `source-id/table-id`.

        Raises:
            ConfigError: there is none.
        """
        named = ((f"{d.source.id}/{table.id}", table) for d in self.documents for table in d.tables)
        return _find("table", id, named, lambda pair: pair[0])[1]


def _find(what: str, id: str, things: Iterable[T], name: Callable[[T], str]) -> T:  # noqa: A002
    by_id = {name(thing): thing for thing in things}
    if id in by_id:
        return by_id[id]
    raise _unknown(what, id, by_id, where="recorded figures")


def _unknown(what: str, word: str, valid: Iterable[str], *, where: str) -> ConfigError:
    return ConfigError(
        f"{where}: no {what} is called {shown(word, 120)}{suggest(word, valid)}",
        why="a claim rests on the figures that it names",
        remedy="use source-id/table-id/row/column, or its beginning for a table",
    )
