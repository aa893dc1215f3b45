"""What a foreign program printed of its own times, and the text that it generated."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .engine import Facts

_NS: Final = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_BYTES: Final = {"gb": 1e9, "gib": 2.0**30, "mb": 1e6, "mib": 2.0**20}
#: Characters of a line that patterns are searched in.
_SEARCHED: Final = 4000
#: Larger than any of these quantities in its smallest unit.
_LARGEST: Final = 1e18


@dataclass(frozen=True, slots=True)
class Printed:
    """What a program printed of itself; None or 0 where it printed nothing.

    Attributes:
        n_steps: steps that `generated_ns` is the time of.
        total_ns: from the loaded model to the last token, or what the parts come to.
        has_total: whether the program counts what is neither prompt nor generation.
    """

    n_prompt: int = 0
    prompt_ns: int | None = None
    n_steps: int = 0
    generated_ns: int = 0
    total_ns: int = 0
    has_total: bool = False
    memory_bytes: int = 0

    @property
    def step_ns(self) -> float:
        """The time of one step."""
        return self.generated_ns / self.n_steps if self.n_steps else 0.0


def read_printed(reader: Facts | None, lines: Sequence[str]) -> Printed | str:
    """What a program's lines say, by all patterns or keys of its reader; else what it lacks."""
    if reader is None:
        return Printed()
    found = dict(_from_json(reader["keys"], lines) if reader["keys"] else ())
    for pattern in reader["patterns"]:
        searched = (re.search(pattern, line[:_SEARCHED]) for line in lines)
        if not (matches := [match for match in searched if match]):
            return f"nothing that matches {pattern}"
        found |= {key: text for key, text in matches[-1].groupdict().items() if text}
    numbers = {key: number for key, text in found.items() if (number := _number(text)) is not None}
    if lacking := [key for key, _ in reader["keys"] if key not in numbers]:
        return f"no {lacking[0]}"
    return _printed(numbers, counts_first=reader["counts_first"])


def generated_text(reader: Facts | None, output: str, log: str) -> str:
    """The text that a program generated: what its reader marks, else all of its output."""
    if reader is None or not reader["text"]:
        return output.strip()
    pattern = re.compile(reader["text"], re.DOTALL)
    match = pattern.search(output) or pattern.search(log)
    return str(match["text"]).strip() if match else ""


def _printed(numbers: dict[str, float], *, counts_first: bool) -> Printed:
    n_prompt = int(numbers.get("prompt_tokens", 0))
    n_steps = max(0, int(numbers.get("generated_tokens", 0)) - counts_first)
    prompt_ns = _time(numbers, "prompt", n_prompt)
    # A rate is of the tokens as they were counted, and its time is theirs.
    generated_ns = _time(numbers, "generated", n_steps + counts_first) or 0
    total_ns, handover_ns = _time(numbers, "total"), _time(numbers, "handover")
    parts_ns = (prompt_ns or 0) + generated_ns + (handover_ns or 0)
    memory = [
        numbers[f"memory_{u}"] * size for u, size in _BYTES.items() if f"memory_{u}" in numbers
    ]
    return Printed(
        n_prompt,
        prompt_ns,
        n_steps,
        generated_ns if n_steps else 0,
        parts_ns if total_ns is None else total_ns,
        has_total=total_ns is not None or handover_ns is not None,
        memory_bytes=round(max(memory, default=0)),
    )


def _time(numbers: dict[str, float], of: str, n_tokens: int = 0) -> int | None:
    """A time as it was printed, or that of tokens at a rate."""
    for unit, factor in _NS.items():
        if f"{of}_{unit}" in numbers:
            return round(numbers[f"{of}_{unit}"] * factor)
    rate = numbers.get(f"{of}_tps", 0.0)
    return round(1e9 * n_tokens / rate) if rate else None


def _from_json(keys: Iterable[Sequence[str]], lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    for line in lines:
        try:
            entry = json.loads(line) if line.lstrip().startswith("{") else None
        except (ValueError, RecursionError):
            continue
        for field, path in keys:
            value: Any = entry
            for part in path.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                yield field, value


def _number(value: object) -> float | None:
    """A number from 0, of a text or of JSON; None of anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and 0 <= number < _LARGEST else None
