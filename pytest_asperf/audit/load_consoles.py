"""The consoles of load generators: blocks of vLLM and SGLang, tables of AIPerf and GuideLLM."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pytest_asperf.audit.load_generators import (
    CONSOLES,
    TOOLS,
    LoadRun,
    aiperf_run,
    flat_run,
    guidellm_figures,
)
from pytest_asperf.audit.tables import PrintedTable
from pytest_asperf.worker.printed import NUMBER, Unread

_HEADER: Final = re.compile(r"={4,} *(?:\w+ )*Benchmark Result(?: \w+)* *={4,}")
_END: Final = re.compile(r"={20,}$")
_LINE: Final = re.compile(r"([A-Z][^:]{2,60}): +(\S+)$")
#: Figures of blocks side by side, and the end of these.
_PAIR: Final = re.compile(r"([A-Z][^:]{2,60}): +(\S+)(?=\s|$)")
_ENDS: Final = re.compile(r"={20,}(?:[\s|]+={20,})+")
#: A figure by its label; the others of these tools' own are no times that are read.
_LIKE_FIGURE: Final = re.compile(
    r"(?!Max|Std|Peak|Total|Input)[A-Z][^:]*(?:TTFT|TPOT|ITL|E2E|throughput)[^:]*:.*\d"
)
_TIME: Final = re.compile(
    r"(Mean|Median|P\d{1,2}(?:\.\d+)?) (TTFT|TPOT|ITL|E2EL|E2E Latency) \(ms\)$"
)
#: The text that is printed before the header.
_BEFORE: Final = {"max_concurrency", "request_rate"}
#: Such a figure has two decimals; one with fewer is cut off.
_WITH_DECIMALS: Final = ("_ms", "_throughput")
_CUT: Final = re.compile(r"[\d,]+(?:\.\d?)?")
_IS_NUMBER: Final = re.compile(NUMBER)
_MAX_RUNS: Final = 1000


@dataclass(slots=True)
class ServingReader:
    """Gathers each "Serving Benchmark Result" of vLLM, SGLang and their descendants.

    Blocks may be side by side, if a line has a figure of each.
    """

    documents: list[dict[str, Any]] = field(default_factory=list)
    #: lines with a figure that is cut off or in another form, or of some of the blocks side by side
    unread: Unread = field(default_factory=Unread)
    _columns: list[ServingReader] = field(default_factory=list)
    _found: dict[str, Any] = field(default_factory=dict)
    _is_open: bool = False

    def feed(self, line: str) -> None:
        """Parse one line."""
        if (n := len(_HEADER.findall(line))) > 1:
            self.end()
            self._columns = [ServingReader(unread=self.unread, _is_open=True) for _ in range(n)]
        elif self._columns and not _HEADER.match(line):
            self._feed_columns(line)
        elif _HEADER.match(line):
            self.end()
            self._found = {key: self._found[key] for key in _BEFORE & self._found.keys()}
            self._is_open = True
        elif _END.match(line):
            self.end()
        elif (found := _LINE.match(line)) and (key := _key(found[1])):
            is_figure = key.endswith(_WITH_DECIMALS)
            if is_figure and (_CUT.fullmatch(found[2]) or isinstance(_value(found[2]), str)):
                self.unread.add(line)
                return
            if key in self._found and not self._is_open:
                self.end()  # another one whose header was left out
            self._found[key] = _value(found[2])
        elif self._is_open and _LIKE_FIGURE.match(line):
            self.unread.add(line)

    def _feed_columns(self, line: str) -> None:
        pairs = _PAIR.findall(line)
        if len(pairs) == len(self._columns):
            for column, pair in zip(self._columns, pairs, strict=True):
                column.feed(": ".join(pair))
        elif pairs:
            self.unread.add(line)
        elif _ENDS.fullmatch(line):
            self.end()

    def add_table(self, table: PrintedTable) -> bool:
        """Keep the runs of a table with a metric in each row and a run in each column."""
        n_before = len(self.documents)
        name, *runs = table.header
        for run in runs:
            known = ((_key(cells[name].rstrip(":")), cells[run]) for cells in table.rows)
            self._found = {key: _value(text) for key, text in known if key}
            self.end()
            for document in self.documents[n_before:][-1:]:
                document.setdefault("title", run if len(runs) > 1 else table.title)
        return len(self.documents) > n_before

    def end(self) -> None:
        """End the run that is open, or that has times."""
        for column in self._columns:
            column.end()
            self.documents += column.documents
        self._columns = []
        is_run = self._is_open or any(key.endswith("_ms") for key in self._found)
        if is_run and len(self._found) > 1 and len(self.documents) < _MAX_RUNS:
            self.documents.append(self._found)
        if is_run:
            self._found, self._is_open = {}, False

    @property
    def runs(self) -> Iterator[LoadRun]:
        """The runs that were printed."""
        for document in self.documents:
            is_sglang = "sglang" in str(document.get("backend")) or any(
                key.endswith("_e2e_latency_ms") for key in document
            )
            if is_sglang:
                yield flat_run("SGLang bench_serving", TOOLS["sglang"], document)
            else:
                yield flat_run("vLLM bench serve", TOOLS["vllm"], document)


def _key(label: str) -> str:
    """The key in JSON of a figure that is printed under a label; empty for any other line."""
    time = _TIME.match(label)
    quantity = time[2].lower().replace(" ", "_") if time else ""
    return f"{time[1].lower()}_{quantity}_ms" if time else CONSOLES["vllm"].get(label, "")


def _value(text: str) -> object:
    if text.lower() == "nan":
        return math.nan
    number = text.replace(",", "")
    if _IS_NUMBER.fullmatch(number) is None:
        return text
    return float(number) if "." in number else int(number)


#: Factors to ms, by the unit in a row's name.
_TO_MS: Final = {"ns": 1e-6, "us": 1e-3, "sec": 1e3, "s": 1e3}
_LABEL: Final = re.compile(r"(.*?) *(?:\(([\w/ ]+)\))?$")
#: The column of figures that have no distribution, in a table of its own in CSV.
_ALONE: Final = "Value"
_STATISTIC: Final = {"Mdn": "median", "Mean": "mean", "Second": "mean"}
_GUIDELLM: Final = tuple((re.compile(column), key) for column, key in CONSOLES["guidellm"].items())


def loads_of_tables(tables: Sequence[PrintedTable]) -> list[LoadRun]:
    """The runs of load generators that print tables."""
    runs: list[LoadRun] = []
    for table in tables:
        for run in _aiperf(table):
            if runs and _ALONE in table.header:
                runs[-1] = replace(runs[-1], figures=(*runs[-1].figures, *run.figures))
            else:
                runs.append(run)
    return [*runs, *_guidellm(tables)]


def is_aiperf_header(names: AbstractSet[str]) -> bool:
    """True if columns, in lower case, are those of AIPerf or of genai-perf."""
    return bool(names & {"metric", "statistic"}) and bool(names & {"avg", _ALONE.lower()})


def is_load_table(table: PrintedTable) -> bool:
    """True if figures of its columns are read here."""
    names = {column.lower() for column in table.header}
    return is_aiperf_header(names) or any(map(_is_guidellm, table.header))


def _is_guidellm(column: str) -> bool:
    return any(pattern.fullmatch(column) for pattern, _ in _GUIDELLM)


def _aiperf(table: PrintedTable) -> Iterator[LoadRun]:
    """The run of a table of AIPerf, or of genai-perf that it grew out of."""
    if not is_aiperf_header({column.lower() for column in table.header}):
        return
    document: dict[str, Any] = {}
    for cells in table.rows:
        label = _LABEL.match(cells[table.header[0]])
        name, unit = (label[1], label[2] or "") if label else ("", "")
        key = re.sub(r"[ -]+", "_", name.lower())
        factor = _TO_MS.get(unit, 1.0) if "latency" in key or "token" in key else 1.0
        values = {column: _value(cell) for column, cell in cells.items() if column}
        document[key] = {
            "avg" if column == _ALONE else column: value * factor
            for column, value in values.items()
            if isinstance(value, int | float)
        }
    tool = "AIPerf" if table.header[0] == "Metric" else "genai-perf"
    if run := aiperf_run(document, tool):
        yield replace(run, title=table.title)


def _guidellm(tables: Sequence[PrintedTable]) -> Iterator[LoadRun]:
    """The runs of GuideLLM's consoles, which have a row for each run in several tables."""
    console: list[PrintedTable] = []
    for table in tables:
        if any(map(_is_guidellm, table.header)):
            if table.header in {other.header for other in console}:
                yield from _guidellm_console(console)
                console = []
            console.append(table)
    yield from _guidellm_console(console)


def _guidellm_console(tables: Sequence[PrintedTable]) -> Iterator[LoadRun]:
    runs: list[tuple[str, dict[str, dict[str, Any]]]] = []
    for table in tables:
        columns = [
            (column, key, _STATISTIC.get(found[1], found[1]))
            for column in table.header
            for pattern, key in _GUIDELLM
            if (found := pattern.fullmatch(column))
        ]
        for number, cells in enumerate(table.rows):
            if number == len(runs):
                runs.append((cells[table.header[0]], {}))
            for column, key, statistic in columns:
                value = _value(cells[column])
                if isinstance(value, int | float):
                    summary = runs[number][1].setdefault(key, {"successful": {}})
                    summary["successful"].setdefault(statistic, value)
    for strategy, metrics in runs:
        work, title = {"strategy": strategy}, tables[0].title
        yield LoadRun("GuideLLM", guidellm_figures(metrics), work, title=title)
