"""The typed operations of an engine and its loaded models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pytest_asperf.engine_process.cores import core_times_ns, usable_cores
from pytest_asperf.engine_process.facts import (
    ContextFacts,
    EngineFacts,
    LoadedFacts,
    RemoteFacts,
    optional,
    parsed,
    present,
    required,
)
from pytest_asperf.engine_process.process import EngineBuild, EngineProcess
from pytest_asperf.worker.engine import GROUPS, LogitRow

if TYPE_CHECKING:
    from pytest_asperf.analysis.metrics import ChunkScore
    from pytest_asperf.analysis.serving_metrics import ServedRequest
    from pytest_asperf.config.engine_settings import EngineSettings
    from pytest_asperf.config.workload import Workload

_LONGEST_RUN_NS: Final = 2**63
#: The logarithm of a probability may exceed 0 by so much.
_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True)
class RawRun:
    """One timed run as the engine counted it: tokens and nanoseconds, nothing derived."""

    n_tokens: int
    elapsed_ns: int
    step_ns: tuple[int, ...]  #: wall time of each decode call
    context: ContextFacts
    peak_rss_bytes: int  #: the worker's peak resident memory so far
    logits: LogitRow | None = None  #: those after the last token, None if the engine shows none
    requests: tuple[ServedRequest, ...] = ()  #: those of a server's users, which were sent at once
    call_ns: int = 0  #: wall time of the whole call by this process's clock, until it was answered
    waited_ns: int = 0  #: of that, what the engine waited for a core, as far as it is known

    @property
    def timed_ns(self) -> int:
        """The timed part of the call; by the steps if that is less, as percentiles are of them."""
        return min(self.elapsed_ns, sum(self.step_ns) or self.elapsed_ns)


#: Log-probabilities of groups of tokens, in nats, as `worker.logits.grouped` makes them.
GroupedRow: TypeAlias = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RunRemains:
    """The memory of an engine as its last timed run left it."""

    n_held: int | None  #: tokens in the memory by its own report; None without one
    #: Logits by position: the last one's, and those of tokens that were decoded again with the
    #: run's state before them. Empty if the engine does not show them.
    rows: Mapping[int, GroupedRow]
    #: the likeliest token after each position, if the run chose one
    chosen: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolSpeculation:
    """The counts of an engine's own program for speculation.

    `n_accepted` is None if checkpoints make tokens count twice.
    """

    n_emitted: int
    n_drafted: int
    n_accepted: int | None
    elapsed_ns: int
    text: str


class Worker(EngineProcess):
    """An engine's operations, each a call with typed arguments and answers.

    Every operation raises WorkerError if the process dies, hangs or answers nonsense, and
    EngineRefusedError if the engine cannot do it.
    """

    def __init__(self, build: EngineBuild, *, call_timeout_s: float = 600.0) -> None:
        self._described: EngineFacts | None = None
        self._contexts: dict[str, tuple[object, ContextFacts]] = {}
        super().__init__(build, call_timeout_s=call_timeout_s)

    def context(self, model: str, answer: object) -> ContextFacts:
        """The resolved facts of a model's context; one object while the answer does not change."""
        known = self._contexts.get(model)
        if known is None or known[0] != answer:
            known = self._contexts[model] = answer, ContextFacts.parse(answer)
        return known[1]

    def describe(self) -> EngineFacts:
        """The engine's run record: library, version, build, devices.

        Requested once: a process keeps the libraries that it began with.
        """
        if self._described is None:
            self._described = self.asked("describe", EngineFacts.parse)
        return self._described

    def share(self, folder: Path) -> None:
        """Share filled caches with later processes of the same build, where the engine can.

        A text before a timed run is then computed by the first of them alone.
        """
        self.call("share", folder=str(folder))

    def load(self, name: str, path: Path, settings: EngineSettings) -> LoadedFacts:
        """Load a model file under a name; its resolved settings."""
        chosen = settings.as_dict()
        return self.asked("load", LoadedFacts.parse, model=name, path=str(path), settings=chosen)

    def unload(self, name: str) -> RemoteFacts | None:
        """Free a model; the link to the machine that computed it then, if that was another."""
        return self.asked("unload", lambda at: optional(at, "remote", RemoteFacts), model=name)

    def clear(self) -> None:
        """Free everything loaded, and allow it to run on all cores again."""
        self.call("clear")
        if self._cores:
            self.confine(usable_cores())
            self._cores = ()

    def tokenize(self, name: str, text: str) -> list[int]:
        """A text's token ids, with BOS where the tokenizer adds one."""
        return self.asked("tokenize", lambda of: _tokens(of["tokens"]), model=name, text=text)

    def prompt(
        self, name: str, tokens: Sequence[int], depth: int, *, n_ctx: int | None = None
    ) -> RawRun:
        """Time `tokens[depth:]` decoded in batches, after `tokens[:depth]`; `n_ctx` as below."""
        return self._timed("prompt", name, tokens, depth, n_ctx=n_ctx or len(tokens))

    def generate(
        self,
        name: str,
        tokens: Sequence[int],
        depth: int,
        *,
        n_ctx: int | None = None,
        sampled: str = "",
    ) -> RawRun:
        """Time `tokens[depth:]` decoded one at a time, after `tokens[:depth]`.

        The last call's tokens are not decoded again. `n_ctx` is the context's size, for more tokens
        than these. `sampled` is a way in which a token is sampled after each.
        """
        more = {"sampled": sampled} if sampled else {}
        return self._timed("generate", name, tokens, depth, n_ctx=n_ctx or len(tokens), **more)

    def first_token(self, name: str, tokens: Sequence[int], *, n_ctx: int | None = None) -> RawRun:
        """Time `tokens` decoded in batches until the next token is chosen; `n_ctx` as above."""
        return self._timed("first_token", name, tokens, 0, n_ctx=n_ctx or len(tokens))

    def serve(self, name: str, text: str, workload: Workload) -> RawRun:
        """Time one request of each user of a server, with prompts that are made of a text."""
        return self.asked(
            "serve",
            lambda answer: self._ran(name, answer, workload.n_counted),
            model=name,
            kind=workload.kind,
            n_tokens=workload.n_tokens,
            depth=workload.depth,
            users=workload.users,
            text=text,
            warm=workload.warm,
            sampled=workload.sampled,
        )

    def _timed(self, op: str, name: str, tokens: Sequence[int], depth: int, **more: Any) -> RawRun:
        had_ns, waited_ns = core_times_ns(self.pid)

        def parse(answer: Mapping[str, Any]) -> RawRun:
            has_had_ns, has_waited_ns = core_times_ns(self.pid)
            run, call_ns = self._ran(name, answer, len(tokens) - depth), self._offset.call_ns
            # Long waits are counted inexactly: 258 ms in 258 ms with 5 ms of work.
            most_ns = max(0, call_ns - (has_had_ns - had_ns))
            return replace(run, call_ns=call_ns, waited_ns=min(most_ns, has_waited_ns - waited_ns))

        return self.asked(op, parse, model=name, tokens=list(tokens), depth=depth, **more)

    def _ran(self, name: str, answer: Mapping[str, Any], n_tokens: int) -> RawRun:
        return _run(answer, self.context(name, present(answer, "context")), n_tokens)

    def output(self, name: str, prompt: str, n_tokens: int) -> str:
        """The text of so many tokens after a prompt."""
        asked = {"model": name, "prompt": prompt, "n_tokens": n_tokens}
        return self.asked("output", lambda answer: str(answer["text"]), **asked)

    def revisit(self, name: str, positions: Sequence[int]) -> RunRemains:
        """The traces of the last timed run: its logits, and some positions decoded again."""
        return self.asked("run_revisit", _remains, model=name, positions=list(positions))

    def recompute(
        self, name: str, tokens: Sequence[int], positions: Sequence[int]
    ) -> dict[int, GroupedRow]:
        """The logits of positions of a text by position, from a fresh memory in large batches."""
        asked = {"model": name, "tokens": list(tokens), "positions": list(positions)}
        return self.asked("run_recompute", _grouped_rows, **asked)

    def score(
        self,
        names: Sequence[str],
        tokens: Sequence[int],
        first: int,
        *,
        concurrency: int = 1,
        following: Sequence[int] = (),
        keep: Path | None = None,
        against: Path | None = None,
    ) -> dict[str, tuple[ChunkScore, ContextFacts]]:
        """Score a chunk's logits from position `first` on with each model, compared with the first.

        The result has, for each model, its scores and its resolved context. The next chunk, if it
        is known, is computed during this one if a GPU would be idle.

        Args:
            names: the models.
            tokens: the chunk.
            first: the first position that is scored.
            concurrency: models that are computed at a time.
            following: the next chunk.
            keep: a file that the first model's logits are written to.
            against: such a file of another process; every model is compared with it instead.

        Raises:
            MeasurementError: scores that no model can have; see `ChunkScore`.
        """

        def parse(answer: Mapping[str, Any]) -> dict[str, tuple[ChunkScore, ContextFacts]]:
            scores, contexts = answer["scores"], answer["contexts"]
            return {n: (_chunk_score(scores[n]), self.context(n, contexts[n])) for n in names}

        return self.asked(
            "score",
            parse,
            models=list(names),
            tokens=list(tokens),
            first=first,
            concurrency=concurrency,
            following=list(following),
            keep=str(keep or ""),
            against=str(against or ""),
        )

    def quantize(self, source: Path, target: Path, recipe: Mapping[str, object]) -> None:
        """Write a model at another quantization; `recipe` as `engines.level_recipe` returns it."""
        self.call("quantize", source=str(source), target=str(target), recipe=dict(recipe))

    def speculate(
        self, target: str, draft: str, prompt: str, *, n_new: int, k: int
    ) -> ToolSpeculation:
        """Generate with the engine's own program for speculation."""
        asked = {"model": target, "draft": draft, "prompt": prompt, "n_new": n_new, "k": k}
        return self.asked(
            "speculate",
            lambda of: parsed(ToolSpeculation, of, "speculate", text=str(of["text"])),
            **asked,
        )


