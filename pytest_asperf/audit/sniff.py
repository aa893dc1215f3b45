"""What kind of file this is, and its lines: nothing that a file holds makes reading it unbounded.

Formats are recognised by content, because names of result files say little. A file is read in
blocks; a line longer than any tool writes is cut, and counted.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD_BYTES: Final = 1 << 16
_BLOCK_CHARS: Final = 1 << 18
#: The longest line of a tool: PPL of 50,000 chunks, or the samples of a long llama-bench test.
MAX_LINE: Final = 1 << 20
#: Python needs about ten times a document's size to parse it.
MAX_DOCUMENT_BYTES: Final = 8 << 20

_SIGNATURES: Final = {
    b"GGUF": "a GGUF model; audit reads what tools print about models",
    b"\x1f\x8b": "compressed with gzip; unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it first",
    b"BZh": "compressed with bzip2; unpack it first",
    b"\xfd7zXZ": "compressed with xz; unpack it first",
    b"PK\x03\x04": "a ZIP archive; unpack it first",
    b"bplist": "a binary plist; powermetrics -f plist writes XML",
}
_BOMS: Final = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# A list of objects or an object; the first line of a PPL log also begins with a bracket.
_JSON: Final = re.compile(r"\s*(?:\[\s*(?:\{|\]|$)|\{\s*[\"}])")
_SQL: Final = re.compile(r"\s*(?:CREATE TABLE|INSERT INTO)\b", re.IGNORECASE)
_CSV_CELL: Final = re.compile(r'"?[A-Za-z_][\w ./()%-]*"?')
_MAX_CONTROLS: Final = 8
_MAX_CONTROL_SHARE: Final = 0.02
_MAX_FOREIGN_SHARE: Final = 0.2


class Kind(StrEnum):
    """How a file is to be read."""

    JSON = "json"
    JSON_LINES = "jsonl"
    CSV = "csv"
    SQL = "sql"
    PLIST = "plist"
    TEXT = "text"


class UnreadableError(Exception):
    """A file that cannot be read, or is broken; its text says what it is instead."""


@dataclass(slots=True)
class Lines:
    """The lines of a file, without their ends; `cut` counts those whose tail was dropped.

    Bytes that are not of the encoding are shown as such, because tools of one log may differ in
    theirs. Either end of line, and a bare carriage return of a progress bar, ends a line.
    """

    file: BinaryIO
    encoding: str = "utf-8"
    max_line: int = MAX_LINE
    cut: int = field(default=0, init=False)
    _text: io.TextIOWrapper = field(init=False)

    def __post_init__(self) -> None:
        self._text = io.TextIOWrapper(self.file, self.encoding, errors="backslashreplace")

    def __iter__(self) -> Iterator[str]:
        """Yield each line that is left; holds one block and one line at a time."""
        while line := self._text.readline(self.max_line + 1):
            if len(line) > self.max_line and not line.endswith("\n"):
                self.cut += 1
                while (tail := self._text.readline(_BLOCK_CHARS)) and not tail.endswith("\n"):
                    pass
            yield line.removesuffix("\n")[: self.max_line]

    def first(self) -> str:
        """The first line; the next reader begins with it again."""
        line = next(iter(self))
        self.restart()
        return line

    def restart(self) -> None:
        """Begin with the first line again."""
        self._text.seek(0)


def sniff(head: bytes) -> tuple[Kind, str]:
    """How a file with these first `HEAD_BYTES` is to be read, and its encoding."""
    if not head:
        raise UnreadableError("the file is empty")
    for signature, what in _SIGNATURES.items():
        if head.startswith(signature):
            raise UnreadableError(f"this is {what}")
    encoding = next((name for bom, name in _BOMS.items() if head.startswith(bom)), "utf-8")
    text = head.decode(encoding, errors="replace")
    if text.lstrip("\0\ufeff \r\n").startswith("<?xml") and "<plist" in text:
        return Kind.PLIST, encoding
    control = sum(c < " " and c not in "\t\n\r\f\b\x1b" for c in text)
    # Text of another encoding has letters that are not of this one, and a log may hold both.
    foreign = text.count("\ufffd")
    if (
        "\0" in text
        or control > _MAX_CONTROLS + _MAX_CONTROL_SHARE * len(text)
        or foreign > _MAX_CONTROLS + _MAX_FOREIGN_SHARE * len(text)
    ):
        raise UnreadableError("the file is binary")
    if not text.strip():
        raise UnreadableError("the file holds nothing but white space")
    return _kind_of_text(text), encoding


def _kind_of_text(text: str) -> Kind:
    first, _, others = text.lstrip("\ufeff").lstrip().partition("\n")
    if _JSON.match(text):
        return Kind.JSON_LINES if others.strip() and _is_object(first) else Kind.JSON
    if _SQL.match(text):
        return Kind.SQL
    cells = first.rstrip("\r").split(",")
    if len(cells) > 2 and all(_CSV_CELL.fullmatch(cell) for cell in cells):
        return Kind.CSV
    return Kind.TEXT


def _is_object(line: str) -> bool:
    if not line.startswith("{") or not line.rstrip().endswith("}"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def read_document(file: BinaryIO, encoding: str) -> Any:
    """A JSON document."""
    data = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise UnreadableError(
            f"a JSON document of more than {MAX_DOCUMENT_BYTES >> 20} MiB; "
            "llama-bench -o jsonl writes one that is read line by line, and load generators a "
            "summary without each request"
        )
    try:
        return json.loads(data.decode(encoding, errors="replace"))
    except json.JSONDecodeError as error:
        cut = "cut off" if error.pos >= len(data.rstrip()) - 1 else "broken"
        raise UnreadableError(f"{cut} JSON: line {error.lineno}, {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise UnreadableError("JSON nested too deeply, or with a number too long") from error
