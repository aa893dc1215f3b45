"""Published figures from TOML files: read, checked, frozen."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

from pytest_asperf.config.table import (
    ANY_TEXT,
    BOOLEAN,
    ID,
    LONGEST,
    NUMBER,
    PAIR,
    TEXT,
    TEXTS,
    CheckedTable,
    Rule,
    number,
    unusable,
    whole,
)
from pytest_asperf.config.text_file import open_document, read_toml_text, shipped_texts, twice
from pytest_asperf.errors import ConfigError, listing, printable, shown, suggest
from pytest_asperf.published.records.formulas import FORMULAS
from pytest_asperf.published.records.model import (
    Column,
    Derivation,
    Document,
    Kind,
    RecordedCell,
    RecordedRow,
    Records,
    Scope,
    Source,
    Spread,
    Table,
    read_printed,
)

_NONE: Final = Records(())
_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_COUNT: Final = whole(1, 2**63 - 1)
_ERROR: Final = number("a number of at least 0", usable=lambda error: error >= 0)
_CONFIDENCE: Final = number("a number between 0 and 1, such as 0.95", usable=lambda p: 0 < p < 1)
_SCOPE: Final = tuple(field.name for field in fields(Scope))
_SPREAD: Final[Mapping[str, Rule[Any]]] = {
    "n": _COUNT,
    **dict.fromkeys(("sd", "se"), _ERROR),
    **dict.fromkeys(("interval", "observed"), PAIR),
    "confidence": _CONFIDENCE,
    "raw": NUMBER,
    "origin": ANY_TEXT,
}
_SOURCE: Final[Mapping[str, Rule[Any]]] = {
    "authors": TEXTS,
    **dict.fromkeys(("url", "date", "note"), ANY_TEXT),
}
_COLUMN: Final = ("metric", "unit", "kind", "n", "origin", "formula", "from", *_SCOPE)
_CELL: Final = ("value", "metric", "unit", "kind", "formula", "from", "follows", "why", *_SPREAD)


def load_recorded(*paths: Path, beside: Records = _NONE) -> Records:
    """The figures of files, behind those that are there already and that they may follow from."""
    texts = [(path.name, read_toml_text(path)) for path in paths]
    return parse_recorded(texts, beside)


def parse_recorded(texts: Iterable[tuple[str, str]], beside: Records = _NONE) -> Records:
    """The figures of several TOML texts, each behind its name; see `load_recorded`."""
    documents = list(beside.documents)
    files: dict[str, str] = {}
    for where, text in texts:
        document = _document(text, printable(where, 200))
        if document.source.id in {known.source.id for known in documents}:
            raise twice(f"{where}: source", document.source.id)
        documents.append(document)
        files[document.source.id] = where
    records = Records(tuple(documents))
    _check_inputs(records, files)
    return records


@cache
def shipped_records() -> Records:
    """The figures that ship, in the order of their files' names."""
    return parse_recorded(shipped_texts("data/recorded"))


@dataclass(frozen=True, slots=True)
class _Ids:
    """A table cell's place, and the ids that references from it mean."""

    source: str
    table: str
    row: str

    def of(self, column: str) -> str:
        return f"{self.source}/{self.table}/{self.row}/{column}"

    def resolved(self, reference: str, where: str) -> str:
        """The id that `column`, `row/column`, `table/row/column` or a full id means."""
        parts = reference.split("/")
        if not 1 <= len(parts) <= 4 or not all(parts):
            raise unusable(
                where, reference, "write column, row/column, table/row/column or a full id"
            )
        full = [self.source, self.table, self.row][: 4 - len(parts)] + parts
        return "/".join([full[0], full[1], self.row if full[2] == "*" else full[2], full[3]])


def _document(text: str, where: str) -> Document:
    file = open_document(text, where)
    file.only(("schema", "source", "table"))
    place = file.inner("source", file.values.get("source"))
    source = Source(**place.read({"id": ID, "title": TEXT}, _SOURCE))
    tables: list[Table] = []
    for entry in file.entries("table"):
        table = _table(file, entry, source.id)
        if table.id in {known.id for known in tables}:
            raise twice(f"{where}: table", table.id)
        tables.append(table)
    return Document(source, tuple(tables))


def _table(file: CheckedTable, entry: object, source: str) -> Table:
    name = entry.get("id", "?") if isinstance(entry, dict) else "?"
    place = file.inner(f"table {name}", entry)
    known = place.read(
        {"id": ID, "title": TEXT, "where": TEXT},
        {"also_in": TEXTS, "note": ANY_TEXT},
        ("key_is", "columns", "rows", *_SCOPE),
    )
    key_is = place.choice("key_is", (*_SCOPE, ""), "")
    scope = _scope(place, Scope())
    columns = [
        _column(place.inner(f"column {key}", column), key)
        for key, column in place.inner("columns", place.values.get("columns")).values.items()
    ]
    if not columns:
        place.refuse("columns", "write at least one column")
    rows = []
    for key, row in place.inner("rows", place.values.get("rows")).values.items():
        inner = place.inner(f"row {key}", row)
        ids = _Ids(source, known["id"], ID.checked(key, str(inner)))
        own = replace(scope, **{key_is: key}) if key_is else scope
        rows.append(_row(inner, ids, columns, own))
    if not rows:
        place.refuse("rows", "write at least one row")
    own_columns = tuple(column for column, _ in columns)
    return Table(scope=scope, columns=own_columns, rows=tuple(rows), **known)


