"""A text of any tools, read in one pass by all readers; with the consoles of load generators."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.analysis import guards
from pytest_asperf.audit import load_generators as defined
from pytest_asperf.audit.lines import Layout
from pytest_asperf.audit.llama_bench import BenchReader, is_bench_entry
from pytest_asperf.audit.load_generators import (
    LoadRun,
    aiperf_run,
    flat_run,
    guidellm_figures,
    load_runs_of_document,
    request_of_record,
    run_of_records,
)
from pytest_asperf.audit.mlx_log import MlxReader
from pytest_asperf.audit.powermetrics import PowerTextReader
from pytest_asperf.audit.quoted import Quoted, TaskReader, quoted_of_document, quoted_of_table
from pytest_asperf.audit.sniff import DocumentReader, named_without_figures
from pytest_asperf.audit.tables import OwnTableReader, TableReader
from pytest_asperf.engine_process import MetalFacts
from pytest_asperf.worker.printed import NUMBER
from pytest_asperf.worker.printed.metal_log import metal_facts
from pytest_asperf.worker.printed.model_facts import ModelFacts, ModelReader
from pytest_asperf.worker.printed.perplexity_log import PerplexityReader, PerplexityRun
from pytest_asperf.worker.printed.speculation_log import SpeculationReader, SpeculationRun
from pytest_asperf.worker.printed.timings import PROGRAM, RequestReader, request_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_asperf.analysis.serving_metrics import ServedRequest
    from pytest_asperf.audit.tables import PipeTable


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
#: Such a figure has two decimals; one with fewer is cut off.
_WITH_DECIMALS: Final = ("_ms", "_throughput")
_CUT: Final = re.compile(r"[\d,]+(?:\.\d?)?")
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
            key = f"{time[1].lower()}_{quantity}_ms" if time else _KEYS.get(found[1], "")
            if key.endswith(_WITH_DECIMALS) and _CUT.fullmatch(found[2]):
                return
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
_STATISTIC: Final = {"Mdn": "median", "Mean": "mean", "Second": "mean"}
#: Columns of GuideLLM's tables.
_GUIDELLM: Final = (
    (re.compile(r"TTFT \(?ms\)? (\w+)"), "time_to_first_token_ms", 1.0),
    (re.compile(r"ITL \(?ms\)? (\w+)"), "inter_token_latency_ms", 1.0),
    (re.compile(r"TPOT \(?ms\)? (\w+)"), "time_per_output_token_ms", 1.0),
    (re.compile(r"Request Latency Sec (\w+)"), "request_latency", 1.0),
    # Seconds under both names: the first was a slip, which a later release put right.
    (re.compile(r"Req Latency \((?:ms|sec)\) (\w+)"), "request_latency", 1.0),
    (re.compile(r"Requests Per Sec (Mean)"), "requests_per_second", 1.0),
    (re.compile(r"Output Tokens Per Sec (Mean)"), "output_tokens_per_second", 1.0),
    (re.compile(r"Out Tok/sec (mean)"), "output_tokens_per_second", 1.0),
    (re.compile(r"Request Stats Per (Second)"), "requests_per_second", 1.0),
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


_BUILD: Final = re.compile(
    r"(?:build(?:_info)?: b?|(?:main|[\w./-]+): build = )(\d+)(?: \(|-)(\w+)\)?"
)
_ENDPOINT: Final = re.compile(r"(?:Failed to connect to|using device RPC\d+ \() *([\w.-]+:\d+)")
#: A server that read less of a prompt than was sent.
_TRUNCATED: Final = re.compile(r"input truncated|truncating input prompt|\btruncated = 1\b")
# Wider than any guard's rule: a line that is not kept cannot trip one.
_ERRORS: Final = (
    *("fail", "error", "returned", "crash", "assert", "abort", "terminat", "memory", "fault"),
    *("core dumped", "decode batches"),
)
_SOURCE: Final = r"\.(?:c|cc|cpp|cu|cuh|h|hpp|m|mm|metal|hip):\d+: "
#: What ends a program; ggml names the line of its source.
_CRASH: Final = re.compile(
    r"GGML_ASSERT|GGML_ABORT|ggml_abort|Segmentation fault|core dumped|Abort trap|terminating due"
    r"|terminate called|libc\+\+abi|Remote RPC server crashed"
    rf"|(?:ggml|llama)[\w./\\-]*{_SOURCE}(?!\d|warning|note)"
    rf"|{_SOURCE}(?:fatal error|\w+ error\b)"
)
_TROUBLE: Final = re.compile(
    r"Traceback \(most recent|[Oo]ut of memory|OutOfMemory|failed to (?:allocate|load model|create)"
)
#: Keys of a line in JSON that holds a line of a log: of Docker's files, journalctl and others.
_LOG_KEYS: Final = ("log", "MESSAGE", "message", "msg", "textPayload", "line")
_LOGGED: Final = re.compile(rf'\{{.*"(?:{"|".join(_LOG_KEYS)})": *"')
_MAX_ERRORS: Final = 1000
_MAX_ERROR_CHARS: Final = 200
_MAX_RECORDS: Final = 10_000
_MAX_METAL_LINES: Final = 1000


@dataclass(slots=True)
class ErrorReader:
    """Keeps possible error lines, equal ones once with their count."""

    counts: Counter[str] = field(default_factory=Counter)
    left_out: int = 0

    def feed(self, line: str) -> None:
        """Take one line."""
        lower = line[: 10 * _MAX_ERROR_CHARS].lower()
        is_cut = "truncat" in lower and _TRUNCATED.search(lower)
        if is_cut or any(word in lower for word in _ERRORS):
            shown = line.strip()[:_MAX_ERROR_CHARS]
            if shown in self.counts or len(self.counts) < _MAX_ERRORS:
                self.counts[shown] += 1
            else:
                self.left_out += 1

    @property
    def lines(self) -> Iterator[str]:
        """Each kept line, as often as it occurs."""
        return self.counts.elements()

    @property
    def crash(self) -> str:
        """The first line of a crash; empty without one."""
        return next(filter(_CRASH.search, self.counts), "")

    @property
    def trouble(self) -> str:
        """The first line of what a program may have survived; empty without one."""
        return next(filter(_TROUBLE.search, self.counts), "")

    @property
    def truncated(self) -> list[str]:
        """The lines that say that a prompt was cut."""
        return [line for line in self.lines if _TRUNCATED.search(line)]

    @property
    def are_known(self) -> bool:
        """True if a guard would find something in these lines."""
        return bool(
            self.crash
            or self.truncated
            or guards.decode_errors(self.lines)
            or guards.remote_errors(self.lines)
        )


@dataclass(slots=True)
class Log:
    """The content of one text of any tools, by the readers that gather it.

    Attributes:
        remote: endpoint that the tool was given; empty without one.
        quoted: figures without an interval.
        load: runs of load generators.
        named: what it holds that is known and no measurement, in words; empty without such.
    """

    remote: str = ""
    named: str = ""
    errors: ErrorReader = field(default_factory=ErrorReader)
    bench: BenchReader = field(default_factory=BenchReader)
    drafting: SpeculationReader = field(default_factory=SpeculationReader)
    requests: RequestReader = field(default_factory=RequestReader)
    mlx: MlxReader = field(default_factory=MlxReader)
    tasks: TaskReader = field(default_factory=TaskReader)
    power: PowerTextReader = field(default_factory=PowerTextReader)
    documents: DocumentReader = field(default_factory=DocumentReader)
    tables: TableReader = field(default_factory=TableReader)
    own: OwnTableReader = field(default_factory=OwnTableReader)
    quoted: list[Quoted] = field(default_factory=list)
    load: list[LoadRun] = field(default_factory=list)
    _serving: ServingReader = field(default_factory=ServingReader)
    _loads: ModelReader = field(default_factory=ModelReader)
    _scores: PerplexityReader = field(default_factory=PerplexityReader)
    _scored: list[ModelFacts | None] = field(default_factory=list)
    _speculated: list[int] = field(default_factory=list)
    _records: list[ServedRequest] = field(default_factory=list)
    _metal: list[str] = field(default_factory=list)
    _build: str = ""

    def feed(self, line: str) -> None:
        """Take one line."""
        if line.endswith("}") and _LOGGED.match(line) and self._feed_logged(line):
            return
        if not self._build and (match := _BUILD.match(line)):
            self._build = f"{match[1]} ({match[2]})"
        if not self.remote and ":" in line and (endpoint := _ENDPOINT.search(line)):
            self.remote = endpoint[1]
        if "_metal" in line and len(self._metal) < _MAX_METAL_LINES:
            self._metal.append(line)
        self.errors.feed(line)
        is_document, document = self.documents.feed(line)
        if document is not None and not self.add_document(document):
            is_document = False  # such as a line of a log in JSON
        if is_document or any(reader.feed(line) for reader in (self.bench, self.own, self.tables)):
            return
        for reader in (
            *(self.drafting, self.requests, self.mlx, self.tasks, self.power, self._serving),
            *(self._loads, self._scores),
        ):
            reader.feed(line)
        self._note_models()

    def add_document(self, document: object) -> bool:
        """Keep the content of a JSON value, and whether it is a tool's."""
        if isinstance(document, list):
            return [self.add_document(entry) for entry in document].count(True) > 0
        if is_bench_entry(document):
            self.bench.add(document)  # type: ignore[arg-type]  # it is a mapping
        elif load := load_runs_of_document(document):
            self.load += load
        elif request := request_of(document):
            self.requests.add(*request)
        elif record := request_of_record(document):
            self._records += [record] * (len(self._records) < _MAX_RECORDS)
        elif quoted := list(quoted_of_document(document)):
            self.quoted += quoted
        else:
            self.named = self.named or named_without_figures(document)
            return self.own.add(document)
        return True

    def _feed_logged(self, line: str) -> bool:
        """Take the line of a log that a collector wrapped in JSON, and whether it is one."""
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            return False
        key = next((key for key in _LOG_KEYS if isinstance(entry.get(key), str)), None)
        if key is None or request_of(entry):
            return False
        for text in Layout().lines(entry[key].splitlines()):
            self.feed(text)
        return True

    def end(self) -> None:
        """Take what is open when the text ends."""
        self.documents.end()
        self._serving.end()
        self.power.end()
        others = [table for table in self.tables.tables if not self.bench.add_table(table)]
        self.quoted += (figure for table in others for figure in quoted_of_table(table))
        self.load += (*self._serving.runs, *loads_of_tables(others))
        if self._records:
            self.load.append(run_of_records(self._records))

    def _note_models(self) -> None:
        """Keep which model was loaded last when a run began, or ended."""
        if self._scores.n_begun > len(self._scored):
            models = self._loads.models
            self._scored.append(models[-1] if models else None)
        if self.drafting.n_ended > len(self._speculated):
            self._speculated.append(self._loads.n_loaded)

    @property
    def build(self) -> str:
        """Number and commit of llama.cpp; empty if unknown."""
        return self._build or self.bench.build

    @property
    def metal(self) -> MetalFacts | None:
        """A Mac's GPU; None if the text does not describe it."""
        return MetalFacts.parse(metal_facts(self._metal))

    @property
    def has_gpu_layers(self) -> bool:
        """True if a model has weights on a GPU, or a benchmark ran with layers on it."""
        layers = [
            row.settings.get("n_gpu_layers", row.settings.get("ngl", "")) for row in self.bench.rows
        ]
        return any(model.device_buffer_bytes for model in self.models) or any(
            n != "0" for n in layers
        )

    @property
    def models(self) -> tuple[ModelFacts, ...]:
        """The models that were loaded."""
        return self._loads.models

    @property
    def perplexities(self) -> list[tuple[PerplexityRun, ModelFacts | None]]:
        """Each run over a text, with the model that was loaded before it."""
        runs = self._scores.runs()
        models = self._scored + [None] * (len(runs) - len(self._scored))
        return [*zip(runs, models, strict=False), *((run, None) for run in self.mlx.perplexities)]

    @property
    def speculations(self) -> list[tuple[SpeculationRun, tuple[ModelFacts, ...]]]:
        """Each generation with a draft, with the models that were loaded for it."""
        runs, models = self.drafting.runs(), self.models
        ends = [*self._speculated, len(models)][: len(runs)]
        begins = [0, *ends]
        # A log that loads once may run several times.
        return [
            (run, models[begin:end] or models[:2])
            for run, begin, end in zip(runs, begins, ends, strict=False)
        ]

    @property
    def timed(self) -> dict[str, list]:  # type: ignore[type-arg]
        """Requests by program; what a benchmark's own program prints at its end is none."""
        is_own = self.bench.rows or self._scores.n_begun or self.drafting.runs() or self.quoted
        return {
            program: requests
            for program, requests in self.requests.of.items()
            if not (program == PROGRAM and is_own)
        }

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools whose lines it holds; empty for any other text."""
        held: dict[str, object] = {
            "llama-bench": self.bench.rows,
            "llama-perplexity": self._scores.n_begun or self.tasks.results(),
            "llama-speculative": self.drafting.runs(),
            **self.timed,
            "mlx_lm": self.mlx.trials or self.mlx.perplexities,
            "powermetrics": self.power.log.n_samples,
            "a table of results": self.own.rows,
            **{figure.tool: True for figure in self.quoted},
            **{run.tool: True for run in self.load},
        }
        named = tuple(tool for tool, content in held.items() if content)
        is_llama = self.models or self.build or self.errors.are_known
        return named or (("llama.cpp",) if is_llama else ())

    @property
    def n_found(self) -> int:
        """How much was found, to compare two ways of reading one text."""
        runs = [run for run, _ in self.perplexities]
        facts: list[ModelFacts | SpeculationRun] = [*self.models, *self.drafting.runs()]
        counts = [
            *(len(self.bench.rows), len(self.quoted), len(self.own.rows), len(self.mlx.trials)),
            *(len(self.tasks.results()), self.power.log.n_samples),
            *map(len, self.requests.of.values()),
            *(1 + len(run.figures) for run in self.load),
            *(1 + len(run.running_ppl) + len(run.statistics) for run in runs),
            *(sum(map(bool, astuple(fact))) for fact in facts),
        ]
        return sum(counts)

    @property
    def begun(self) -> str:
        """What measured nothing, as its header is there alone; empty without a header."""
        bench = "llama-bench, without a test: the run measured nothing"
        return bench if self.bench.begun else self.own.begun


def read_log(
    lines: Iterable[str], layout: Layout | None = None, *, give_up_after: int = 2_000_000
) -> Log:
    """Read a text; one without any tool's output to `give_up_after` characters."""
    log, unread = Log(), 0
    for line in (layout or Layout()).lines(lines):
        log.feed(line)
        unread += len(line)
        if unread > give_up_after:
            if not (log.tools or log.documents.n_read or log.tables.tables or log.begun):
                break
            give_up_after = 1 << 62
    log.end()
    return log
