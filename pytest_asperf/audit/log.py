"""A tool's log, read in one pass by all readers."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_asperf.audit.llama_bench import MarkdownReader
from pytest_asperf.audit.mlx_log import MlxReader, MlxTrial
from pytest_asperf.worker.printed.engine_log import LOG_PREFIX
from pytest_asperf.worker.printed.model_facts import ModelFacts, ModelReader
from pytest_asperf.worker.printed.perplexity_log import PerplexityReader, PerplexityRun
from pytest_asperf.worker.printed.speculation_log import Drafter, SpeculationReader, SpeculationRun
from pytest_asperf.worker.printed.timings import Request, ServerReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_asperf.worker.printed.bench_rows import BenchRow

_BUILD: Final = re.compile(r"build(?:_info)?: b?(\d+)(?: \(|-)(\w+)\)?")
_PROGRAM: Final = re.compile(r"(?:main|[\w./-]+): (?:build = (\d+) \((\w+)\))")
_ENDPOINT: Final = re.compile(r"(?:Failed to connect to|using device RPC\d+ \() *([\w.-]+:\d+)")
# Wider than any guard's rule: what is not kept cannot trip one.
_ERROR: Final = re.compile(
    r"fail|error|returned -|crash|assert|abort|terminat|memory", re.IGNORECASE
)
_CRASH: Final = re.compile(
    r"GGML_ASSERT|ggml_abort|Segmentation fault|terminating due|core dumped|Abort trap|"
    r"terminate called|Traceback \(most recent|[Oo]ut of memory|OutOfMemory|failed to allocate"
)
_MAX_ERRORS: Final = 1000
_MAX_ERROR_CHARS: Final = 200


@dataclass(slots=True)
class ErrorReader:
    """Keeps error lines, equal ones once with their count."""

    counts: Counter[str] = field(default_factory=Counter)
    left_out: int = 0

    def feed(self, line: str) -> None:
        """Take one line."""
        if _ERROR.search(line, 0, _MAX_ERROR_CHARS * 10):
            shown = line.strip()[:_MAX_ERROR_CHARS]
            if shown in self.counts or len(self.counts) < _MAX_ERRORS:
                self.counts[shown] += 1
            else:
                self.left_out += 1


@dataclass(frozen=True, slots=True)
class Log:
    """The content of one log of any tool.

    Attributes:
        build: number and commit of llama.cpp; empty if unknown.
        errors: possible error lines with their counts; `errors_left_out` more were not kept.
        remote: endpoint that the tool was given; empty without one.
        is_synthetic: whether acceptance was drawn at random and not judged by the target.
        uses_checkpoints: whether accepted tokens may be verified, and counted, again.
        trials_cut_short: whether a benchmark of mlx_lm did not finish.
    """

    build: str
    models: tuple[ModelFacts, ...]
    errors: Mapping[str, int]
    errors_left_out: int = 0
    remote: str = ""
    measurement: tuple[BenchRow, ...] = ()
    perplexity: PerplexityRun | None = None
    speculation: SpeculationRun | None = None
    drafters: tuple[Drafter, ...] = ()
    is_synthetic: bool = False
    uses_checkpoints: bool = False
    requests: tuple[Request, ...] = ()
    requests_left_out: int = 0
    trials: tuple[MlxTrial, ...] = ()
    trials_cut_short: bool = False

    @property
    def error_lines(self) -> Iterator[str]:
        """Each kept line, as often as it occurs."""
        return Counter(self.errors).elements()

    @property
    def crash(self) -> str:
        """The first line of a crash; empty without one."""
        return next((line for line in self.errors if _CRASH.search(line)), "")

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools whose lines it holds; empty for any other text."""
        held = {
            "llama-bench": self.measurement,
            "llama-perplexity": self.perplexity,
            "llama-speculative": self.speculation,
            "llama-server": self.requests,
            "mlx_lm": self.trials,
        }
        named = tuple(tool for tool, content in held.items() if content)
        return named or (("llama.cpp",) if self.models or self.build else ())


def read_log(lines: Iterable[str], *, give_up_after: int = 2_000_000) -> Log:
    """Read a log; a text without any tool's output only to `give_up_after` characters."""
    models, errors, measurement = ModelReader(), ErrorReader(), MarkdownReader()
    perplexity, speculation = PerplexityReader(), SpeculationReader()
    server, mlx = ServerReader(), MlxReader()
    readers = (models, errors, measurement, perplexity, speculation, server, mlx)
    build = remote = ""

    def log() -> Log:
        return Log(
            build or measurement.build,
            models.models,
            errors.counts,
            errors.left_out,
            remote,
            tuple(measurement.rows),
            perplexity.run(),
            speculation.run(),
            speculation.drafters,
            speculation.is_synthetic,
            speculation.uses_checkpoints,
            server.requests,
            server.left_out,
            tuple(mlx.trials),
            mlx.is_cut_short,
        )

    unread = 0
    for raw in lines:
        for line in filter(None, map(str.rstrip, LOG_PREFIX.split(raw, maxsplit=1))):
            if not build and (match := _BUILD.match(line) or _PROGRAM.match(line)):
                build = f"{match[1]} ({match[2]})"
            if not remote and ":" in line and (endpoint := _ENDPOINT.search(line)):
                remote = endpoint[1]
            for reader in readers:
                reader.feed(line)
        unread += len(raw)
        if unread > give_up_after:
            if not log().tools:
                break
            give_up_after = 1 << 62
    return log()