def _column(place: CheckedTable, key: str) -> tuple[Column, CheckedTable]:
    place.only(_COLUMN)
    if ID.checked(key, str(place)) in _SCOPE:
        raise unusable(str(place), key, f"use a name other than {listing(_SCOPE)}")
    metric, unit = place.text("metric", required=True), place.text("unit")
    kind = _kind(place.choice("kind", _KINDS))
    return Column(key=key, metric=metric, unit=unit, kind=kind), place


def _row(
    place: CheckedTable, ids: _Ids, columns: list[tuple[Column, CheckedTable]], scope: Scope
) -> RecordedRow:
    place.only((*_SCOPE, *(column.key for column, _ in columns)))
    cells = []
    for column, defaults in columns:
        if column.key in place.values:
            # A row's own scope overrides its column's.
            own = _scope(place, _scope(defaults, scope))
            value = place.values[column.key]
            inner = place.inner(column.key, value if isinstance(value, dict) else {"value": value})
            cells.append((column.key, _cell(inner, ids, column, defaults, own)))
    return RecordedRow(ids.row, tuple(cells))


def _cell(
    place: CheckedTable, ids: _Ids, column: Column, defaults: CheckedTable, scope: Scope
) -> RecordedCell:
    place.only(_CELL)
    value = place.values.get("value")
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str) or value == "":
        raise unusable(str(place), value, "write a number or text, or a table with `value`")
    try:
        printed = read_printed(value)
    except ValueError:
        raise unusable(str(place), value, "write a finite number, or LOW-HIGH") from None
    if len(printed.text) > LONGEST:
        raise unusable(str(place), value, f"write text of at most {LONGEST} characters")
    kind = _kind(place.choice("kind", _KINDS, column.kind))
    is_word = printed.form == "word"
    for key in ("formula", "follows"):
        if is_word and key in place.values:
            place.refuse(key, "write it with a number")
    derivation = None if is_word else _derivation(place, defaults, ids)
    if kind == "derived" and derivation is None and not is_word:
        raise ConfigError(
            f"{place}: derived, but without its inputs",
            why="a derived figure is recomputed from its inputs",
            remedy='give the column or the field `formula` and `from`, or kind = "stated"',
        )
    return RecordedCell(
        id=ids.of(column.key),
        metric=place.text("metric") or column.metric,
        unit=place.text("unit") or column.unit,
        kind=kind,
        scope=scope,
        printed=printed,
        spread=_spread(place, defaults if kind == "measured" else None),
        derivation=derivation,
    )


def _derivation(place: CheckedTable, defaults: CheckedTable, ids: _Ids) -> Derivation | None:
    giver = place if place.values.keys() & {"formula", "from"} else defaults
    follows = place.get("follows", BOOLEAN) is not False
    why = place.text("why")
    if follows == bool(why):
        raise ConfigError(
            f"{place}: `follows` and `why` do not fit together",
            why="a figure that does not follow from its inputs is published with the reason",
            remedy="write follows = false with a `why`, or neither",
        )
    if not giver.values.keys() & {"formula", "from"}:
        if "follows" in place.values:
            place.refuse("follows", "write `formula` and `from` with it")
        return None
    formula = FORMULAS[giver.choice("formula", FORMULAS)]
    inputs = giver.texts("from")
    least, most = formula.inputs
    if not least <= len(inputs) <= most:
        count = f"{least}" if least == most else f"{least} to {most}"
        raise ConfigError(
            f"{giver}: from has {len(inputs)} inputs, and {formula.name} is {formula.meaning}",
            why="a derived figure is recomputed from its inputs",
            remedy=f"name {count} of them, in that order",
        )
    resolved = tuple(ids.resolved(reference, f"{giver}: from") for reference in inputs)
    return Derivation(formula.name, resolved, follows, why)


def _spread(place: CheckedTable, defaults: CheckedTable | None) -> Spread:
    inherited = defaults.values if defaults else {}
    outer = {key: inherited[key] for key in ("n", "origin") if key in inherited}
    own = {key: place.values[key] for key in _SPREAD if key in place.values}
    return Spread(**replace(place, values={**outer, **own}).read({}, _SPREAD))


def _scope(place: CheckedTable, outer: Scope) -> Scope:
    return replace(outer, **{key: place.text(key) for key in _SCOPE if key in place.values})


def _check_inputs(records: Records, files: Mapping[str, str]) -> None:
    """Reject a figure whose inputs are missing or not numbers, or the figure itself."""
    by_id = records.by_id()
    for document in records.documents:
        where = files.get(document.source.id, document.source.id)
        for cell in document.cells():
            for input_id in cell.derivation.inputs if cell.derivation else ():
                source = by_id.get(input_id)
                if source is None:
                    problem = f"is not a published figure{suggest(input_id, by_id)}"
                elif source.printed.middle is None:
                    problem = f"is {shown(source.printed.text, 40)}, not one number"
                elif input_id == cell.id:
                    problem = "is the figure itself"
                else:
                    continue
                raise ConfigError(
                    f"{where}: {cell.id}: its input {printable(input_id, 200)} {problem}",
                    why="a derived figure is recomputed from its inputs",
                    remedy="name numbers by column, row/column, table/row/column or full id",
                )


def _kind(word: str) -> Kind:
    return next(kind for kind in _KINDS if kind == word)
