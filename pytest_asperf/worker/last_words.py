"""The line of a log that says why a process ended, wherever it stands above the last lines."""

from __future__ import annotations

import re
from typing import Final

#: What says it by itself: the last words of libraries, languages and drivers.
_REASON: Final = re.compile(
    r"GGML_(?:ASSERT|ABORT)|\bwhat\(\):|\b(?:CUDA|HIP|MUSA|SYCL|Vulkan|Metal|MTL\w*) error: "
    r"|\bassert\w*\b.*\bfail|\bout of memory\b|\bbad_alloc\b|\bpanicked at\b|\buncaught\b"
    r"|\bFatal Python error\b|\bSanitizer:|\bruntime error: |\bcommand buffer\b.*\bfail"
    r"|\bfailed to allocate\b",
    re.IGNORECASE,
)
#: A message with its place in a source file, as ggml_abort prints it.
_PLACE: Final = re.compile(r"\.(?:c|cc|cpp|cu|cuh|h|hpp|m|mm|metal|rs|swift):\d+: ")
_END: Final = re.compile(r"\bterminat(?:e called|ing)\b|\babort(?:ed|ing)?\b", re.IGNORECASE)
_ERROR: Final = re.compile(r"\b(?:\w*error|fatal|failed|failure|\w*exception)\b", re.IGNORECASE)
_KINDS: Final = (_REASON, _PLACE, _END, _ERROR)
#: A line of a backtrace names functions such as ggml_abort; `0 errors` names none.
_NOTHING: Final = re.compile(
    r"^\s*#\d+ |\[0x[0-9a-f]+\]|\b(?:no|0|without) (?:error|fail)|error\w*\s*[=:]\s*(?:0|none)\b",
    re.IGNORECASE,
)
#: Lines after which a mere mention of an error is no longer about the end.
_NEAR: Final = 200


class LastWords:
    """The last of a log's lines that give most clearly the reason why the process ended."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all lines."""
        self._line, self._kind, self._n_since = "", len(_KINDS), 0

    def add(self, line: str) -> None:
        """Take the next line."""
        self._n_since += 1
        if _NOTHING.search(line):
            return
        kind = next((i for i, said in enumerate(_KINDS) if said.search(line)), len(_KINDS))
        if kind < len(_KINDS) and (kind <= self._kind or not self.text):
            self._line, self._kind, self._n_since = line.strip(), kind, 0

    @property
    def text(self) -> str:
        """That line; empty if no line says it."""
        is_far = _KINDS[self._kind : self._kind + 1] == (_ERROR,) and self._n_since > _NEAR
        return "" if is_far else self._line
