"""The lines of a file as its tool printed them: encodings, prefixes and wraps are undone.

A file is read in blocks. A line longer than any tool prints is cut, and counted.
"""

from __future__ import annotations

import codecs
import io
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Final

from pytest_asperf.worker.printed.engine_log import LOG_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    "|".join({re.escape("±".encode().decode(page)) for page in _MISREAD}) + r"|\\xb1|\\xf1|\ufffd"
)
_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
#: What others put before a line: quotes, times, the name of a container or a program.
_PREFIX: Final = re.compile(
    r"(?:[>#]+ "
    r"|[^\t]{1,200}\t[^\t]{1,200}\t\ufeff?(?=\d{4}-\d\d-\d\dT)"  # job and step of a CI run
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?\]?[ \t]"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?[ \t]"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d "
    r"|[\w.-]+ [\w.@-]+\[\d+\]: "
    r"|\[(?:pod/\S+|INFO|WARN(?:ING)?|ERROR|DEBUG)\] "
    r"|[\w.-]+-\d+ +\| "
    r"|[\w.-]+\.exe ?: "
    r")[ \t]*"
)
_BARS: Final = str.maketrans({"┃": "|", "│": "|", "║": "|", "\xa0": " ", "\0": None})
_LEAST_WIDTH: Final = 40
#: A line that may go on: an open parenthesis, a timing without one, a perplexity's chunks.
_OPEN: Final = re.compile(r"\([^()]*$|time +=[^)]*$")
_CHUNKS: Final = re.compile(r"\[\d+\][\d.naif-]+,")
_MORE_CHUNKS: Final = re.compile(r"[\d.,\[\]naif-]+$")


@dataclass(slots=True)
class Lines:
    """The lines of a file, without their ends; `cut` counts those whose tail was dropped.

    Tools that write into one file may differ in their encoding, so each line has its own. Bytes
    that are of none are shown as such. Either end of line, and a bare carriage return of a progress
    bar, ends a line.
    """

    file: BinaryIO
    max_line: int = MAX_LINE
    cut: int = field(default=0, init=False)
    _bytes: io.TextIOWrapper = field(init=False)
    _wide: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._bytes = io.TextIOWrapper(self.file, "latin-1")

    def __iter__(self) -> Iterator[str]:
        """Yield each line that is left; holds one block and one line at a time."""
        while line := self._bytes.readline(self.max_line + 1):
            if len(line) > self.max_line and not line.endswith("\n"):
                self.cut += 1
                while (tail := self._bytes.readline(_BLOCK_CHARS)) and not tail.endswith("\n"):
                    pass
            yield self._decoded(line.removesuffix("\n")[: self.max_line].encode("latin-1"))

    def first(self) -> str:
        """The first line; the next reader begins with it again."""
        line = next(iter(self), "")
        self.restart()
        return line

    def restart(self) -> None:
        """Begin with the first line again."""
        self._bytes.seek(0)

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
        if self._wide == "utf-16-le" and (raw[0] == 0 or even > odd):
            raw = raw[1:]  # the second half of the line's end before it
        return raw[: len(raw) & ~1].decode(self._wide, errors="replace")


def clean(line: str) -> Iterator[str]:
    """Yield a line without what others put into it; two, where a log line begins in its middle."""
    line = _ESCAPE.sub("", line).translate(_BARS).strip()
    while prefix := _PREFIX.match(line):
        line = line[prefix.end() :]
    line = _PLUS_MINUS.sub("±", line)
    for part in LOG_PREFIX.split(line, maxsplit=1):
        if stripped := part.strip():
            yield stripped


def wrap_width(lines: Iterable[str]) -> int:
    """The columns at which a terminal may have broken lines; 0 if none is that long."""
    width = max((len(line) for line in lines), default=0)
    return width if width >= _LEAST_WIDTH else 0


def unwrapped(lines: Iterable[str], width: int) -> Iterator[str]:
    """Join what a terminal of this width broke: a line of full width that goes on, or a row."""
    whole, is_full = "", False
    for line in lines:
        if whole and len(whole) < MAX_LINE and _goes_on(whole, line, is_full=is_full):
            whole += line
        else:
            if whole:
                yield whole
            whole = line
        is_full = len(line) == width
    if whole:
        yield whole


def _goes_on(whole: str, line: str, *, is_full: bool) -> bool:
    """True if a line is the rest of the one before it, whose last part may be of full width."""
    if not whole.lstrip().startswith("|"):
        chunks = _CHUNKS.search(whole) and _MORE_CHUNKS.match(line)
        return is_full and bool(chunks or _OPEN.search(whole))
    is_open = not whole.rstrip().endswith("|") or (is_full and not whole.endswith("|"))
    if line.lstrip().startswith("|"):
        return is_open and is_full
    return line.rstrip().endswith("|") or (is_open and is_full)
