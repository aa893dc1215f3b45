"""The kind of a file, by its content, because names of result files are not reliable."""

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, BinaryIO, Final

from pytest_asperf.audit.lines import Lines
from pytest_asperf.worker.printed import Unread

HEAD_BYTES: Final = 1 << 16
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
# A list of objects or an object; the first line of a PPL log also begins with a bracket.
_JSON: Final = re.compile(r"\s*(?:\[\s*(?:\{|\[|\]|$)|\{\s*[\"}])")
_CSV_CELL: Final = re.compile(r'"?[A-Za-z_][\w ./()%-]*"?')
_MAX_CONTROLS: Final = 8
_MAX_CONTROL_SHARE: Final = 0.02
_MAX_FOREIGN_SHARE: Final = 0.2
_FOREIGN: Final = re.compile(r"\\x[89a-f][0-9a-f]|\ufffd")


class Kind(StrEnum):
    """How a file is to be read."""

    JSON = "json"
    CSV = "csv"
    PLIST = "plist"
    TEXT = "text"


class UnreadableError(Exception):
    """A file that cannot be read, or is broken; its text names its actual content."""


def sniff(head: bytes) -> tuple[Kind, list[str]]:
    """How a file with these first `HEAD_BYTES` is to be read, and its first lines."""
    if not head:
        raise UnreadableError("the file is empty")
    for signature, what in _SIGNATURES.items():
        if head.startswith(signature):
            raise UnreadableError(f"this is {what}")
    lines = list(Lines(io.BytesIO(head)))
    text = "\n".join(lines)
    if text.lstrip("\0\ufeff \r\n").startswith("<?xml") and "<plist" in text:
        return Kind.PLIST, lines
    control = sum(c < " " and c not in "\t\n\r\f\b\x1b" for c in text)
    # Text of another encoding has letters that are not of this one, and a log may have both.
    foreign = len(_FOREIGN.findall(text))
    if (
        "\0" in text
        or control > _MAX_CONTROLS + _MAX_CONTROL_SHARE * len(text)
        or foreign > _MAX_CONTROLS + _MAX_FOREIGN_SHARE * len(text)
    ):
        raise UnreadableError("the file is binary")
    if not text.strip():
        raise UnreadableError("the file has nothing but white space")
    return _kind_of_text(text), lines


def _kind_of_text(text: str) -> Kind:
    first, _, others = text.lstrip().partition("\n")
    if _JSON.match(text):
        return Kind.TEXT if others.strip() and _is_object(first) else Kind.JSON
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


def read_document(file: BinaryIO) -> Any:
    """A JSON document."""
    data = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise UnreadableError(
            f"a JSON document of more than {MAX_DOCUMENT_BYTES >> 20} MiB; "
            "llama-bench -o jsonl writes one that is read line by line, and load generators a "
            "summary without each request"
        )
    text = "\n".join(Lines(io.BytesIO(data), MAX_DOCUMENT_BYTES))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        cut = "cut off" if error.pos >= len(text.rstrip()) - 1 else "broken"
        raise UnreadableError(f"{cut} JSON: line {error.lineno}, {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise UnreadableError("JSON nested too deeply, or with a number too long") from error


#: Known objects without a measurement, by some of their keys.
_NAMED: Final = {
    frozenset({"cpu_power", "all_power"}): "macmon's JSON, powers without the interval that they "
    "are of; powermetrics has energies",
    frozenset({"max_recommended_working_set_size", "device_name"}): "MLX's device information, "
    "which has no measurement",
}


def named_without_figures(document: object) -> str:
    """A known JSON object without a figure, in words; empty for any other."""
    keys = document.keys() if isinstance(document, dict) else ()
    return next((what for named, what in _NAMED.items() if named <= {*keys}), "")


_BEGINS: Final = re.compile(r"(?:\[\s*)?\{(?:\s*\"|\s*$)")
_PART: Final = re.compile(
    r"\"|[{}\[\]]|(?:-?\d[\d.eE+-]*|true|false|null|nan|NaN|-?Infinity)\s*(?:,|[]}].*|$)"
)
_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_MARKS: Final = frozenset({"[", "]", "],", "[]"})
_STREAMED: Final = "data: "


@dataclass(slots=True)
class DocumentReader:
    """Gathers JSON objects from lines, and hands each on as soon as it is whole."""

    broken: int = 0  #: objects that were cut off or are no JSON, after a whole one
    n_read: int = 0  #: objects that were whole
    #: objects of a list that are not read, although others with most of their keys are
    unread: Unread = field(default_factory=Unread)
    _held: list[str] = field(default_factory=list)
    _size: int = 0
    _braces: int = 0
    _brackets: int = 0

    def feed(self, line: str) -> tuple[bool, Any]:
        """Parse one line: True if it is part of an object, and the value that it ends, or None."""
        line = line.removeprefix(_STREAMED)
        if not self._held:
            if not _BEGINS.match(line):
                return line in _MARKS, None
        elif _BEGINS.fullmatch(line) and self._braces <= 1 and not self._brackets:
            self.end()  # the one before it was cut off
        elif not _PART.match(line):
            return False, None
        self._held.append(line)
        self._size += len(line)
        bare = _TEXT.sub("", line)
        self._braces += bare.count("{") - bare.count("}")
        self._brackets += bare.count("[") - bare.count("]")
        if self._braces > 0 or self._brackets > 0:
            if self._size > MAX_DOCUMENT_BYTES:
                self.end()
            return True, None
        text = "\n".join(self._held).rstrip(" ,;")
        if self._brackets < 0:
            text = text.rstrip("] ")  # of the list that it is in
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            self.end()
            return True, None
        self._clear()
        self.n_read += 1
        return True, document

    def end(self) -> None:
        """Drop the open part."""
        self.broken += bool(self._held) and (self.n_read > 0 or '":' in self._held[0])
        self._clear()

    def count_left_out(self, entries: Sequence[object], are_kept: Sequence[bool]) -> None:
        """Count the objects of a list that were not read, although most of their keys were."""
        both = list(zip(entries, are_kept, strict=True))
        kept = next((one.keys() for one, is_kept in both if is_kept and isinstance(one, dict)), ())
        for entry, is_kept in both:
            if not is_kept and isinstance(entry, dict) and 2 * len({*kept} & {*entry}) > len(kept):
                self.unread.add(str(entry))

    def _clear(self) -> None:
        self._held, self._size, self._braces, self._brackets = [], 0, 0, 0
