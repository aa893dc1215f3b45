"""Tables of results: people's own in CSV or JSON with known columns, and tools' between bars."""

from __future__ import annotations

import csv
import itertools
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


_RULE: Final = re.compile(r"[|+:=\-━─═╇┳┻┡┩├┤┼┬┴┏┓┗┛└┘┌┐╭╮╰╯ ]+")
_BUILD: Final = re.compile(r"build: (\w+) \((\d+)\)$")
_MAX_BAR_ROWS: Final = 20_000
#: Bars of a line that begins with none.
_LEAST_BARS: Final = 4
#: A row of results without its header: a rate with its deviation is the last but few cells.
_RESULT: Final = re.compile(r"\d+\.\d+ *± *\d")


@dataclass(slots=True)
class PipeTable:
    """A header with its rows; cells are by column, in the header's order.

    Attributes:
        build: of llama.cpp, as the line behind the table has it.
    """

    header: tuple[str, ...]
    rows: list[dict[str, str]] = field(default_factory=list)
    build: str = ""


@dataclass(slots=True)
class TableReader:
    """Gathers tables from lines.

    The line above a rule is a header, and so is the first line of a table that has none above.

    Attributes:
        unread: rows that look like results and have no header, or another number of cells.
    """

    tables: list[PipeTable] = field(default_factory=list)
    unread: int = 0
    _heads: list[list[str]] = field(default_factory=list)
    _n_rows: int = 0

    def feed(self, line: str) -> bool:
        """Take one line; whether it is one of a table."""
        if (
            not line.startswith("|")
            and line.count("|") >= _LEAST_BARS
            and not _RULE.fullmatch(line)
        ):
            line = f"|{line}|"
        if not line.startswith("|"):
            if line and _RULE.fullmatch(line):
                self._add_header()
            elif line:
                self._heads = []
            if build := _BUILD.match(line):
                self._add_build(f"{build[2]} ({build[1]})")
            return False
        if _RULE.fullmatch(line):
            self._add_header()
            return True
        raw = line.removeprefix("|").removesuffix("|").split("|")
        cells = [cell.strip() for cell in raw]
        is_result = _RESULT.search(line)
        if is_result and self._heads and len(self._heads[-1]) == len(cells):
            self._heads[:-1] = []
            self._add_header()  # its rule was left out
        table = self.tables[-1] if self.tables and not self._heads else None
        if table and len(cells) == len(table.header):
            self._add_row(table, cells)
        elif is_result:
            self.unread += 1
        else:
            self._heads.append(raw)
        return True

    def _add_row(self, table: PipeTable, cells: list[str]) -> None:
        if table.rows and cells[0] and not any(cells[1:]):
            table.rows[-1][table.header[0]] += f" {cells[0]}"  # the name goes on below
        elif tuple(cells) == table.header:
            self.tables.append(PipeTable(table.header))
        elif self._n_rows < _MAX_BAR_ROWS:
            self._n_rows += 1
            table.rows.append(dict(zip(table.header, cells, strict=True)))

    def _add_build(self, build: str) -> None:
        for table in self.tables:
            table.build = table.build or build

    def _add_header(self) -> None:
        if self._heads:
            width = max(map(len, self._heads))
            spread = [_spread(head, width) for head in self._heads]
            columns = zip(*spread, strict=True)
            header = tuple(" ".join(filter(None, column)) for column in columns)
            self.tables.append(PipeTable(header))
        self._heads = []


def _spread(head: list[str], width: int) -> list[str]:
    """A header's row with a cell for each column; one without a blank continues the last."""
    cells: list[str] = []
    for cell in head:
        cells.append(cell.strip() if cell or not cells else cells[-1])
    return (cells + [""] * width)[:width]


