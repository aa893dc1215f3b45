"""The lines of a file as its tool printed them: encodings, prefixes and wraps are undone.

A file is read in blocks. A line longer than any tool prints is cut, and counted.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import BinaryIO, Final

from pytest_asperf.audit.titles import TitleReader
from pytest_asperf.worker.printed.engine_log import LOG_PREFIX
from pytest_asperf.worker.printed.timings import request_of

_BLOCK_CHARS: Final = 1 << 18
#: The longest line of a tool: PPL of 50,000 chunks, or the samples of a long llama-bench test.
MAX_LINE: Final = 1 << 20

_BOMS: Final = {
    codecs.BOM_UTF8: "",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
#: Share of a line's bytes of one parity that are NUL, from which the line is UTF-16.
_WIDE_SHARE: Final = 0.8

#: A plus-minus sign that was read in another code page than it was written in.
_MISREAD: Final = ("cp437", "cp1252", "cp1251", "mac_roman", "gbk", "shift_jis", "cp949")
_PLUS_MINUS: Final = re.compile(
    "|".join({re.escape("±".encode().decode(page)) for page in _MISREAD})
    + r"|\$?\\pm\b\$?|\\xb1|\\xf1|\ufffd"
)
#: Keys of a JSON line that contains a line of a log: of Docker's files, journalctl and others.
_LOG_KEYS: Final = ("log", "MESSAGE", "message", "msg", "textPayload", "line")
_LOGGED: Final = re.compile(rf'\s*\{{.*"(?:{"|".join(_LOG_KEYS)})": *"')
_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
#: Three without blanks are a prompt of ollama's, or Python's.
_QUOTE: Final = re.compile(r"(?!>>> )(?:[ \t]*>)+ ?")
_TIME: Final = (
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?"
    r"(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|(?:\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"|\d{10}\.\d{3,9}|\[ *\d{1,9}\.\d{6}\])"
)
_LEVEL: Final = r"\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\]?"
#: Prefixes of a line: comment signs, times, the name of a container or a program.
_PREFIX: Final = re.compile(
    r"(?:\(\w+ pid=\d+\) "
    rf"|[^\t]{{1,200}}\t[^\t]{{1,200}}\t\ufeff?(?={_TIME})"  # job and step of a CI run
    # A time, and with it a log level, a stream or a place in a source file.
    rf"|(?:{_LEVEL}[ \t]+)?\[?{_TIME}\]?(?:[ \t]+|: )(?:std(?:out|err) [FP] |\d\dO[+ ])?"
    rf"(?:\|[ \t]+{_LEVEL}[ \t]+\|[ \t]+|(?:- )?{_LEVEL}[ \t]+(?:[:-][ \t]+)?)?"
    r"(?:\[[\w./-]+:\d+\] |[\w.]+:[\w<>.]+:\d+ [|-] )?"
    r"|[\w.-]+ [\w./@-]+\[\d+\]: "
    r"|\[(?:pod/\S+|INFO|WARN(?:ING)?|ERROR|DEBUG)\] "
    r"|[\w.-]+-\d+ +\| "
    r"|[\w.-]+\.exe ?: "
    r"|\d{1,7}:(?=\D|\d+\t)"  # the number of grep -n
    r")[ \t]*"
)
_COMMENT: Final = re.compile(r"^#+ ")
_BARS: Final = str.maketrans(
    {"┃": "|", "│": "|", "║": "|", "\xa0": " ", **dict.fromkeys("\0\u200b\u200e\ufeff")}
)
#: As a web page has them.
_ENTITIES: Final = {
    "&plusmn;": "±", "&#177;": "±", "&lt;": "<", "&gt;": ">", "&nbsp;": " ", "&amp;": "&",
}  # fmt: skip
_LINE_BREAK: Final = re.compile(r"(?:<br ?/?>|(?<![\\])\\)$")
#: A decimal comma; that of thousands has three digits behind it.
_COMMA: Final = re.compile(r"(?<![^\s(])(\d{1,9}),(\d\d|\d{4,12})(?=[\s)%]|$)")
_LEAST_WIDTH: Final = 40
#: A line that may go on: an open parenthesis, a timing without one, a perplexity's chunks.
_OPEN: Final = re.compile(r"\([^()]*$|time +=[^)]*$")
_CHUNKS: Final = re.compile(r"\[\d+\][\d.naif-]+,")
#: Another row, or a line that a program begins with its name.
_OWN_LINE: Final = re.compile(r"\s*\||[\w.]+: ")
_MORE_CHUNKS: Final = re.compile(r"[\d.,\[\]naif-]+$")


@dataclass(slots=True)
class Lines:
    """The lines of a file, without their ends; `cut` counts those whose end was dropped.

    Tools that write into one file may differ in their encoding, so each line has its own. Invalid
    bytes are shown as such. Either end of line, and a bare carriage return of a progress bar, ends
    a line.
    """

    file: BinaryIO
    max_line: int = MAX_LINE
    cut: int = field(default=0, init=False)
    _bytes: io.TextIOWrapper = field(init=False)
    _wide: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._bytes = io.TextIOWrapper(self.file, "latin-1")

    def __iter__(self) -> Iterator[str]:
        """Yield each remaining line; one block and one line are in memory at a time."""
        while line := self._bytes.readline(self.max_line + 1):
            if len(line) > self.max_line and not line.endswith("\n"):
                self.cut += 1
                while (tail := self._bytes.readline(_BLOCK_CHARS)) and not tail.endswith("\n"):
                    pass
            yield self._decoded(line.removesuffix("\n")[: self.max_line].encode("latin-1"))

    def _decoded(self, raw: bytes) -> str:
        while bom := next((mark for mark in _BOMS if raw.startswith(mark)), b""):
            raw, self._wide = raw.removeprefix(bom), _BOMS[bom]
        if b"\0" not in raw:
            return raw.decode("utf-8", errors="backslashreplace")
        even, odd = raw[::2].count(0), raw[1::2].count(0)
        least = _WIDE_SHARE * (len(raw) // 2)
        if not self._wide and (max(even, odd) < least or min(even, odd) > max(even, odd) / 8):
            return raw.decode("utf-8", errors="backslashreplace")
        self._wide = self._wide or "utf-16-le"
        if self._wide == "utf-16-le" and len(raw) % 2 and raw[0] == 0:
            raw = raw[1:]  # the second half of the line's end before it
        return raw[: len(raw) & ~1].decode(self._wide, errors="replace")


@dataclass(frozen=True, slots=True)
class Layout:
    """The text around the lines of a file."""

    indent: int = 0  #: blanks before every line
    width: int = 0  #: columns at which a terminal may have broken lines; 0 if none is that long
    #: a collector's text before every line; None if there is none
    prefix: re.Pattern[str] | None = None

    def is_shared(self, head: Iterable[str]) -> bool:
        """True if every line has the prefix."""
        if self.prefix is None:
            return False
        lines = [f"{line} " for line in map(_plain, logged(head)) if line.strip()]
        found = [self.prefix.match(line) for line in lines]
        return len(found) >= _LEAST_LINES and all(found)

    @classmethod
    def candidates(cls, head: Iterable[str]) -> list[Layout]:
        """The layouts that the first lines may have, the simplest first."""
        plain = [line for line in map(_plain, logged(head)) if line.strip()]
        indent = min((len(line) - len(line.lstrip()) for line in plain), default=0)
        width = max((len(line) for line in plain), default=0) - indent
        base = cls(indent, width if width >= _LEAST_WIDTH else 0)
        return [base, *(replace(base, prefix=found) for found in _shared_prefixes(plain))]

    def lines(self, raw: Iterable[str], titles: TitleReader | None = None) -> Iterator[str]:
        """Yield the lines as their tool printed them; `titles` reads each before it is yielded."""
        plain = (
            line[min(self.indent, len(line) - len(line.lstrip())) :]
            for line in map(_plain, logged(raw))
        )
        for line in unwrapped(with_bars(plain), self.width):
            prefix = self.prefix and self.prefix.match(line)
            bare = _without_prefixes(line[prefix.end() :] if prefix else line)
            if titles:
                titles.feed(bare)
            yield from clean(bare)


def logged(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, of one that a collector wrapped in JSON those within it."""
    for line in lines:
        text = _logged_text(line) if "}" in line[-2:] and _LOGGED.match(line) else None
        if text is None:
            yield line
        else:
            yield from text.splitlines() or [""]


