"""Tables: those between bars, and people's own rows with known columns."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_asperf.worker.printed import NUMBER, PLUS_MINUS, Unread, number_of

_RULE: Final = re.compile(r"[|+:=\-━─═╇┳┻┡┩├┤┼┬┴┏┓┗┛└┘┌┐╭╮╰╯ ]+")
#: A bar within a rule.
_INNER: Final = re.compile(r"(?<=[-=:━─═ ])[|+┼╇╪┬┴┳┻](?=[-=:━─═ ])")
_BUILD: Final = re.compile(r"build: (\w+) \((\d+)\)$")
#: A figure of genai-perf below its table.
_ALONE: Final = re.compile(r"([A-Z][\w ]{2,40} \(per sec\)): +([\d.,]+)$")
#: A column of results.
_OF_RESULTS: Final = re.compile(
    r"\b(?:t(?:ok(?:en)?s?)?/s(?:ec)?|\w*tps|ttft|tpot|itl|ppl)\b|throughput|latency|per sec",
    re.IGNORECASE,
)
_NO_WORD: Final = re.compile(r"\d+[.,][^A-Za-z:/]*")
#: For one table.
MAX_ROWS: Final = 20_000
#: For the number of tables.
UNREAD_ROWS: Final = (
    "rows with figures were not read: they are cut off, in another form (such as decimal commas), "
    "or without their header"
)
_BAR: Final = re.compile(r"(?<!\\)\|")
#: Columns of regular expressions, which llama-bench prints as they were given.
_OF_PATTERNS: Final = frozenset({"ot", "tensor_buft_overrides"})
#: Bars of a line that begins with none.
_LEAST_BARS: Final = 4
#: A row of results without its header: a rate with its deviation is one of the last columns.
_RESULT: Final = re.compile(r"\d+\.\d+ *± *\d")


#: A rate or another figure; people add a unit, and in parentheses a change.
_MEASURED: Final = re.compile(
    rf"({NUMBER})(?:{PLUS_MINUS}({NUMBER}))?(?: *(?:t|tok|tokens)/s(?:ec)?)?(?: *\([^()]*\))?"
)
#: A comma between thousands, as decimals follow.
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?:,\d{3})*\.)")


#: 0 or no number in the place of a rate.
UNMEASURED: Final = re.compile(
    rf"[+-]?(?:nan|inf|0+(?:\.0*)?)(?:\(ind\))?(?:{PLUS_MINUS}.*)?"
    rf"|{NUMBER}{PLUS_MINUS}[+-]?(?:nan|inf)(?:\(ind\))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PrintedFigure:
    """A printed figure."""

    mean: float
    sd: float | None  #: the deviation behind `±`; None without one
    resolution: float  #: half a unit of the last printed decimal


def measured(cell: str) -> PrintedFigure | None:
    """The figure in a column; None if there is none."""
    found = _MEASURED.fullmatch(_THOUSANDS.sub("", cell))
    if found is None:
        return None
    sd = float(found[2]) if found[2] else None
    return PrintedFigure(float(found[1]), sd, 0.5 * 10.0 ** -len(found[1].partition(".")[2]))


@dataclass(slots=True)
class PrintedTable:
    """A header with its rows; values are by column, in the header's order."""

    header: tuple[str, ...]
    rows: list[dict[str, str]] = field(default_factory=list)
    build: str = ""  #: of llama.cpp, as the line behind the table has it
    is_bare: bool = False  #: whether its lines begin with no bar
    title: str = ""  #: the line above it that is not above other tables of the file


