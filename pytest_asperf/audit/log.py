"""A tool's log, read in one pass by all readers."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_asperf.audit.llama_bench import MarkdownReader
from pytest_asperf.audit.mlx_log import MlxReader
from pytest_asperf.worker.printed.engine_log import LOG_PREFIX
from pytest_asperf.worker.printed.model_facts import ModelFacts, ModelReader
from pytest_asperf.worker.printed.perplexity_log import PerplexityReader, PerplexityRun
from pytest_asperf.worker.printed.speculation_log import SpeculationReader, SpeculationRun
from pytest_asperf.worker.printed.timings import ServerReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    """Keeps possible error lines, equal ones once with their count."""

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

    @property
    def lines(self) -> Iterator[str]:
        """Each kept line, as often as it occurs."""
        return self.counts.elements()

    @property
    def crash(self) -> str:
        """The first line of a crash; empty without one."""
        return next((line for line in self.counts if _CRASH.search(line)), "")


@dataclass(slots=True)
class Log:
    """The content of one log of any tool, by the reader that gathers it.

    Attributes:
        remote: endpoint that the tool was given; empty without one.
    """

    remote: str = ""
    errors: ErrorReader = field(default_factory=ErrorReader)
    bench: MarkdownReader = field(default_factory=MarkdownReader)
    drafting: SpeculationReader = field(default_factory=SpeculationReader)
    server: ServerReader = field(default_factory=ServerReader)
    mlx: MlxReader = field(default_factory=MlxReader)
    _loads: ModelReader = field(default_factory=ModelReader)
    _scores: PerplexityReader = field(default_factory=PerplexityReader)
    _build: str = ""

    def feed(self, line: str) -> None:
        """Take one line."""
        if not self._build and (match := _BUILD.match(line) or _PROGRAM.match(line)):
            self._build = f"{match[1]} ({match[2]})"
        if not self.remote and ":" in line and (endpoint := _ENDPOINT.search(line)):
            self.remote = endpoint[1]
        self.errors.feed(line)
        self.bench.feed(line)
        self.drafting.feed(line)
        self.server.feed(line)
        self.mlx.feed(line)
        self._loads.feed(line)
        self._scores.feed(line)

    @property
    def build(self) -> str:
        """Number and commit of llama.cpp; empty if unknown."""
        return self._build or self.bench.build

    @property
    def models(self) -> tuple[ModelFacts, ...]:
        """The models that were loaded."""
        return self._loads.models

    @property
    def perplexity(self) -> PerplexityRun | None:
        """The PPL of a text."""
        return self._scores.run()

    @property
    def speculation(self) -> SpeculationRun | None:
        """A generation with a draft."""
        return self.drafting.run()

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools whose lines it holds; empty for any other text."""
        held = {
            "llama-bench": self.bench.rows,
            "llama-perplexity": self.perplexity,
            "llama-speculative": self.speculation,
            "llama-server": self.server.requests,
            "mlx_lm": self.mlx.trials,
        }
        named = tuple(tool for tool, content in held.items() if content)
        return named or (("llama.cpp",) if self.models or self.build else ())


def read_log(lines: Iterable[str], *, give_up_after: int = 2_000_000) -> Log:
    """Read a log; a text without any tool's output only to `give_up_after` characters."""
    log, unread = Log(), 0
    for raw in lines:
        for line in filter(None, map(str.rstrip, LOG_PREFIX.split(raw, maxsplit=1))):
            log.feed(line)
        unread += len(raw)
        if unread > give_up_after:
            if not log.tools:
                break
            give_up_after = 1 << 62
    return log
