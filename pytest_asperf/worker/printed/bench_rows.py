"""One test of llama-bench, from its JSON or any table with equal columns."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .model_facts import base_name

#: Settings that are printed as requested; the engine's resolved value is not in the file.
_UNRESOLVED: Final = {
    "n_gpu_layers": ("-1", "-2"),
    "flash_attn": ("-1", "auto"),
    "n_threads": ("-1",),
    "main_gpu": ("-1",),
}
#: Columns that are no settings: the test, its figures, and values with other names.
_FIGURES: Final = re.compile(
    r"(?:avg|stddev|samples)_\w+|n_prompt|n_gen|n_depth|test|test_time|t/s|size|params|model\w*"
    r"|build\w*"
)
_LONGEST_SETTING: Final = 60
_MOST: Final = 1e18
_MAX_SAMPLES: Final = 100_000


class BrokenRowError(ValueError):
    """A row that should be a test of llama-bench is none; the text continues "the test …"."""


class NotMeasuredError(BrokenRowError):
    """A test whose time or rate is 0 or no number: it ran, and was not measured."""


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One test."""

    model: str  #: file name, or the type that a table shows
    model_type: str
    build: str
    device: str  #: CPU and GPU, or the backends that were registered
    #: n_prompt, n_gen, n_depth: tokens processed, generated, and in the cache before them
    n_prompt: int
    n_gen: int
    n_depth: int
    #: mean_rate, sd_rate: of the repetitions' rates in tok/s, as printed; a deviation may be left
    #: out
    mean_rate: float
    sd_rate: float | None
    mean_ns: float | None = None  #: of the repetitions' times; None if not printed
    samples_ns: tuple[int, ...] = ()  #: each repetition's time; only JSON has them
    model_bytes: int | None = None
    unresolved: tuple[str, ...] = ()  #: settings of which the file has only the request, with it
    #: the value of every other column, if it is one word or number
    settings: Mapping[str, str] = field(default_factory=dict)
    resolution: float = 0.0  #: of the rates, tok/s: half a unit of their last printed decimal
    title: str = ""  #: the line above its table

    @property
    def test(self) -> str:
        """The test's name, as in llama-bench's table."""
        parts = [f"pp{self.n_prompt}"] * bool(self.n_prompt) + [f"tg{self.n_gen}"] * bool(
            self.n_gen
        )
        return "+".join(parts) + (f"@d{self.n_depth}" if self.n_depth else "")

    @property
    def n_tokens(self) -> int:
        """Tokens of one repetition."""
        return self.n_prompt + self.n_gen

    @property
    def rates(self) -> tuple[float, ...]:
        """Rate of each repetition in tok/s, from its time; empty if times are not there."""
        return tuple(self.n_tokens * 1e9 / ns for ns in self.samples_ns)

    @property
    def is_generation(self) -> bool:
        """True if nothing but generation was timed."""
        return bool(self.n_gen) and not self.n_prompt


def bench_row(entry: Mapping[str, Any]) -> BenchRow:
    """A test from its columns; raises BrokenRowError if one is missing or impossible."""
    try:
        samples = entry.get("samples_ns") or ()
        row = BenchRow(
            model=base_name(str(entry.get("model_filename") or entry.get("model_type") or "model")),
            model_type=str(entry.get("model_type") or ""),
            build=f"{entry.get('build_number') or '?'} ({entry.get('build_commit') or '?'})",
            device=str(entry.get("gpu_info") or entry.get("cpu_info") or ""),
            n_prompt=int(entry["n_prompt"]),
            n_gen=int(entry["n_gen"]),
            n_depth=int(entry.get("n_depth") or 0),
            mean_rate=float(entry["avg_ts"]),
            sd_rate=float(entry["stddev_ts"]),
            mean_ns=float(entry["avg_ns"]),
            samples_ns=tuple(int(ns) for ns in samples[:_MAX_SAMPLES]),
            model_bytes=int(entry["model_size"]) if entry.get("model_size") else None,
            unresolved=unresolved(entry),
            settings=settings(entry),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BrokenRowError("is cut off or broken") from error
    if not all(0 < x < math.inf for x in (row.mean_rate, row.mean_ns or 0, *row.samples_ns)):
        rate = f"{row.test} {row.model}: {row.mean_rate:g} tok/s"
        raise NotMeasuredError(f"has a time or rate that is none: {rate}")
    if not _is_sound(row):
        raise BrokenRowError("has figures that are impossible")
    return row


def _is_sound(row: BenchRow) -> bool:
    positive = (row.mean_rate, row.mean_ns or 1.0, row.n_tokens, *row.samples_ns)
    sizes = (row.sd_rate or 0.0, row.n_depth, row.n_prompt, row.n_gen)
    return all(0 < x < _MOST for x in positive) and all(0 <= x < _MOST for x in sizes)


def unresolved(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings of which a test has only the request, with it."""
    return tuple(
        f"{key}={entry[key]}"
        for key, requests in _UNRESOLVED.items()
        if key in entry and str(entry[key]).lower() in requests
    )


def settings(entry: Mapping[str, Any]) -> dict[str, str]:
    """The columns that describe the test's run."""
    cells = (
        (key, str(value)) for key, value in entry.items() if isinstance(value, str | int | float)
    )
    return {
        key: text
        for key, text in cells
        if key and text and len(text) <= _LONGEST_SETTING and not _FIGURES.fullmatch(str(key))
    }