@dataclass(slots=True)
class TableReader:
    """Gathers tables from lines, among which lines of other programs may be.

    The row above a rule is a header, and so is the first row of a table that has none above.
    """

    tables: list[PrintedTable] = field(default_factory=list)
    #: rows that look like results and are cut off, or have no header that fits
    unread: Unread = field(default_factory=Unread)
    _heads: dict[bool, list[list[str]]] = field(default_factory=lambda: {False: [], True: []})
    _apart: dict[bool, bool] = field(default_factory=lambda: {False: False, True: False})
    _ends_open: bool = False
    _before: str = ""
    _n_rows: int = 0

    def feed(self, line: str) -> bool:
        """Parse one line; True if it is one of a table."""
        if line.startswith("\\|"):
            line = line.replace("\\|", "|")  # as a table that is no Markdown is pasted
        if line.startswith("||") and line.endswith("||"):
            line = line.replace("||", "|")  # a heading of Jira's
        has_bar = line.startswith("|")
        before, self._before = self._before, line
        if line and _RULE.fullmatch(line):
            n_columns = 1 + len(_INNER.findall(line))
            is_new = 0 < before.count("|") < _LEAST_BARS and before[0] != "|"
            if is_new and before.removesuffix("|").count("|") == n_columns - 1:
                self._add_cells(f"|{before}|", is_bare=True)
            self._end_head(n_columns, has_bars=has_bar)
        elif has_bar:
            self._add_cells(line, is_bare=False)
        elif line.count("|") >= _LEAST_BARS or self._is_short_row(line):
            self._apart[False] = True
            self._add_cells(f"|{line}|", is_bare=True)
            return True
        elif line:
            self._apart = {False: True, True: True}
            if build := _BUILD.match(line):
                self._add_build(f"{build[2]} ({build[1]})")
            elif "(per sec)" in line and (alone := _ALONE.match(line)):
                row = {"Statistic": alone[1], "Value": alone[2]}
                self.tables.append(PrintedTable((*row,), [row]))
        return has_bar

    def _is_short_row(self, line: str) -> bool:
        table = self.tables[-1] if self.tables else None
        return bool(
            table and table.is_bare and not self._apart[True]
            and 0 < line.count("|") == len(table.header) - 1
        )  # fmt: skip

    def _add_cells(self, line: str, *, is_bare: bool) -> None:
        raw = _BAR.split(line.removeprefix("|").removesuffix("|"))
        if self.tables:
            raw = _joined(raw, self.tables[-1].header)
            if is_bare and len(raw) == len(self.tables[-1].header) + 1 and not raw[-1]:
                raw.pop()  # the first bar was cut off
        cells = [cell.strip(" *`") for cell in raw]
        heads, holds_figure = self._heads[is_bare], has_figure(cells)
        if holds_figure and heads and len(heads[-1]) == len(cells) and all(heads[-1]):
            heads[:-1] = []
            self._add_header(is_bare=is_bare)  # its rule was left out
        table = self.tables[-1] if self.tables else None
        fits = table and (table.is_bare, len(table.header)) == (is_bare, len(cells))
        new_names = {*cells} - {*table.header} if table and table.rows and all(cells) else set()
        # A heading of several lines may have another program's between them.
        is_near = not self._apart[is_bare] or bool(heads and len(heads[-1]) == len(raw))
        is_head = not holds_figure and ((heads and is_near) or 0 < 2 * len(new_names) <= len(cells))
        if table and fits and not is_head:
            if line.endswith("|") or self._ends_open:
                heads.clear()
                self._add_row(table, cells)
            else:
                self.unread.add(line)
        elif _RESULT.search(line) or (
            table and holds_figure and not is_bare and not self._apart[False]
        ):
            self.unread.add(line)
        else:
            if not is_near:
                heads.clear()
            heads.append(raw)
            self._ends_open = not line.endswith("|")
        self._apart[is_bare] = False

    def _end_head(self, n_columns: int, *, has_bars: bool) -> None:
        """Make a header of the line above a rule; a line between may be of another program."""
        for head in self._heads[True]:
            if len(head) == n_columns + 1 and not head[-1]:
                head.pop()  # its first bar was cut off, and the last was not
        for heads in self._heads.values():
            if any(len(head) == n_columns for head in heads):
                heads[:] = [head for head in heads if len(head) == n_columns]
        last = self.tables[-1].rows if self.tables and not self._apart[False] else []
        for is_bare, heads in self._heads.items():
            if heads and (not self._apart[is_bare] or n_columns in {1, len(heads[-1])}):
                self._add_header(is_bare=is_bare)
                self.tables[-1].is_bare = is_bare and not has_bars
                last = []
                break
        for heads in self._heads.values():
            heads.clear()
        if last and all(last[-1].values()) and not has_figure(last[-1].values()):
            # Another table follows at once.
            self._heads[False] = [[*last.pop().values()]]
            self._add_header(is_bare=False)
        self._apart = {False: False, True: False}

    def _add_row(self, table: PrintedTable, cells: list[str]) -> None:
        named = [*filter(None, table.header)]
        if len({*named}) < len(named):
            self.unread.add(" | ".join(cells))  # two columns have one name
        elif table.rows and cells[0] and not any(cells[1:]):
            table.rows[-1][table.header[0]] += f" {cells[0]}"  # the name goes on below
        elif tuple(cells) == table.header:
            self.tables.append(PrintedTable(table.header, is_bare=table.is_bare))
        elif self._n_rows < MAX_ROWS:
            self._n_rows += 1
            table.rows.append(dict(zip(table.header, cells, strict=True)))

    def _add_build(self, build: str) -> None:
        for table in self.tables:
            table.build = table.build or build

    def _add_header(self, *, is_bare: bool) -> None:
        heads = self._heads[is_bare]
        width = max(map(len, heads))
        spread = [_spread(head, width) for head in heads]
        columns = zip(*spread, strict=True)
        header = tuple(" ".join(filter(None, column)) for column in columns)
        self.tables.append(PrintedTable(header, is_bare=is_bare))
        heads.clear()