#: What a column is called, and what it is. Rates are tok/s.
_NUMBERS: Final = {
    "avg_tps": "rate", "eff_tps": "rate", "tps": "rate", "tg_tps": "rate",
    "decode_tps": "rate", "decode_tokens_per_sec": "rate", "tokens_per_second": "rate",
    "gen_tps": "rate", "generation_tps": "rate", "predicted_per_second": "rate",
    "stddev_tps": "rate sd", "std_tps": "rate sd",
    "n_gen": "n_gen", "completion_tokens": "n_gen", "output_tokens": "n_gen",
    "predicted_n": "n_gen",
    "n_prompt": "n_prompt", "prompt_tokens": "n_prompt", "prompt_n": "n_prompt",
    "draft_k": "k", "k": "k", "n_drafted": "drafted", "n_accept": "accepted",
    "draft_n": "drafted", "draft_n_accepted": "accepted",
    "ppl": "PPL", "ppl_std": "PPL se", "perplexity": "PPL",
    "ttft_ms": "TTFT ms", "total_time_ms": "total ms", "prefill_time_ms": "prefill ms",
    "peak_memory_gb": "peak GB",
}  # fmt: skip
_WORDS: Final = (
    *("machine", "framework", "engine", "backend", "rpc_backend", "model", "model_label", "quant"),
    *(
        "model_id",
        "name",
        "prompt_set",
        "concurrency",
        "target",
        "draft",
        "prompt_type",
        "prompt_length",
        "config",
        "status",
    ),
)
#: Columns that say which arm a row belongs to, and how an arm to compare with is called.
_ARM_WORDS: Final = frozenset({"framework", "engine", "backend", "rpc_backend"})
_BASELINES: Final = ("baseline", "local")
#: One of these makes a table one of results.
_TELLING: Final = frozenset({"rate", "PPL", "drafted"})
_MAX_ROWS: Final = 10_000
_MAX_DEPTH: Final = 8


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: what it is about, by column, and its figures, by this package's names."""

    words: Mapping[str, str]
    numbers: Mapping[str, float]

    @property
    def label(self) -> str:
        """Everything that it is about."""
        k = [f"k={self.numbers['k']:g}"] if "k" in self.numbers else []
        return " ".join([*self.words.values(), *k]) or "row"

    @property
    def workload(self) -> tuple[tuple[str, object], ...]:
        """The common part of all sides: the words that name no side, and the sizes of the work."""
        sizes = [(name, self.numbers.get(name)) for name in ("k", "n_gen", "n_prompt")]
        words = [(name, word) for name, word in self.words.items() if name not in _ARM_WORDS]
        return (*words, *sizes)

    @property
    def is_baseline(self) -> bool:
        """True if its arm is one to compare with."""
        arms = [word.lower() for name, word in self.words.items() if name in _ARM_WORDS]
        return any(arm.startswith(_BASELINES) for arm in arms)

    @property
    def subject(self) -> str:
        """The model, as this table calls it."""
        return self.words.get("model") or self.words.get("model_label") or ""

    @property
    def compared(self) -> Mapping[str, float]:
        """The properties in which two sides can be equal."""
        kept = ("rate", "accepted", "TTFT ms", "total ms", "peak GB")
        return {name: self.numbers[name] for name in kept if name in self.numbers}


def rows_of_table(lines: Iterable[str]) -> tuple[TableRow, ...] | None:
    """The rows of a CSV with a header; None where no column is a result."""
    reader = csv.DictReader(lines)
    if not _TELLING & {_NUMBERS.get(name) for name in reader.fieldnames or ()}:
        return None
    return tuple(_row(cells) for cells in itertools.islice(reader, _MAX_ROWS))


def table_rows_of_document(document: object) -> tuple[TableRow, ...]:
    """The rows with a result in every list of flat objects of a JSON document."""
    rows = (_row(entry) for entry in _entries(document, _MAX_DEPTH))
    telling = (row for row in rows if row.numbers.keys() & _TELLING)
    return tuple(itertools.islice(telling, _MAX_ROWS))


def _entries(value: object, depth: int) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        below: Iterable[object] = value.values()
    elif isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, dict))
        below = value
    else:
        return
    if depth:
        for part in below:
            yield from _entries(part, depth - 1)


def _row(cells: Mapping[Any, Any]) -> TableRow:
    words = {name: str(cells[name]) for name in _WORDS if cells.get(name)}
    numbers: dict[str, float] = {}
    for column, name in _NUMBERS.items():
        number = _number(cells.get(column))
        if number is not None:
            numbers.setdefault(name, number)
    return TableRow(words, numbers)


def _number(cell: object) -> float | None:
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        return None
    try:
        number = float(cell)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