def _tokens(value: object) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(token, int) for token in value):
        raise ValueError("the tokens are not a list of numbers")
    return value


def _remains(answer: Mapping[str, Any]) -> RunRemains:
    chosen = {int(at): int(token) for at, token in answer["chosen"].items()}
    return RunRemains(optional(answer, "n_held", int), _grouped_rows(answer), chosen)


def _grouped_rows(answer: Mapping[str, Any]) -> dict[int, GroupedRow]:
    return {int(position): grouped_row(row) for position, row in answer["rows"].items()}


def grouped_row(row: Sequence[Any]) -> GroupedRow:
    """One row of an answer, if it has the log-probabilities of all groups of tokens."""
    parsed = tuple(map(float, row))
    if len(parsed) != GROUPS or not -math.inf < min(parsed) <= max(parsed) < _ROUNDING:
        raise ValueError("a row is not log-probabilities of groups of tokens")
    return parsed


def _run(answer: Mapping[str, Any], context: ContextFacts, n_tokens: int) -> RawRun:
    run = RawRun(
        **{key: required(answer, key, int) for key in ("n_tokens", "elapsed_ns", "peak_rss_bytes")},
        step_ns=tuple(map(int, answer["step_ns"])),
        context=context,
        logits=_logit_row(answer["logits"]),
        requests=_requests(answer["requests"]),
    )
    if run.n_tokens != n_tokens or not 0 < run.elapsed_ns < _LONGEST_RUN_NS:
        raise ValueError(f"{run.n_tokens} tokens in {run.elapsed_ns} ns are impossible")
    return run


def _requests(rows: Sequence[Mapping[str, Any]]) -> tuple[ServedRequest, ...]:
    if not rows:
        return ()
    from pytest_asperf.analysis.serving_metrics import ServedRequest  # noqa: PLC0415  # as below

    return tuple(
        parsed(
            ServedRequest,
            row,
            "requests",
            event_ns=tuple(map(int, row["event_ns"])),
            timings={str(name): float(value) for name, value in row["timings"].items()},
        )
        for row in rows
    )


def _logit_row(row: Mapping[str, Any] | None) -> LogitRow | None:
    if row is None:
        return None
    peak = None if row["peak"] is None else float(row["peak"])
    n_vocab, n_nan, n_inf = (int(row[name]) for name in ("n_vocab", "n_nan", "n_inf"))
    return LogitRow(n_vocab, n_nan, n_inf, peak, bool(row["is_flat"]))


def _chunk_score(row: Mapping[str, Any]) -> ChunkScore:
    from pytest_asperf.analysis.metrics import ChunkScore  # noqa: PLC0415  # brings numpy and scipy

    return ChunkScore(
        tuple(map(float, row["nll"])),
        tuple(map(float, row.get("kld", ()))),
        tuple(map(bool, row.get("same_top", ()))),
    )