def unused_rows(
    table: PrintedTable, *, is_read: bool, has_thousands: bool = False
) -> Iterator[str]:
    """Yield the rows with results that were not used.

    If the table was read, these are its rows with a garbled figure. With `has_thousands`, any comma
    is one between thousands.
    """
    of_results = any(map(_OF_RESULTS.search, table.header))
    for cells in table.rows:
        row = " | ".join(cells.values())
        figures = filter(_NO_WORD.fullmatch, cells.values())
        numbers = (cell.replace(",", "") if has_thousands else cell for cell in figures)
        is_garbled = any(measured(number) is None for number in numbers)
        if is_garbled if is_read else of_results or _RESULT.search(row):
            yield row


def has_figure(cells: Iterable[str]) -> bool:
    """True if a value begins with a digit."""
    return any(cell[:1].isdecimal() for cell in cells)


def _joined(raw: list[str], header: Sequence[str]) -> list[str]:
    """A row's values, if bars within the column of patterns made more than the header has."""
    more = len(raw) - len(header)
    at = next((i for i, name in enumerate(header) if name in _OF_PATTERNS), None)
    if at is None or more <= 0:
        return raw
    return [*raw[:at], "|".join(raw[at : at + more + 1]), *raw[at + more + 1 :]]


def _spread(head: list[str], width: int) -> list[str]:
    """A header's row with a name for each column; one without a blank continues the last."""
    cells: list[str] = []
    for cell in head:
        cells.append(cell.strip() if cell or not cells else cells[-1])
    return (cells + [""] * width)[:width]


