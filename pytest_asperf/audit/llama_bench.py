"""llama-bench's output in each of its forms: JSON, JSON lines, SQL and tables."""

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pytest_asperf.audit.tables import UNMEASURED, PrintedTable, measured
from pytest_asperf.worker.printed import COUNT, NUMBER
from pytest_asperf.worker.printed.bench_rows import (
    BenchRow,
    BrokenRowError,
    NotMeasuredError,
    bench_row,
    settings,
    unresolved,
)

#: Columns without which a table is none of llama-bench's.
COLUMNS: Final = frozenset({"n_prompt", "n_gen", "avg_ns", "avg_ts", "stddev_ts"})
_MAX_BAR_ROWS: Final = 20_000
_CELL: Final = re.compile(r"'((?:[^']|'')*)'|([^,\s][^,]*)")
_INSERT: Final = re.compile(
    r"INSERT INTO (?:llama_bench|test) \(([^)]*)\) VALUES \((.*)\);?\s*$", re.IGNORECASE
)
_BROKEN_INSERTS: Final = "INSERT INTO llama_bench (", "INSERT INTO test ("
#: With a space until March 2024.
_TEST: Final = re.compile(rf"(?:pp ?({COUNT}))?\+?(?:tg ?({COUNT}))?(?: *@ *d({COUNT}))?")
_SIZE: Final = re.compile(rf"({NUMBER}) ([MG])iB")
_RATES: Final = re.compile(r"(?:t|tok|tokens)/s(?: .*)?")
#: A column of an HTTP client that prints llama-bench's table.
_OF_CLIENT: Final = re.compile(r"ttfr|ttft|est_ppt|peak")
#: Columns of compare-llama-bench.py, which has no rate of one build alone.
_COMPARED: Final = "speedup"


@dataclass(slots=True)
class BenchReader:
    """Gathers the tests of all forms."""

    rows: list[BenchRow] = field(default_factory=list)
    build: str = ""
    begun: bool = False  #: whether a header of llama-bench's was there
    problems: list[str] = field(default_factory=list)  #: tests that could not be read, with why
    #: tests whose rate is 0 or no number, with it
    unmeasured: list[str] = field(default_factory=list)

    def feed(self, line: str) -> bool:
        """Parse one line of SQL; True if it was one."""
        if insert := _INSERT.match(line):
            self.add(_sql_entry(insert))
            return True
        if line.startswith(_BROKEN_INSERTS):
            self.problems.append("a row of llama-bench's SQL is cut off")
            return True
        return False

    def add(self, entry: Mapping[str, Any], title: str = "") -> None:
        """Keep a test from its columns, or the reason why it is none."""
        self.begun = True
        try:
            row = replace(bench_row(entry), title=title)
        except BrokenRowError as error:
            is_unmeasured = isinstance(error, NotMeasuredError)
            number = len(self.rows) + len(self.problems) + len(self.unmeasured) + 1
            lost = self.unmeasured if is_unmeasured else self.problems
            lost.append(f"test {number} of llama-bench {error}")
            return
        if len(self.rows) < _MAX_BAR_ROWS:
            self.rows.append(row)

    def add_table(self, table: PrintedTable) -> bool:
        """Keep the tests of a table, and whether it is llama-bench's."""
        columns = {column.lower(): column for column in table.header}
        if not is_bench_header(columns.keys()):
            return False
        self.begun, self.build = True, self.build or table.build
        if columns.keys() >= COLUMNS:
            for printed in table.rows:
                cells = {column.lower(): cell for column, cell in printed.items()}
                self.add(cells, table.title)
            return True
        rates = [column for column in columns if _RATES.fullmatch(column)]
        for printed in table.rows:
            cells = {column.lower(): cell for column, cell in printed.items()}
            for column in rates:
                # People put the rates of two builds side by side, and leave some out.
                if len(rates) == 1 or cells[column][:1].isdecimal():
                    model = f"{cells.get('model', '')} {columns[column].partition(' ')[2]}".strip()
                    self._add_row({**cells, "model": model, "t/s": cells[column]}, table)
        return True

    def _add_row(self, cells: Mapping[str, str], table: PrintedTable) -> None:
        row = _row_of_table(cells, table)
        test = f"{cells['test']} {cells['t/s']}".strip()
        is_test = cells["test"] and _TEST.fullmatch(cells["test"])
        if row is None and is_test and UNMEASURED.fullmatch(cells["t/s"]):
            model = f"{test} tok/s, {cells['model']}"
            self.unmeasured.append(f"a test of llama-bench has a rate that is none: {model}")
        elif row is None:
            self.problems.append(f"a row of llama-bench's table is none of its tests: {test}")
        elif len(self.rows) < _MAX_BAR_ROWS:
            self.rows.append(row)


