"""The final output of load generators, brought into the form of their result files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.audit import load_definitions as defined
from pytest_asperf.audit.load_generators import LoadRun, aiperf_run, flat_run, guidellm_figures
from pytest_asperf.worker.printed.numbers import NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_asperf.audit.pipe_tables import PipeTable

_HEADER: Final = re.compile(r"={4,} *(?:\w+ )*Benchmark Result(?: \w+)* *={4,}")
_END: Final = re.compile(r"={20,}$")
_LINE: Final = re.compile(r"([A-Z][^:]{2,60}): +(\S+)$")
_TIME: Final = re.compile(
    r"(Mean|Median|P\d{1,2}(?:\.\d+)?) (TTFT|TPOT|ITL|E2EL|E2E Latency) \(ms\)$"
)
#: What vLLM and SGLang print, and its key in their JSON.
_KEYS: Final = {
    "Successful requests": "completed",
    "Failed requests": "failed",
    "Benchmark duration (s)": "duration",
    "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens",
    "Request throughput (req/s)": "request_throughput",
    "Request goodput (req/s)": "request_goodput",
    "Output token throughput (tok/s)": "output_throughput",
    "Maximum request concurrency": "max_concurrency",
    "Max request concurrency": "max_concurrency",
    "Request rate configured (RPS)": "request_rate",
    "Traffic request rate": "request_rate",
    "Backend": "backend",
    "Acceptance rate (%)": "spec_decode_acceptance_rate",
    "Acceptance length": "spec_decode_acceptance_length",
    "Accept length": "accept_length",
}
_IS_NUMBER: Final = re.compile(NUMBER)
_MAX_RUNS: Final = 1000


@dataclass(slots=True)
class ServingReader:
    """Gathers each "Serving Benchmark Result" of vLLM, SGLang and what grew out of them."""

    documents: list[dict[str, Any]] = field(default_factory=list)
    _found: dict[str, Any] = field(default_factory=dict)
    _is_open: bool = False

    def feed(self, line: str) -> None:
        """Take one line."""
        if _HEADER.match(line):
            self.end()
            self._is_open = True
        elif self._is_open and _END.match(line):
            self.end()
        elif found := _LINE.match(line):
            time = _TIME.match(found[1])
            quantity = time[2].lower().replace(" ", "_") if time else ""
            key = f"{time[1].lower()}_{quantity}_ms" if time else _KEYS.get(found[1])
            if key and (self._is_open or key in {"max_concurrency", "request_rate"}):
                self._found[key] = _value(found[2])

    def end(self) -> None:
        """End the run that is open."""
        if self._is_open and len(self._found) > 1 and len(self.documents) < _MAX_RUNS:
            self.documents.append(self._found)
        if self._is_open:
            self._found, self._is_open = {}, False

    @property
    def runs(self) -> Iterator[LoadRun]:
        """The runs that were printed."""
        for document in self.documents:
            is_sglang = "sglang" in str(document.get("backend")) or any(
                key.endswith("_e2e_latency_ms") for key in document
            )
            if is_sglang:
                yield flat_run("SGLang bench_serving", defined.SGLANG, document)
            else:
                yield flat_run("vLLM bench serve", defined.VLLM, document)


def _value(text: str) -> object:
    number = text.replace(",", "")
    if _IS_NUMBER.fullmatch(number) is None:
        return text
    return float(number) if "." in number else int(number)


#: Factors to ms, by the unit in a row's name.
_TO_MS: Final = {"ns": 1e-6, "us": 1e-3, "sec": 1e3, "s": 1e3}
_LABEL: Final = re.compile(r"(.*?) *(?:\(([\w/ ]+)\))?$")
_STATISTIC: Final = {"Mdn": "median", "median": "median", "Mean": "mean", "mean": "mean"}
#: Columns of GuideLLM's tables.
_GUIDELLM: Final = (
    (re.compile(r"TTFT \(?ms\)? (\w+)"), "time_to_first_token_ms", 1.0),
    (re.compile(r"ITL \(?ms\)? (\w+)"), "inter_token_latency_ms", 1.0),
    (re.compile(r"TPOT \(?ms\)? (\w+)"), "time_per_output_token_ms", 1.0),
    (re.compile(r"Request Latency Sec (\w+)"), "request_latency", 1.0),
    (re.compile(r"Req Latency \(ms\) (\w+)"), "request_latency", 1e-3),
    (re.compile(r"Requests Per Sec ([Mm]ean)"), "requests_per_second", 1.0),
    (re.compile(r"Output Tokens Per Sec ([Mm]ean)"), "output_tokens_per_second", 1.0),
)


def loads_of_tables(tables: Sequence[PipeTable]) -> list[LoadRun]:
    """The runs of load generators that print tables."""
    runs = [run for table in tables for run in _aiperf(table)]
    return runs + _guidellm(tables)


def _aiperf(table: PipeTable) -> Iterator[LoadRun]:
    """The run of a table of AIPerf, or of genai-perf that it grew out of."""
    if table.header[0] not in {"Metric", "Statistic"} or "avg" not in table.header:
        return
    document: dict[str, Any] = {}
    for cells in table.rows:
        label = _LABEL.match(cells[table.header[0]])
        name, unit = (label[1], label[2] or "") if label else ("", "")
        key = re.sub(r"[ -]+", "_", name.lower())
        factor = _TO_MS.get(unit, 1.0) if "latency" in key or "token" in key else 1.0
        values = {column: _value(cell) for column, cell in cells.items() if column}
        document[key] = {
            column: value * factor
            for column, value in values.items()
            if isinstance(value, int | float)
        }
    tool = "AIPerf" if table.header[0] == "Metric" else "genai-perf"
    if run := aiperf_run(document, tool):
        yield run


def _guidellm(tables: Sequence[PipeTable]) -> list[LoadRun]:
    """The runs of GuideLLM, whose tables have a row for each."""
    runs: list[tuple[str, dict[str, dict[str, Any]]]] = []
    for table in tables:
        columns = [
            (column, key, _STATISTIC.get(found[1], found[1]), factor)
            for column in table.header
            for pattern, key, factor in _GUIDELLM
            if (found := pattern.fullmatch(column))
        ]
        for number, cells in enumerate(table.rows if columns else ()):
            if number == len(runs):
                runs.append((cells[table.header[0]], {}))
            for column, key, statistic, factor in columns:
                value = _value(cells[column])
                if isinstance(value, int | float):
                    summary = runs[number][1].setdefault(key, {"successful": {}})
                    summary["successful"].setdefault(statistic, value * factor)
    return [
        LoadRun("GuideLLM", guidellm_figures(metrics), {"strategy": strategy})
        for strategy, metrics in runs
    ]
