"""llama-bench's output in each of its forms: JSON, JSON lines, CSV, SQL and Markdown."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.worker.printed import COUNT, NUMBER, PLUS_MINUS
from pytest_asperf.worker.printed.bench_rows import (
    BenchRow,
    BrokenRowError,
    bench_row,
    settings,
    unresolved,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_asperf.audit.tables import PipeTable

#: Columns without which a table is none of llama-bench's.
COLUMNS: Final = frozenset({"n_prompt", "n_gen", "avg_ns", "avg_ts", "stddev_ts"})
_MAX_BAR_ROWS: Final = 20_000
_CELL: Final = re.compile(r"'((?:[^']|'')*)'|([^,\s][^,]*)")
_INSERT: Final = re.compile(
    r"INSERT INTO (?:llama_bench|test) \(([^)]*)\) VALUES \((.*)\);?\s*$", re.IGNORECASE
)
#: With a space until March 2024.
_TEST: Final = re.compile(rf"(?:pp ?({COUNT}))?\+?(?:tg ?({COUNT}))?(?: *@ *d({COUNT}))?")
_RATE: Final = re.compile(rf"({NUMBER}){PLUS_MINUS}({NUMBER})")
_SIZE: Final = re.compile(rf"({NUMBER}) ([MG])iB")
_HEADER: Final = frozenset({"model", "test"})
_RATES: Final = re.compile(r"t/s(?: .*)?")
#: A column of an HTTP client that prints llama-bench's table, or of compare-llama-bench.py.
_OF_OTHERS: Final = re.compile(r"ttfr|ttft|est_ppt|peak|speedup")


@dataclass(slots=True)
class BenchReader:
    """Gathers the tests of all forms.

    Attributes:
        begun: whether a header of llama-bench's was there.
        problems: tests that could not be read, with why.
    """

    rows: list[BenchRow] = field(default_factory=list)
    build: str = ""
    begun: bool = False
    problems: list[str] = field(default_factory=list)
    _columns: list[str] = field(default_factory=list)

    def feed(self, line: str) -> bool:
        """Take one line of CSV or SQL, and whether it was one."""
        if self._columns and line[:1] in "\"'" and (cells := _csv_cells(line)):
            self.add(dict(zip(self._columns, cells, strict=False)))
            return True
        if "avg_ts" in line and {*(cells := _csv_cells(line))} >= COLUMNS:
            self._columns, self.begun = cells, True
            return True
        if insert := _INSERT.match(line):
            self.add(_sql_entry(insert))
            return True
        return False

    def add(self, entry: Mapping[str, Any]) -> None:
        """Keep a test from its cells, or why it is none."""
        self.begun = True
        try:
            row = bench_row(entry)
        except BrokenRowError as error:
            number = len(self.rows) + len(self.problems) + 1
            self.problems.append(f"test {number} of llama-bench {error}")
            return
        if len(self.rows) < _MAX_BAR_ROWS:
            self.rows.append(row)

    def add_table(self, table: PipeTable) -> bool:
        """Keep the tests of a table, and whether it is llama-bench's."""
        columns = {column.lower(): column for column in table.header}
        rates = [column for column in columns if _RATES.fullmatch(column)]
        if not (rates and columns.keys() >= _HEADER) or any(map(_OF_OTHERS.match, columns)):
            return False
        self.begun, self.build = True, self.build or table.build
        for printed in table.rows:
            cells = {column.lower(): cell for column, cell in printed.items()}
            for column in rates:
                # People put the rates of two builds side by side, and leave some out.
                if len(rates) == 1 or cells[column][:1].isdecimal():
                    model = f"{cells['model']} {columns[column][len('t/s') :].strip()}".strip()
                    self._add_row({**cells, "model": model, "t/s": cells[column]}, table.build)
        return True

    def _add_row(self, cells: Mapping[str, str], build: str) -> None:
        row = _row_of_table(cells, build)
        if row is None:
            test = f"{cells['test']} {cells['t/s']}".strip()
            self.problems.append(f"a row of llama-bench's table is none of its tests: {test}")
        elif len(self.rows) < _MAX_BAR_ROWS:
            self.rows.append(row)


def is_bench_entry(document: object) -> bool:
    """True if a JSON value is a test of llama-bench."""
    return isinstance(document, dict) and document.keys() >= COLUMNS


def _csv_cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _sql_entry(insert: re.Match[str]) -> dict[str, str]:
    """The cells of an INSERT statement; nothing is executed."""
    names = [name.strip() for name in insert[1].split(",")]
    values = [
        quoted.replace("''", "'") if quoted or not bare else bare.strip()
        for quoted, bare in _CELL.findall(insert[2])
    ]
    return dict(zip(names, values, strict=False))


def _row_of_table(cells: Mapping[str, str], build: str) -> BenchRow | None:
    test, rate = _TEST.fullmatch(cells["test"]), _RATE.fullmatch(cells["t/s"])
    if not (test and rate and float(rate[1]) and cells["test"]):
        return None
    n_prompt, n_gen, n_depth = (int(n or 0) for n in test.groups())
    if not n_prompt + n_gen:
        return None
    size = _SIZE.fullmatch(cells.get("size", ""))
    requested = {"n_gpu_layers": cells.get("ngl", ""), "flash_attn": cells.get("fa", "")}
    return BenchRow(
        model=cells["model"],
        model_type=cells["model"],
        build=build,
        device=cells.get("backend", ""),
        n_prompt=n_prompt,
        n_gen=n_gen,
        n_depth=n_depth,
        mean_rate=float(rate[1]),
        sd_rate=float(rate[2]),
        model_bytes=round(float(size[1]) * 2 ** (30 if size[2] == "G" else 20)) if size else None,
        unresolved=unresolved(requested),
        settings=settings(cells),
        resolution=0.5 * 10.0 ** -len(rate[1].partition(".")[2]),
    )


def distinct_names(rows: Iterable[BenchRow]) -> list[str]:
    """A name for each test, with every setting in which tests of that name differ."""
    rows = list(rows)
    groups: dict[str, list[BenchRow]] = {}
    for row in rows:
        groups.setdefault(f"{row.test} {row.model}", []).append(row)
    names, seen = [], dict[str, int]()
    for row in rows:
        name = f"{row.test} {row.model}"
        alike = groups[name]
        if len({one.build for one in alike}) > 1:
            name += f" build={row.build}"
        keys = dict.fromkeys(key for one in alike for key in one.settings)
        varied = [key for key in keys if len({one.settings.get(key) for one in alike}) > 1]
        name = " ".join([name, *(f"{key}={row.settings.get(key, '-')}" for key in varied)])
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} (again, {seen[name]})")
    return names