def _logged_text(line: str) -> str | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    key = next((key for key in _LOG_KEYS if isinstance(entry.get(key), str)), None)
    return None if key is None or request_of(entry) else str(entry[key])


def _plain(line: str) -> str:
    """A line without colors, quotes and a web page's replacements of signs."""
    if "\x1b" in line:
        line = _ESCAPE.sub("", line)
    if "\0" in line or not line.isascii():
        line = line.translate(_BARS)
    if quote := _QUOTE.match(line):
        line = line[quote.end() :]
    if "&" in line:
        for entity, sign in _ENTITIES.items():
            line = line.replace(entity, sign)
    return _LINE_BREAK.sub("", line) if line.endswith((">", "\\")) else line


_TOKEN: Final = re.compile(r"\d+|[^\W\d_]+|\s+|.")
_MOST_LINES, _MOST_TOKENS = 400, 60
#: Share of lines that have a prefix which counts as that of all.
_SHARED: Final = 0.8
_MOST_PREFIXES: Final = 12
_LEAST_LINES: Final = 3
_IS_END: Final = re.compile(r"\s+|[:|>)\]+\-]")
_DIGITS: Final = r"\d+"
#: In a pattern.
_MORE_THAN_BARS: Final = re.compile(r"[^\\s|*+]|\\[^s|]")


