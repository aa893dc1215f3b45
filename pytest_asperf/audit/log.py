"""A tool's log, read in one pass by everybody who knows some of its lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_asperf.audit.llama_bench import MarkdownReader
from pytest_asperf.audit.mlx_log import MlxReader
from pytest_asperf.audit.model_facts import ModelReader
from pytest_asperf.audit.perplexity_log import PerplexityReader
from pytest_asperf.audit.speculation_log import SpeculationReader
from pytest_asperf.audit.timings import ServerReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_asperf.audit.llama_bench import BenchRow
    from pytest_asperf.audit.mlx_log import MlxTrial
    from pytest_asperf.audit.model_facts import ModelFacts
    from pytest_asperf.audit.perplexity_log import PerplexityRun
    from pytest_asperf.audit.speculation_log import SpeculationRun
    from pytest_asperf.audit.timings import Request

# Since 2026 lines begin with minutes, seconds, milli- and microseconds and a letter, and those of a
# router's children with their port.
_PREFIX: Final = re.compile(r"(?:\[\d+\] )?\d+\.\d\d\.\d{3}\.\d{3} [A-Z] ")
_BUILD: Final = re.compile(r"build(?:_info)?: b?(\d+)(?: \(|-)(\w+)\)?")
_PROGRAM: Final = re.compile(r"(?:main|[\w./-]+): (?:build = (\d+) \((\w+)\))")
_ENDPOINT: Final = re.compile(r"(?:Failed to connect to|RPC\d+ \(?\[?)\s*([\w.:-]+:\d+)")

#: What a line says went wrong, by what it means for the measurement; the first that fits counts.
_TROUBLES: Final = {
    "decode": re.compile(
        r"failed to decode|llama_decode\(?\)? ?(?:failed|returned -)|failed to eval|"
        r"failed to process (?:batch|speculative)|failed to compute graph|graph_compute: .*failed"
    ),
    "connection": re.compile(
        r"Failed to connect to|Remote RPC server crashed|RPC .*(?:failed|crashed)|recv failed"
    ),
    "crash": re.compile(
        r"GGML_ASSERT|ggml_abort|Segmentation fault|libc\+\+abi: terminating|core dumped|"
        r"^Traceback \(most recent call last\)|Abort trap|terminate called after"
    ),
    "memory": re.compile(
        r"[Oo]ut of memory|OutOfMemory|failed to allocate|unable to allocate|cudaMalloc failed"
    ),
    "input": re.compile(r"you need at least \d+ tokens|failed to open .*file|error: failed to"),
}
_ANY_TROUBLE: Final = re.compile(
    "|".join(f"(?:{p.pattern.replace('^', '')})" for p in _TROUBLES.values())
)
_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Trouble:
    """Lines that say that something went wrong in one way.

    Attributes:
        kind: `decode`, `connection`, `crash`, `memory` or `input`.
        count: how many lines.
        examples: the first few of them.
    """

    kind: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Log:
    """What one log holds, of any of the tools.

    Attributes:
        build: number and commit of llama.cpp; empty where it is not said.
        models: what was loaded, in its order.
        troubles: what went wrong, as the lines say.
        bench: rows of llama-bench's table.
        perplexity, speculation: a run of these tools.
        requests: of llama-server; `requests_left_out` more were too many to keep.
        trials: of mlx_lm; `trials_cut_short` tells that a benchmark did not finish.
        cut_lines: lines that are longer than any tool's.
    """

    build: str
    models: tuple[ModelFacts, ...]
    troubles: tuple[Trouble, ...]
    bench: tuple[BenchRow, ...] = ()
    perplexity: PerplexityRun | None = None
    speculation: SpeculationRun | None = None
    requests: tuple[Request, ...] = ()
    requests_left_out: int = 0
    trials: tuple[MlxTrial, ...] = ()
    trials_cut_short: bool = False

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools whose lines it holds; empty for a text that is none of their logs."""
        held = {
            "llama-bench": self.bench,
            "llama-perplexity": self.perplexity,
            "llama-speculative": self.speculation,
            "llama-server": self.requests,
            "mlx_lm": self.trials,
        }
        named = tuple(tool for tool, found in held.items() if found)
        return named or (("llama.cpp",) if self.models or self.build else ())


@dataclass(slots=True)
class _TroubleReader:
    _lines: dict[str, list[str]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def feed(self, line: str) -> None:
        if not _ANY_TROUBLE.search(line):
            return
        for kind, pattern in _TROUBLES.items():
            if pattern.search(line):
                self._counts[kind] = self._counts.get(kind, 0) + 1
                examples = self._lines.setdefault(kind, [])
                if len(examples) < _EXAMPLES:
                    examples.append(line.strip()[:200])
                return

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        return tuple(
            Trouble(kind, self._counts[kind], tuple(self._lines[kind]))
            for kind in _TROUBLES
            if kind in self._counts
        )


def read_log(lines: Iterable[str], *, give_up_after: int = 2_000_000) -> Log:
    """Read a log.

    Args:
        lines: without their ends.
        give_up_after: characters after which a text that holds nothing of any tool is not read on.
    """
    models, troubles, bench = ModelReader(), _TroubleReader(), MarkdownReader()
    perplexity, speculation = PerplexityReader(), SpeculationReader()
    server, mlx = ServerReader(), MlxReader()
    readers = (models, troubles, bench, perplexity, speculation, server, mlx)
    build = ""

    def log() -> Log:
        return Log(
            build or bench.build,
            models.models,
            troubles.troubles,
            bench.rows,
            perplexity.run(),
            speculation.run(),
            server.requests,
            server.left_out,
            mlx.trials,
            mlx.planned and not mlx.finished,
        )

    unread = 0
    for raw in lines:
        prefix = _PREFIX.match(raw)
        line = (raw[prefix.end() :] if prefix else raw).rstrip()
        if not line:
            continue
        if not build and (found := _BUILD.match(line) or _PROGRAM.match(line)):
            build = f"{found[1]} ({found[2]})"
        for reader in readers:
            reader.feed(line)
        unread += len(raw)
        if unread > give_up_after:
            if not log().tools:
                break
            give_up_after = 1 << 62
    return log()
