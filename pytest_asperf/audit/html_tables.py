"""Rows of HTML tables as lines between bars."""

import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

#: Lines of one row; a tag without its end uses no more than these.
_MOST_LINES = 200
_BEFORE_ROW = re.compile(r"[^<]+(?=</?(?:table|thead|tbody|t[rdh])\b)", re.IGNORECASE)


def with_bars(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, with a row between bars for each `tr`; one that is cut has no last bar."""
    parser = _Rows()
    for line in lines:
        if not parser.is_open and "<t" not in line and "<T" not in line:
            yield line
            continue
        prefix = None if parser.is_in_cell else _BEFORE_ROW.match(line)
        parser.feed(f"{line[prefix.end() :] if prefix else line}\n")
        yield from parser.taken()
    parser.end_row(is_whole=False)
    yield from parser.taken()


class _Rows(HTMLParser):
    """Gathers the columns of the open row, and text outside of tables as lines."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = False
        self._lines: list[str] = []
        self._cells: list[str] = []
        self.is_in_cell = False
        self._n_lines = 0

    def taken(self) -> list[str]:
        """Parse the complete lines."""
        self._n_lines += 1
        if self._n_lines > _MOST_LINES:
            self.end_row(is_whole=False)
        taken, self._lines = self._lines, []
        return taken

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        """Begin a row or a column."""
        if tag in {"tr", "table"}:
            self.end_row(is_whole=True)
            self.is_open, self._n_lines = True, 0
        elif tag in {"td", "th"} and self.is_open:
            self._cells.append("")
            self.is_in_cell = True
        elif tag == "br":
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        """End a row or a column."""
        if tag in {"td", "th"}:
            self.is_in_cell = False
        elif tag in {"tr", "table"}:
            self.end_row(is_whole=True)
            self.is_open = tag == "tr"

    def handle_data(self, data: str) -> None:
        """Keep the text of a column, or lines outside of one."""
        if self.is_in_cell:
            self._cells[-1] += data
        elif not self._cells:
            self._lines += data.splitlines() if data.strip() else []

    def end_row(self, *, is_whole: bool) -> None:
        """Make a line of the row that is open."""
        if self._cells:
            cells = (" ".join(cell.split()).replace("|", "/") for cell in self._cells)
            self._lines.append(f"| {' | '.join(cells)}{' |' * is_whole}")
        self.is_open = self.is_open and is_whole
        self._cells, self.is_in_cell = [], False