def _shared_prefixes(lines: list[str]) -> list[re.Pattern[str]]:
    """Possible prefixes of every line, shortest first.

    It is equal in most lines except for its numbers, such as times and process ids.
    """
    rows = [_TOKEN.findall(line.lstrip()[:200])[:_MOST_TOKENS] for line in lines[:_MOST_LINES]]
    least, pattern, found = max(1, _SHARED * len(rows)), r"\s*", list[str]()
    last = before = ""
    for at in range(_MOST_TOKENS):
        kinds = Counter(_kind(row[at]) for row in rows if len(row) > at)
        kind, n = kinds.most_common(1)[0] if kinds else ("", 0)
        # No number of a time or an address begins a line, and neither does a table cell.
        is_within = kind == _DIGITS and last in ":-" and before.isdecimal()
        if _IS_END.fullmatch(last) and not is_within and _MORE_THAN_BARS.search(pattern):
            found.append(pattern + " *")
        if n < least or len(found) == _MOST_PREFIXES:
            break
        rows = [row for row in rows if len(row) > at and _kind(row[at]) == kind]
        pattern, last, before = pattern + kind, rows[0][at], last
    return [re.compile(one) for one in found]


def _kind(token: str) -> str:
    """A pattern for a token and those like it."""
    return _DIGITS if token[0].isdecimal() else r"\s+" if token.isspace() else re.escape(token)


def _without_prefixes(line: str) -> str:
    """A line without its collectors' prefixes."""
    line = line.lstrip()
    while prefix := _PREFIX.match(line):
        line = line[prefix.end() :]
    return line.rstrip(" \r\n")  # columns between tabs may be empty


def clean(line: str) -> Iterator[str]:
    """Yield a line without comment and bold signs; two where a log line begins within it."""
    if line.startswith("#"):
        line = _without_prefixes(_COMMENT.sub("", line))
    line = line.replace("**", "")
    if "\\" in line or not line.isascii():
        line = _PLUS_MINUS.sub("±", line)
    if "," in line:
        line = _COMMA.sub(r"\1.\2", line)
    for part in LOG_PREFIX.split(line, maxsplit=1):
        if stripped := part.strip(" \r\n"):
            yield stripped


def unwrapped(lines: Iterable[str], width: int) -> Iterator[str]:
    """Join a line that a terminal of this width broke: one of full width that goes on, or a row."""
    whole, is_full = "", False
    for number, line in enumerate(lines):
        if whole and len(whole) < MAX_LINE and _goes_on(whole, line, is_full=is_full):
            whole += line
        else:
            if number:
                yield whole
            whole = line
        is_full = len(line) == width
    yield whole


def _goes_on(whole: str, line: str, *, is_full: bool) -> bool:
    """True if a line continues the one before it, whose last part may be of full width."""
    if not whole.lstrip().startswith("|"):
        chunks = _CHUNKS.search(whole) and _MORE_CHUNKS.match(line)
        return is_full and bool(chunks or _OPEN.search(whole))
    is_open = is_full and not whole.rstrip().endswith("|")
    return is_open or (line.rstrip().endswith("|") and not _OWN_LINE.match(line))


#: Lines of one row; a tag without its end uses no more than these.
_MOST_TAG_LINES: Final = 200
_BEFORE_ROW: Final = re.compile(r"[^<]+(?=</?(?:table|thead|tbody|t[rdh])\b)", re.IGNORECASE)


def with_bars(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, with HTML's rows between bars; one that is cut has no last bar."""
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
        if self._n_lines > _MOST_TAG_LINES:
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
