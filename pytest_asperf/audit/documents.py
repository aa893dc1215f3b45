"""JSON objects among other lines: on one line, over several, in a list, with stderr between."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_asperf.audit.sniff import MAX_DOCUMENT_BYTES

_BEGINS: Final = re.compile(r"\{(?:\s*\"|\s*$)")
_PART: Final = re.compile(r"\"|[{}\[\]]|-?\d|true\b|false\b|null\b|nan\b|NaN\b|-?Infinity\b")
_MARKS: Final = frozenset({"[", "]", "],", "[]"})
_STREAMED: Final = "data: "


@dataclass(slots=True)
class DocumentReader:
    """Gathers JSON objects from lines, and hands each on as soon as it is whole.

    Attributes:
        broken: objects that were cut off or are no JSON, after a whole one.
        n_read: objects that were whole.
    """

    broken: int = 0
    n_read: int = 0
    _held: list[str] = field(default_factory=list)
    _size: int = 0
    _depth: int = 0

    def feed(self, line: str) -> tuple[bool, Any]:
        """Take one line: whether it is part of an object, and the object that it ends, or None."""
        line = line.removeprefix(_STREAMED)
        if not self._held:
            if not _BEGINS.match(line):
                return line in _MARKS, None
        elif _BEGINS.fullmatch(line) and self._depth <= 1:
            self.end()  # the one before it was cut off
        elif not _PART.match(line):
            return False, None
        self._held.append(line)
        self._size += len(line)
        self._depth += line.count("{") - line.count("}")
        if self._depth > 0 and not self._is_whole(line):
            if self._size > MAX_DOCUMENT_BYTES:
                self.end()
            return True, None
        text = "\n".join(self._held).rstrip().rstrip(",")
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            self.end()
            return True, None
        self._clear()
        self.n_read += 1
        return True, document

    def end(self) -> None:
        """Give up what is open."""
        self.broken += bool(self._held) and (self.n_read > 0 or '":' in self._held[0])
        self._clear()

    def _is_whole(self, line: str) -> bool:
        """True if one line holds an object in spite of braces in its texts."""
        return len(self._held) == 1 and line.rstrip(",").endswith("}")

    def _clear(self) -> None:
        self._held, self._size, self._depth = [], 0, 0
