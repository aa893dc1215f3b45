"""Tables whose columns are separated by commas, semicolons or tabs, among other lines."""

import csv
import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from pytest_asperf.audit.tables import MAX_ROWS, PrintedTable, has_figure
from pytest_asperf.worker.printed import NUMBER, Unread

_DELIMITERS: Final = "\t;,"
_MAX_CELL: Final = 1 << 16
#: A decimal comma: a file with semicolons has them because its commas are in numbers.
_COMMA: Final = re.compile(r"(?<=\d),(?=\d)")
_FIGURE: Final = re.compile(rf"{NUMBER}(?:[eE][+-]?\d{{1,2}})?")
#: For a row of llama-bench's CSV of any release.
_LEAST_COMMAS: Final = 20
_LEAST_FIGURES: Final = 8


@dataclass(slots=True)
class DelimitedReader:
    """Gathers tables with a known header, each with the delimiter of its header."""

    #: whether column names, in lower case, are those of a table that is read
    is_header: Callable[[AbstractSet[str]], bool]
    tables: list[PrintedTable] = field(default_factory=list)
    #: rows with another number of columns than their header, or cut off
    unread: Unread = field(default_factory=Unread)
    _delimiter: str = ","
    _held: str = ""

    def feed(self, line: str) -> bool:
        """Parse one line; True if it is one of a table."""
        if self._held:
            line = f"{self._held}\n{line}"
        elif self._begins(line):
            return True
        if not self.tables or self._delimiter not in line:
            return self._lacks_header(line)
        self._held = line if line.count('"') % 2 and len(line) < _MAX_CELL else ""
        return bool(self._held) or self._add(_cells(line, self._delimiter))

    def end(self) -> None:
        """Count a row that ends within a column."""
        if self._held:
            self.unread.add(self._held)
        self._held = ""

    def _lacks_header(self, line: str) -> bool:
        """Count a row of llama-bench's CSV whose header is not above it."""
        is_row = (
            line.count(",") >= _LEAST_COMMAS and _n_figures(_cells(line, ",")) >= _LEAST_FIGURES
        )
        if is_row:
            self.unread.add(line)
        return is_row

    def _begins(self, line: str) -> bool:
        """True if a line is a header, whose table then begins."""
        for delimiter in _DELIMITERS:
            if delimiter not in line or not self.is_header(
                {cell.strip(' "') for cell in line.lower().split(delimiter)}
            ):
                continue
            cells = _cells(line, delimiter)
            if len(cells) > 1 and not has_figure(cells):
                self.tables.append(PrintedTable(tuple(cells)))
                self._delimiter = delimiter
                return True
        return False

    def _add(self, cells: list[str]) -> bool:
        table = self.tables[-1]
        if not has_figure(cells) or len(cells) <= len(table.header) / 2:
            return False
        if len(cells) != len(table.header):
            self.unread.add(self._delimiter.join(cells))
        elif len(table.rows) < MAX_ROWS:
            if self._delimiter == ";":
                cells = [_COMMA.sub(".", cell) for cell in cells]
            table.rows.append(dict(zip(table.header, cells, strict=True)))
        return True


def lacks_header(lines: Sequence[str]) -> bool:
    """True if all lines are rows with equally many columns and with figures."""
    for delimiter in _DELIMITERS:
        rows = [_cells(line, delimiter) for line in lines if line.strip()]
        is_table = len(rows) > 1 and len({*map(len, rows)}) == 1 and len(rows[0]) > 2
        if is_table and min(map(_n_figures, rows)) > 1:
            return True
    return False


def _n_figures(cells: Sequence[str]) -> int:
    return sum(_FIGURE.fullmatch(cell) is not None for cell in cells)


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        cells = next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
    return [cell.strip() for cell in cells]
