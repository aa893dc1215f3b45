"""llama-bench's output in each of its forms: JSON, JSON lines, CSV, SQL and Markdown."""

from __future__ import annotations

import csv
import itertools
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.audit.model_facts import base_name
from pytest_asperf.audit.sniff import COUNT, NUMBER, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Columns without which a table is none of llama-bench's.
COLUMNS: Final = frozenset({"n_prompt", "n_gen", "avg_ns", "avg_ts", "stddev_ts"})
#: Settings that are printed as requested; what the engine made of such a value is not in the file.
_UNRESOLVED: Final = {
    "n_gpu_layers": ("-1", "-2"),
    "flash_attn": ("-1", "auto"),
    "n_threads": ("-1",),
    "main_gpu": ("-1",),
}
_MOST: Final = 1e18
_MAX_ROWS: Final = 20_000
_MAX_SAMPLES: Final = 100_000
_CELL: Final = re.compile(r"'((?:[^']|'')*)'|([^,\s][^,]*)")
_INSERT: Final = re.compile(
    r"INSERT INTO (?:llama_bench|test) \(([^)]*)\) VALUES \((.*)\);?\s*$", re.IGNORECASE
)
_TEST: Final = re.compile(rf"(?:pp({COUNT}))?\+?(?:tg({COUNT}))?(?: @ d({COUNT}))?")
_RATE: Final = re.compile(rf"({NUMBER}) ± +?({NUMBER})")
_SIZE: Final = re.compile(rf"({NUMBER}) ([MG])iB")
_MD_BUILD: Final = re.compile(r"build: (\w+) \((\d+)\)$")


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One test.

    Attributes:
        model: file name, or the type that a table shows.
        model_type: architecture, size and level.
        build: commit and number.
        device: CPU and GPU, or the backends that were registered.
        n_prompt, n_gen, n_depth: tokens processed, generated, and in the cache before them.
        mean_rate, sd_rate: of the repetitions' rates in tok/s, as printed.
        mean_ns: of the repetitions' times; None where not printed.
        samples_ns: each repetition's time; only JSON has them.
        model_bytes: size of all tensors; None where not printed.
        unresolved: settings of which the file has only the request, with it.
    """

    model: str
    model_type: str
    build: str
    device: str
    n_prompt: int
    n_gen: int
    n_depth: int
    mean_rate: float
    sd_rate: float
    mean_ns: float | None = None
    samples_ns: tuple[int, ...] = ()
    model_bytes: int | None = None
    unresolved: tuple[str, ...] = ()

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
        """Rate of each repetition in tok/s, from its time; empty where times are not there."""
        return tuple(self.n_tokens * 1e9 / ns for ns in self.samples_ns)

    @property
    def is_generation(self) -> bool:
        """Whether nothing but generation was timed."""
        return bool(self.n_gen) and not self.n_prompt


def rows_of_document(document: Any) -> tuple[BenchRow, ...]:
    """Return the rows of a JSON document; none where it is another tool's.

    Raises:
        UnreadableError: a row is llama-bench's and broken.
    """
    if not isinstance(document, list):
        document = [document]
    return _rows(entry for entry in document if isinstance(entry, dict))


def rows_of_json_lines(lines: Iterable[str]) -> tuple[BenchRow, ...]:
    """Return the rows of JSON lines; none where they are another tool's.

    Raises:
        UnreadableError: a line is cut off or broken, after one that is llama-bench's.
    """

    def entries() -> Iterator[dict[str, Any]]:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UnreadableError(f"line {number} is cut off or not JSON") from error
            if isinstance(entry, dict):
                yield entry

    return _rows(entries())


def rows_of_csv(lines: Iterable[str]) -> tuple[BenchRow, ...]:
    """Return the rows of CSV with a header of llama-bench's.

    Raises:
        UnreadableError: a row is cut off or broken.
    """
    try:
        return _rows(csv.DictReader(lines))
    except csv.Error as error:
        raise UnreadableError(f"broken CSV: {error}") from error


def rows_of_sql(lines: Iterable[str]) -> tuple[BenchRow, ...]:
    """Return the rows that INSERT statements hold; nothing is executed."""

    def entries() -> Iterator[dict[str, str]]:
        for line in lines:
            if found := _INSERT.match(line):
                names = [name.strip() for name in found[1].split(",")]
                values = [
                    quoted.replace("''", "'") if quoted or not bare else bare.strip()
                    for quoted, bare in _CELL.findall(found[2])
                ]
                if len(names) == len(values):
                    yield dict(zip(names, values, strict=True))

    return _rows(entries())


def _rows(entries: Iterable[Mapping[str, Any]]) -> tuple[BenchRow, ...]:
    return tuple(
        _row(entry, number)
        for number, entry in enumerate(itertools.islice(entries, _MAX_ROWS), start=1)
        if entry.keys() >= COLUMNS
    )


def _row(entry: Mapping[str, Any], number: int) -> BenchRow:
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
            unresolved=_unresolved(entry),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise UnreadableError(f"test {number} of llama-bench is cut off or broken") from error
    if not _is_sound(row):
        raise UnreadableError(f"test {number} of llama-bench has a time or rate that is none")
    return row


def _is_sound(row: BenchRow) -> bool:
    positive = (row.mean_rate, row.mean_ns or 1.0, row.n_tokens, *row.samples_ns)
    sizes = (row.sd_rate, row.n_depth, row.n_prompt, row.n_gen)
    return all(0 < x < _MOST for x in positive) and all(0 <= x < _MOST for x in sizes)


def _unresolved(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{key}={entry[key]}"
        for key, requests in _UNRESOLVED.items()
        if key in entry and str(entry[key]).lower() in requests
    )


@dataclass(slots=True)
class MarkdownReader:
    """Gathers the rows of llama-bench's default table from a log's lines."""

    _rows: list[BenchRow] = field(default_factory=list)
    _header: list[str] = field(default_factory=list)
    build: str = ""

    def feed(self, line: str) -> None:
        """Look at one line."""
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if {"model", "test", "t/s"} <= set(cells):
                self._header = cells
            elif len(cells) == len(self._header):
                self._add(dict(zip(self._header, cells, strict=True)))
        elif self._rows and (build := _MD_BUILD.match(line)):
            self.build = f"{build[2]} ({build[1]})"

    @property
    def rows(self) -> tuple[BenchRow, ...]:
        """The rows, in their order."""
        return tuple(self._rows)

    def _add(self, cells: dict[str, str]) -> None:
        test, rate = _TEST.fullmatch(cells["test"]), _RATE.fullmatch(cells["t/s"])
        if not (test and rate and float(rate[1]) and cells["test"]) or len(self._rows) >= _MAX_ROWS:
            return
        n_prompt, n_gen, n_depth = (int(n or 0) for n in test.groups())
        size = _SIZE.fullmatch(cells.get("size", ""))
        asked = {"n_gpu_layers": cells.get("ngl", ""), "flash_attn": cells.get("fa", "")}
        self._rows.append(
            BenchRow(
                model=cells["model"],
                model_type=cells["model"],
                build="",
                device=cells.get("backend", ""),
                n_prompt=n_prompt,
                n_gen=n_gen,
                n_depth=n_depth,
                mean_rate=float(rate[1]),
                sd_rate=float(rate[2]),
                model_bytes=round(float(size[1]) * 2 ** (30 if size[2] == "G" else 20))
                if size
                else None,
                unresolved=_unresolved(asked),
            )
        )