def is_bench_header(names: AbstractSet[str]) -> bool:
    """True if columns, in lower case, are those of llama-bench's CSV or of its table."""
    if names >= COLUMNS or "test" not in names:
        return names >= COLUMNS
    rates = [name for name in names if _RATES.fullmatch(name)]
    is_other = any(map(_OF_CLIENT.match, names)) or (_COMPARED in names and len(rates) > 1)
    return bool(rates) and not is_other


def is_bench_entry(document: object) -> bool:
    """True if a JSON value is a test of llama-bench."""
    return isinstance(document, dict) and document.keys() >= COLUMNS


def lacking_column(document: object) -> str:
    """The one column that a test of llama-bench lacks; empty for any other JSON value."""
    lacking = COLUMNS - document.keys() if isinstance(document, dict) else COLUMNS
    return min(lacking) if len(lacking) == 1 else ""


def _sql_entry(insert: re.Match[str]) -> dict[str, str]:
    """The columns of an INSERT statement; nothing is executed."""
    names = [name.strip() for name in insert[1].split(",")]
    values = [
        quoted.replace("''", "'") if quoted or not bare else bare.strip()
        for quoted, bare in _CELL.findall(insert[2])
    ]
    return dict(zip(names, values, strict=False))


def _row_of_table(cells: Mapping[str, str], table: PrintedTable) -> BenchRow | None:
    test, rate = _TEST.fullmatch(cells["test"]), measured(cells["t/s"])
    if not (test and rate and rate.mean and cells["test"]):
        return None
    n_prompt, n_gen, n_depth = (int(n or 0) for n in test.groups())
    if not n_prompt + n_gen:
        return None
    size = _SIZE.fullmatch(cells.get("size", ""))
    requested = {"n_gpu_layers": cells.get("ngl", ""), "flash_attn": cells.get("fa", "")}
    return BenchRow(
        model=cells["model"],
        model_type=cells["model"],
        build=cells.get("build") or table.build,
        device=cells.get("backend", ""),
        n_prompt=n_prompt,
        n_gen=n_gen,
        n_depth=n_depth,
        mean_rate=rate.mean,
        sd_rate=rate.sd,
        model_bytes=round(float(size[1]) * 2 ** (30 if size[2] == "G" else 20)) if size else None,
        unresolved=unresolved(requested),
        settings=settings(cells),
        resolution=rate.resolution,
        title=table.title,
    )


def distinct_names(rows: Iterable[BenchRow]) -> list[str]:
    """A name for each test, with its title and every setting in which tests of that name differ."""
    rows = list(rows)
    groups: dict[str, list[BenchRow]] = {}
    for row in rows:
        groups.setdefault(f"{row.test} {row.model}".rstrip(), []).append(row)
    names = []
    for row in rows:
        name = f"{row.test} {row.model}".rstrip()
        alike = groups[name]
        if len({one.build for one in alike}) > 1:
            name += f" build={row.build}"
        keys = dict.fromkeys(key for one in alike for key in one.settings)
        varied = [key for key in keys if len({one.settings.get(key) for one in alike}) > 1]
        name = " ".join([name, *(f"{key}={row.settings.get(key, '-')}" for key in varied)])
        differs = len({one.title for one in alike}) > 1
        names.append(f"{name}, {row.title}" if differs and row.title else name)
    return names
