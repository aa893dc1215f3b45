"""Tables between bars, of every tool that prints its results so."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_RULE: Final = re.compile(r"[|+:=\-━─═╇┳┻┡┩├┤┼┬┴┏┓┗┛└┘┌┐╭╮╰╯ ]+")
_BUILD: Final = re.compile(r"build: (\w+) \((\d+)\)$")
_MAX_ROWS: Final = 20_000
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
        elif self._n_rows < _MAX_ROWS:
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