#: A column's names, and its meaning. Rates are tok/s.
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
_TITLE: Final = "title"
_DEVIATIONS: Final = {"rate": "rate sd", "PPL": "PPL se"}
_WORDS: Final = (
    _TITLE, "machine", "framework", "engine", "backend", "rpc_backend", "model", "model_label",
    "quant", "model_id", "name", "prompt_set", "concurrency", "target", "draft", "prompt_type",
    "prompt_length", "config", "status",
)  # fmt: skip
#: Columns that name a row's build, and the names of a baseline.
_ARM_WORDS: Final = frozenset({"framework", "engine", "backend", "rpc_backend", _TITLE})
_BASELINES: Final = ("baseline", "local")
#: One of these makes a table one of results.
_TELLING: Final = frozenset({"rate", "PPL", "drafted"})
_MEASURED_NAMES: Final = frozenset({"rate", "PPL"})
_MAX_ROWS: Final = 10_000
_MAX_DEPTH: Final = 8


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: its subject, by column, and its figures, by this package's names."""

    words: Mapping[str, str]
    numbers: Mapping[str, float]

    @property
    def label(self) -> str:
        """Everything that it is about."""
        k = [f"k={self.numbers['k']:g}"] if "k" in self.numbers else []
        return " ".join([*self.words.values(), *k]) or "row"

    @property
    def workload(self) -> tuple[tuple[str, object], ...]:
        """The common part of all builds: the words that name none, and the sizes of the work."""
        sizes = [(name, self.numbers.get(name)) for name in ("k", "n_gen", "n_prompt")]
        words = [(name, word) for name, word in self.words.items() if name not in _ARM_WORDS]
        return (*words, *sizes)

    @property
    def is_baseline(self) -> bool:
        """True if its build is a baseline."""
        arms = [word.lower() for name, word in self.words.items() if name in _ARM_WORDS]
        return any(arm.startswith(_BASELINES) for arm in arms)

    @property
    def subject(self) -> str:
        """The model, as this table calls it."""
        return self.words.get("model") or self.words.get("model_label") or ""

    @property
    def compared(self) -> Mapping[str, float]:
        """The properties that two builds can have in common."""
        kept = ("rate", "accepted", "TTFT ms", "total ms", "peak GB")
        return {name: self.numbers[name] for name in kept if name in self.numbers}


@dataclass(slots=True)
class OwnTableReader:
    """Gathers the rows of people's own tables, from tables and from JSON."""

    #: rates and PPL of 0 or no number, with their rows
    unmeasured: list[str] = field(default_factory=list)
    rows: list[TableRow] = field(default_factory=list)
    begun: str = ""  #: the table so far if a header was read; empty without one

    def add_table(self, table: PrintedTable) -> bool:
        """Keep the rows of a table, and whether it is one of results."""
        if not is_own_header({column.lower() for column in table.header}):
            return False
        self.begun = "a table of results, without a row: nothing was measured"
        for cells in table.rows:
            row = {column.lower(): cell for column, cell in cells.items()}
            self._add({**row, _TITLE: table.title})
        return True

    def add(self, document: object) -> bool:
        """Keep the rows with a result of every list of flat objects, and whether there is one."""
        entries = _entries([document], _MAX_DEPTH)
        found = [cells for cells in entries if _unmeasured(cells) or is_result(cells)]
        for cells in found:
            self._add(cells)
        return bool(found)

    def _add(self, cells: Mapping[Any, Any]) -> None:
        row = _row(cells)
        if len(self.rows) + len(self.unmeasured) >= _MAX_ROWS:
            return
        if lost := _unmeasured(cells):
            self.unmeasured.append(f"{row.label}: {lost}")
        else:
            self.rows.append(row)


def is_result(cells: Mapping[Any, Any]) -> bool:
    """True if a row has a figure that makes it a result."""
    return bool(_row(cells).numbers.keys() & _TELLING)


def _unmeasured(cells: Mapping[Any, Any]) -> str:
    """A rate or PPL that is 0 or no number, with its column; empty without one."""
    numbers = _row(cells).numbers
    for column, name in _NUMBERS.items():
        cell = str(cells.get(column, "")).strip()
        is_none = not numbers.get(name) and numbers.get("n_gen") != 0
        if name in _MEASURED_NAMES and is_none and UNMEASURED.fullmatch(cell):
            return f"{column} is {cell}"
    return ""


def is_own_header(names: AbstractSet[str]) -> bool:
    """True if one of the columns, in lower case, has a result."""
    return any(_NUMBERS.get(name) in _TELLING for name in names)


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
        number, deviation = _number(cells.get(column))
        if number is not None:
            numbers.setdefault(name, number)
        if deviation is not None and name in _DEVIATIONS:
            numbers.setdefault(_DEVIATIONS[name], deviation)
    return TableRow(words, numbers)


def _number(cell: object) -> tuple[float | None, float | None]:
    """The number in a column, and its deviation; None without."""
    if isinstance(cell, str) and (found := measured(cell)):
        return found.mean, found.sd
    return number_of(cell), None
