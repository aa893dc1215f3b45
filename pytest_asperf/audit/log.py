"""A text of any tools, read in one pass by all readers."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import astuple, dataclass, field
from itertools import chain
from typing import Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.serving_metrics import ServedRequest
from pytest_asperf.audit.delimited import DelimitedReader
from pytest_asperf.audit.lines import Layout
from pytest_asperf.audit.llama_bench import (
    BenchReader,
    is_bench_entry,
    is_bench_header,
    lacking_column,
)
from pytest_asperf.audit.load_consoles import (
    ServingReader,
    is_aiperf_header,
    is_load_table,
    loads_of_tables,
)
from pytest_asperf.audit.load_generators import (
    LoadRun,
    load_runs_of_document,
    request_of_record,
    run_of_records,
)
from pytest_asperf.audit.mlx_log import MlxReader
from pytest_asperf.audit.ollama import CUT_REPLIES, OllamaReader
from pytest_asperf.audit.ollama import requests_of_table as ollama_requests
from pytest_asperf.audit.powermetrics import PowerLog, PowerTextReader
from pytest_asperf.audit.quoted import (
    Quoted,
    TaskReader,
    is_quoted_header,
    quoted_of_document,
    quoted_of_table,
)
from pytest_asperf.audit.sniff import DocumentReader, named_without_figures
from pytest_asperf.audit.tables import (
    UNREAD_ROWS,
    OwnTableReader,
    TableReader,
    is_own_header,
    unused_rows,
)
from pytest_asperf.audit.titles import Title, TitleReader, labels
from pytest_asperf.engine_process import MetalFacts
from pytest_asperf.worker.printed.metal_log import metal_facts
from pytest_asperf.worker.printed.model_facts import ModelFacts, ModelReader, base_name
from pytest_asperf.worker.printed.perplexity_log import PerplexityReader, PerplexityRun
from pytest_asperf.worker.printed.speculation_log import SpeculationReader, SpeculationRun
from pytest_asperf.worker.printed.timings import OLLAMA, PROGRAM, Request, RequestReader, request_of

_BUILD: Final = re.compile(
    r"(?:build(?:_info)?: b?|(?:main|[\w./-]+): build = )(\d+)(?: \(|-)(\w+)\)?"
)
_ENDPOINT: Final = re.compile(r"(?:Failed to connect to|using device RPC\d+ \() *([\w.-]+:\d+)")
#: A server that read less of a prompt than was sent.
_TRUNCATED: Final = re.compile(r"input truncated|truncating input prompt|\btruncated = 1\b")
# Wider than any guard's rule: a line that is not kept cannot trip one.
_ERRORS: Final = (
    *("fail", "error", "returned", "crash", "assert", "abort", "terminat", "memory", "fault"),
    *("core dumped", "decode batches", "traceback", "kill", "illegal", "trap"),
)
_SOURCE: Final = r"\.(?:c|cc|cpp|cu|cuh|h|hpp|m|mm|metal|hip):\d+: "
_SIGNALS: Final = (
    r"(?:[Ss]egmentation fault|[Bb]us error|[Ii]llegal (?:hardware )?instruction|[Tt]race trap"
    r"|[Ff]loating point exception|[Kk]illed|[Aa]bort(?:ed)?)\b"
)
#: The last lines of a program; ggml names the line of its source.
_CRASH: Final = re.compile(
    r"GGML_ASSERT|GGML_ABORT|ggml_abort|core dumped|Abort trap|terminating due|terminate called"
    r"|libc\+\+abi|Remote RPC server crashed|oom[-_]kill|^(?:CUDA|ROCm|HIP|MUSA) error: "
    # In the form of shells: of a job with its number, or as the whole line.
    rf"|^(?:zsh: |\S+: line \d+: +\d+ |\[\d+\] .*){_SIGNALS}"
    rf"|^{_SIGNALS}(?:: \d+)?(?: \(core dumped\))?$"
    rf"|(?:ggml|llama)[\w./\\-]*{_SOURCE}(?!\d|warning|note)"
    rf"|{_SOURCE}(?:fatal error|\w+ error\b)"
)
_TROUBLE: Final = re.compile(
    r"Traceback \(most recent|[Oo]ut of memory|OutOfMemory|failed to (?:allocate|load model|create)"
)
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
        """Parse one line."""
        lower = line[: 10 * _MAX_ERROR_CHARS].lower()
        is_cut = "truncat" in lower and _TRUNCATED.search(lower)
        if is_cut or _holds_error(lower):
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
        """The first line of an error that a program may have survived; empty without one."""
        return next(filter(_TROUBLE.search, self.counts), "")

    @property
    def truncated(self) -> list[str]:
        """The lines about a prompt that was cut."""
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


def _known_parts(request: Request) -> int:
    parts = [timing for timing in (request.prompt, request.generated) if timing]
    return sum(1 + (timing.n_tokens > 1) for timing in parts)


def _holds_error(line: str) -> bool:
    for word in _ERRORS:  # noqa: SIM110  # half the time of any(), on every line of a log
        if word in line:
            return True
    return False


def _is_header(names: AbstractSet[str]) -> bool:
    readers = is_bench_header, is_own_header, is_quoted_header, is_aiperf_header
    return any(is_header(names) for is_header in readers)


@dataclass(slots=True)
class Log:
    """The content of one text of any tools, by the readers that gather it."""

    remote: str = ""  #: endpoint that the tool was given; empty without one
    named: str = ""  #: its known content that is no measurement, in words; empty without such
    errors: ErrorReader = field(default_factory=ErrorReader)
    bench: BenchReader = field(default_factory=BenchReader)
    drafting: SpeculationReader = field(default_factory=SpeculationReader)
    requests: RequestReader = field(default_factory=RequestReader)
    mlx: MlxReader = field(default_factory=MlxReader)
    tasks: TaskReader = field(default_factory=TaskReader)
    power: PowerTextReader = field(default_factory=PowerTextReader)
    documents: DocumentReader = field(default_factory=DocumentReader)
    tables: TableReader = field(default_factory=TableReader)
    delimited: DelimitedReader = field(default_factory=lambda: DelimitedReader(_is_header))
    own: OwnTableReader = field(default_factory=OwnTableReader)
    quoted: list[Quoted] = field(default_factory=list)  #: figures without an interval
    load: list[LoadRun] = field(default_factory=list)  #: runs of load generators
    titles: TitleReader = field(default_factory=TitleReader)
    _title: Title = field(default_factory=Title)
    _n_loaded: int = 0
    _titled: dict[str, list[Title]] = field(default_factory=dict)
    powers: list[tuple[Title, PowerLog]] = field(default_factory=list)
    _serving: ServingReader = field(default_factory=ServingReader)
    _loads: ModelReader = field(default_factory=ModelReader)
    _scores: PerplexityReader = field(default_factory=PerplexityReader)
    _scored: list[ModelFacts | None] = field(default_factory=list)
    _speculated: list[int] = field(default_factory=list)
    _records: list[ServedRequest] = field(default_factory=list)
    _metal: list[str] = field(default_factory=list)
    _build: str = ""
    ollama: OllamaReader = field(init=False)

    def __post_init__(self) -> None:
        self.ollama = OllamaReader(self.requests.add)

    def feed(self, line: str) -> None:
        """Parse one line."""
        titles, title = self.titles, self._title
        if titles.heading != title.heading or titles.command != title.command:
            self._begin_title()
        if "build" in line and (match := _BUILD.match(line)):
            self._build = self._build or f"{match[1]} ({match[2]})"
            self._begin_title(build=f"build {match[1]} ({match[2]})")
        if not self.remote and ":" in line and (endpoint := _ENDPOINT.search(line)):
            self.remote = endpoint[1]
        if "_metal" in line and len(self._metal) < _MAX_METAL_LINES:
            self._metal.append(line)
        self.errors.feed(line)
        is_document, document = self.documents.feed(line)
        if document is not None and not self.add_document(document):
            is_document = False  # such as a line of a log in JSON
        is_taken = is_document or self.bench.feed(line)
        if is_taken or self.delimited.feed(line) or self.tables.feed(line):
            return
        for reader in (
            *(self.drafting, self.requests, self.mlx, self.tasks, self.power, self._serving),
            *(self._loads, self._scores, self.ollama),
        ):
            reader.feed(line)
        self._note_models()

    def add_document(self, document: object) -> bool:
        """Keep the content of a JSON value, and whether it is a tool's."""
        if isinstance(document, list):
            are_kept = [self.add_document(entry) for entry in document]
            self.documents.count_left_out(document, are_kept)
            return any(are_kept)
        if is_bench_entry(document):
            self.bench.add(document)  # type: ignore[arg-type]  # it is a mapping
        elif lacking := lacking_column(document):
            self.bench.problems.append(f"a test of llama-bench has no {lacking}")
        elif load := load_runs_of_document(document):
            self.load += load
        elif request := request_of(document):
            if isinstance(model := document.get("model"), str):  # type: ignore[attr-defined]
                self._begin_title(model=base_name(model))
            self.requests.add(*request)
        elif record := request_of_record(document):
            self._records += [record] * (len(self._records) < _MAX_RECORDS)
        elif quoted := list(quoted_of_document(document)):
            self.quoted += quoted
        else:
            self.named = self.named or named_without_figures(document)
            return self.own.add(document)
        return True

    def end(self) -> None:
        """Finish the open parts at the end of the text."""
        self.documents.end()
        self.delimited.end()
        self.mlx.end()
        self._begin_title()
        for document, title in zip(
            self._serving.documents, labels(self._titled["serving"]), strict=True
        ):
            document["title"] = title
        tables = [*self.tables.tables, *self.delimited.tables]
        titles = (*self._titled["tables"], *self._titled["delimited"])
        # A build is printed behind a table.
        for table, title in zip(tables, labels(Title(*one[:2]) for one in titles), strict=True):
            table.title = title
        own = self.bench, self.own
        others = [table for table in tables if not any(reader.add_table(table) for reader in own)]
        served = [table for table in others if self._serving.add_table(table)]
        self.load += self._serving.runs
        self.load += loads_of_tables(others)
        for table in others:
            figures, replies = [*quoted_of_table(table)], [*ollama_requests(table)]
            self.quoted += figures
            for name, request in replies:
                self._title = Title(table.title, model=name)
                self.requests.add(OLLAMA, request)
                self._begin_title()
            is_read = bool(figures or replies or table in served or is_load_table(table))
            for row in unused_rows(table, is_read=is_read, has_thousands=not figures):
                self.tables.unread.add(row)
        if self._records:
            self.load.append(run_of_records(self._records))

    def _begin_title(self, **changed: str) -> None:
        """Attach the title so far to the items below it."""
        self._serving.end()
        self.ollama.end()
        self.power.end()
        if self.power.log.n_samples:
            self.powers.append((self._title, self.power.log))
        lacks_time, unread = self.power.lacks_time, self.power.unread
        self.power = PowerTextReader(lacks_time=lacks_time, unread=unread)
        for reader, n in self._counts().items():
            held = self._titled.setdefault(reader, [])
            held += [self._title] * (n - len(held))
        heading, command = self.titles.heading, self.titles.command
        self._title = self._title._replace(heading=heading, command=command, **changed)

    def _counts(self) -> dict[str, int]:
        """How much each reader has found that a title may be above."""
        return {
            "tables": len(self.tables.tables),
            "delimited": len(self.delimited.tables),
            "serving": len(self._serving.documents),
            "mlx": len(self.mlx.trials),
            "scores": self._scores.n_begun,
            "drafting": len(self.drafting.runs()),
            **{program: len(requests) for program, requests in self.requests.of.items()},
        }

    def _note_models(self) -> None:
        """Keep which model was loaded last when a run began, or ended."""
        if self._loads.n_loaded > self._n_loaded:
            self._n_loaded = self._loads.n_loaded
            self._begin_title(model=self._loads.last_file)
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
        """Requests by program; the summary of a benchmark's own program is none."""
        is_own = self.bench.rows or self._scores.n_begun or self.drafting.runs() or self.quoted
        return {
            program: requests
            for program, requests in self.requests.of.items()
            if not (program == PROGRAM and is_own)
        }

    def titles_of(self, reader: str) -> list[Title]:
        """The title of each thing that a reader found, once the text has ended."""
        return self._titled.get(reader, [])

    @property
    def unmeasured(self) -> list[str]:
        """Figures of 0 or no number that tests have in the place of a rate or a PPL."""
        quoted = (f"{figure.name}: {figure.text}" for figure in self.quoted if figure.is_lost)
        readers = self.bench, self.mlx, self.own, self.tasks
        return [*chain.from_iterable(reader.unmeasured for reader in readers), *quoted]

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools whose lines it contains; empty for any other text."""
        held: dict[str, object] = {
            "llama-bench": self.bench.rows or self.bench.unmeasured,
            "llama-perplexity": self._scores.n_begun
            or self.tasks.results()
            or self.tasks.unmeasured,
            "llama-speculative": self.drafting.runs(),
            **self.timed,
            "mlx_lm": self.mlx.trials or self.mlx.perplexities or self.mlx.unmeasured,
            "powermetrics": self.powers,
            "a table of results": self.own.rows or self.own.unmeasured,
            **{figure.tool: True for figure in self.quoted},
            **{run.tool: True for run in self.load},
        }
        named = tuple(tool for tool, content in held.items() if content)
        is_llama = self.models or self.build or self.errors.are_known
        return named or (("llama.cpp",) if is_llama else ())

    @property
    def n_found(self) -> int:
        """The number of items found, to compare two ways of reading one text."""
        runs = [run for run, _ in self.perplexities]
        facts: list[ModelFacts | SpeculationRun] = [*self.models, *self.drafting.runs()]
        counts = [
            *(len(self.bench.rows), len(self.quoted), len(self.own.rows), len(self.mlx.trials)),
            len(self.unmeasured),
            *(len(self.tasks.results()), sum(log.n_samples for _, log in self.powers)),
            *map(_known_parts, chain.from_iterable(self.requests.of.values())),
            *(1 + len(run.figures) for run in self.load),
            *(1 + len(run.running_ppl) + len(run.statistics) for run in runs),
            *(sum(map(bool, astuple(fact))) for fact in facts),
        ]
        return sum(counts)

    @property
    def unread_rows(self) -> str:
        """The number of rows that look like results and were not read; empty without any."""
        readers = (
            *(self.tables, self.delimited, self._serving, self.requests, self.mlx, self.tasks),
            *(self.power, self.ollama, self._scores, self.documents),
        )
        found = [reader.unread for reader in readers if reader.unread.n]
        n = sum(unread.n for unread in found)
        return f"{n} {UNREAD_ROWS}: '{found[0].first}'" if n else ""

    @property
    def begun(self) -> str:
        """Tools without results, of which only the beginning is there; empty without one."""
        if self.bench.begun:
            return "llama-bench, without a test: the run measured nothing"
        if self.power.lacks_time:
            return "powermetrics' powers, without the duration of their sample"
        return CUT_REPLIES if self.ollama.cut else self.own.begun


def read_log(
    lines: Iterable[str], layout: Layout | None = None, *, give_up_after: int = 2_000_000
) -> Log:
    """Read a text; one without any tool's output to `give_up_after` characters."""
    log, unread = Log(), 0
    for line in (layout or Layout()).lines(lines, log.titles):
        log.feed(line)
        unread += len(line)
        if unread > give_up_after:
            if not (log.tools or log.documents.n_read or log.tables.tables or log.begun):
                break
            give_up_after = 1 << 62
    log.end()
    return log
