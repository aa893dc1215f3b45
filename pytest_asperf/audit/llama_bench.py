"""llama-bench's output in each of its forms: JSON, JSON lines, CSV, SQL and Markdown."""

from __future__ import annotations

import csv
import itertools
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.audit.sniff import UnreadableError
from pytest_asperf.worker.printed.bench_rows import BenchRow, BrokenRowError, bench_row, unresolved
from pytest_asperf.worker.printed.numbers import COUNT, NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Columns without which a table is none of llama-bench's.
COLUMNS: Final = frozenset({"n_prompt", "n_gen", "avg_ns", "avg_ts", "stddev_ts"})
_MAX_ROWS: Final = 20_000
_CELL: Final = re.compile(r"'((?:[^']|'')*)'|([^,\s][^,]*)")
_INSERT: Final = re.compile(
    r"INSERT INTO (?:llama_bench|test) \(([^)]*)\) VALUES \((.*)\);?\s*$", re.IGNORECASE
)
_TEST: Final = re.compile(rf"(?:pp({COUNT}))?\+?(?:tg({COUNT}))?(?: @ d({COUNT}))?")
_RATE: Final = re.compile(rf"({NUMBER}) ± +?({NUMBER})")
_SIZE: Final = re.compile(rf"({NUMBER}) ([MG])iB")
_MD_BUILD: Final = re.compile(r"build: (\w+) \((\d+)\)$")


def rows_of_document(document: Any) -> tuple[BenchRow, ...]:
    """The rows of a JSON document; none where it is another tool's."""
    if not isinstance(document, list):
        document = [document]
    return _rows(entry for entry in document if isinstance(entry, dict))


def rows_of_json_lines(lines: Iterable[str]) -> tuple[BenchRow, ...]:
    """The rows of JSON lines; none where they are another tool's."""

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
    """The rows of CSV with a header of llama-bench's."""
    return _rows(csv.DictReader(lines))


def rows_of_sql(lines: Iterable[str]) -> tuple[BenchRow, ...]:
    """The rows that INSERT statements hold; nothing is executed."""

    def entries() -> Iterator[dict[str, str]]:
        for line in lines:
            if match := _INSERT.match(line):
                names = [name.strip() for name in match[1].split(",")]
                values = [
                    quoted.replace("''", "'") if quoted or not bare else bare.strip()
                    for quoted, bare in _CELL.findall(match[2])
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
        return bench_row(entry)
    except BrokenRowError as error:
        raise UnreadableError(f"test {number} of llama-bench {error}") from error


@dataclass(slots=True)
class MarkdownReader:
    """Gathers the rows of llama-bench's default table from a log's lines."""

    rows: list[BenchRow] = field(default_factory=list)
    _header: list[str] = field(default_factory=list)
    build: str = ""

    def feed(self, line: str) -> None:
        """Take one line."""
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if {"model", "test", "t/s"} <= set(cells):
                self._header = cells
            elif len(cells) == len(self._header):
                self._add(dict(zip(self._header, cells, strict=True)))
        elif self.rows and (build := _MD_BUILD.match(line)):
            self.build = f"{build[2]} ({build[1]})"

    def _add(self, cells: dict[str, str]) -> None:
        test, rate = _TEST.fullmatch(cells["test"]), _RATE.fullmatch(cells["t/s"])
        if not (test and rate and float(rate[1]) and cells["test"]) or len(self.rows) >= _MAX_ROWS:
            return
        n_prompt, n_gen, n_depth = (int(n or 0) for n in test.groups())
        size = _SIZE.fullmatch(cells.get("size", ""))
        requested = {"n_gpu_layers": cells.get("ngl", ""), "flash_attn": cells.get("fa", "")}
        self.rows.append(
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
                unresolved=unresolved(requested),
            )
        )
