"""The durations, counts and rates that `ollama run --verbose` prints, on lines or in a table."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pytest_asperf.audit.tables import PrintedTable
from pytest_asperf.worker.printed import COUNT, NUMBER, Unread
from pytest_asperf.worker.printed.timings import OLLAMA, PrintedTiming, Request, request_of_rates

#: Go's durations end with a second or a part of it, and a rate has its unit: others are cut off.
_DURATION: Final = rf"(?:{NUMBER}(?:h|m(?!s)))*{NUMBER}(?:[muµμn]?s)"
_VALUE: Final = {
    "count": rf"({COUNT})(?: token\(s\)| tokens?)?",
    "duration": rf"({_DURATION})",
    "rate": rf"({NUMBER}|NaN|[+-]?Inf) *(?:t|tok|tokens?)/s(?:ec)?",
}
_FIGURE: Final = re.compile(
    r"((?:prompt )?eval) (?:" + "|".join(rf"({name}) *[:=] *{_VALUE[name]}" for name in _VALUE)
    + r")(?=[\s,;|)]|$)",
    re.IGNORECASE,
)  # fmt: skip
_LIKE_FIGURE: Final = re.compile(r"\beval (?:rate|count|duration) *[:=] *[\d-]", re.IGNORECASE)
_PART: Final = re.compile(rf"({NUMBER})(h|ms|m|s|[uµμ]s|ns)")
_MS: Final = {"h": 3.6e6, "m": 6e4, "s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
_MICRO: Final = str.maketrans("µμ", "uu")
_NAME: Final = re.compile(
    r"((?:prompt )?eval (?:count|duration|rate))(?: *\(.*\))?:?", re.IGNORECASE
)
_BARE_RATE: Final = re.compile(NUMBER)


#: Said of a reply whose last lines are not there.
CUT_REPLIES: Final = "ollama's figures, cut off before the time of the generated text"


@dataclass(slots=True)
class OllamaReader:
    """Gathers the figures of one reply after the other; the rate of the text is its last one."""

    add: Callable[[str, Request], None]  #: is called with this tool and each reply
    cut: int = 0  #: replies that were cut off before the time of their text
    #: lines whose figure is cut off or in another form
    unread: Unread = field(default_factory=Unread)
    _found: dict[str, str] = field(default_factory=dict)

    def feed(self, line: str) -> None:
        """Parse one line."""
        if "val " not in line:
            return
        figures = [*_FIGURE.finditer(line)]
        if not figures and _LIKE_FIGURE.search(line):
            self.unread.add(line)
        for figure in figures:
            part, *named = figure.groups()
            what, value = (one for one in named if one)
            name = f"{part} {what}".lower()
            if name in self._found:
                self.end()  # the one before it was cut off
            self._found[name] = value
            if name == "eval rate":
                self.end()

    def end(self) -> None:
        """Keep the reply that is open, if its text was timed."""
        found, self._found = self._found, {}
        if request := _request(found):
            self.add(OLLAMA, request)
        self.cut += bool(found) and request is None


def requests_of_table(table: PrintedTable) -> Iterator[tuple[str, Request]]:
    """Yield each reply with the name of its row or column; none if there are no such figures."""
    columns = {column: name for column in table.header if (name := _name(column))}
    if columns:
        names = [column for column in table.header if column not in columns]
        replies = [
            (
                " ".join(cells[name] for name in names[:2] if cells[name]),
                {name: cells[column] for column, name in columns.items()},
            )
            for cells in table.rows
        ]
    else:
        first, *others = table.header
        named = [(name, cells) for cells in table.rows if (name := _name(cells[first]))]
        replies = [
            (column if len(others) > 1 else "", {name: cells[column] for name, cells in named})
            for column in others
        ]
    for label, cells in replies:
        found = {name: value for name, cell in cells.items() if (value := _value(name, cell))}
        if request := _request(found):
            yield label, request


def _name(cell: str) -> str:
    found = _NAME.fullmatch(cell.strip())
    return found[1].lower() if found else ""


def _value(name: str, cell: str) -> str:
    """The figure in a table cell, whose unit its column may have; empty without one."""
    found = _FIGURE.fullmatch(f"{name}: {cell}")
    if found:
        return next(filter(None, found.groups()[2::2]), "")
    return cell if name.endswith("rate") and _BARE_RATE.fullmatch(cell) else ""


def _request(found: Mapping[str, str]) -> Request | None:
    prompt, generated = (_timing(found, part) for part in ("prompt eval", "eval"))
    if generated is not None:
        return Request(prompt, generated)
    # The lines with its count and duration were left out.
    return request_of_rates(_rate(found, "prompt eval") or 0.0, _rate(found, "eval") or 0.0)


def _timing(found: Mapping[str, str], part: str) -> PrintedTiming | None:
    count, duration = found.get(f"{part} count"), found.get(f"{part} duration")
    rate = _rate(found, part)
    if count is None or not (duration or rate):
        return None
    if not duration:
        return PrintedTiming(int(count), int(count) * 1e3 / (rate or 1), rate)
    units = ((float(n), unit.translate(_MICRO)) for n, unit in _PART.findall(duration))
    return PrintedTiming(int(count), sum(n * _MS[unit] for n, unit in units), rate)


def _rate(found: Mapping[str, str], part: str) -> float | None:
    rate = found.get(f"{part} rate", "")
    return float(rate) if _BARE_RATE.fullmatch(rate) else None
