"""PP and TG: repetitions of a workload, the models' turns interleaved in random order.

Models that are compared are measured side by side: machines drift, and a drift that all share does
not look like a difference. Where loading is cheap, each repetition is from a fresh load: two loads
of one model can differ by more than two runs of one load (where its memory lies, which threads
run it), and an interval knows only of what varied while it was measured.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from pytest_asperf.errors import Advice, ModelError, UnfitError
from pytest_asperf.measure.timed_work import TimedCall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_asperf.config.workload import Workload
    from pytest_asperf.engine_process import LoadedFacts, RawRun, Worker
    from pytest_asperf.measure.corpus import Corpus
    from pytest_asperf.measure.timed_work import ExaminedRun

#: Characters of text taken for each token wanted; more than tokenizers make of a token.
_CHARACTERS_PER_TOKEN: Final = 12

#: Tokens of a text that may be repeated for longer workloads: a chunk, which PPL needs as well.
MIN_TOKENS: Final = 512

#: Steps of a TG warm-up: enough to touch all weights and to compile what is compiled.
_WARM_UP_STEPS: Final = 8

#: A GPU is warm where two runs in a row differ by no more than this share, or one is this long.
_STEADY: Final = 0.05
_LONG_NS: Final = 300_000_000
_MOST_WARM_UPS: Final = 10

#: A load that takes less than this share of the time measured after it is repeated each time.
_CHEAP_LOAD: Final = 0.5

#: Loads shorter than that share of this are cheap however short the run.
_SHORTEST_NS: Final = 300_000_000


@dataclass(frozen=True, slots=True)
class TimedLoad:
    """The runs timed on one load of a model, in their order.

    The warm-up before them is not counted; there is none where the engine warms itself up.
    """

    warm_up: RawRun | None
    runs: tuple[RawRun, ...]

    @property
    def every(self) -> tuple[RawRun, ...]:
        """All runs, the warm-up first."""
        return self.runs if self.warm_up is None else (self.warm_up, *self.runs)


def load_is_cheap(load_ns: float, measured_ns: float) -> bool:
    """Whether a model may be loaded again each time something is measured on it."""
    return load_ns < _CHEAP_LOAD * max(measured_ns, _SHORTEST_NS)


@dataclass(frozen=True, slots=True)
class TimedRuns:
    """The loads of a model and their runs, and what examining one of the runs showed.

    `examined` is None if the engine does not show what its runs left.
    """

    loads: tuple[TimedLoad, ...]
    examined: ExaminedRun | None


@dataclass(frozen=True, slots=True)
class ServedText:
    """What prompts for a server are made of. No two prompts are the same."""

    text: str


Fed: TypeAlias = "Sequence[int] | ServedText"


def fed_with(
    worker: Worker, name: str, corpus: Corpus, workload: Workload, loaded: LoadedFacts
) -> Fed:
    """What a workload is fed with: tokens, or the text that a server's prompts are made of.

    Raises:
        UnfitError: several users, or a prompt that is in a cache, of an engine that is no server.
        ModelError: the corpus is too short.
    """
    if loaded.served is not None:
        return ServedText(corpus.text[: workload.n_ctx * _CHARACTERS_PER_TOKEN])
    if workload.users > 1 or workload.warm:
        asks = "asks for a cached prompt" if workload.warm else f"has {workload.users} users"
        raise UnfitError(
            f"{workload.name} {asks}, and {worker.build.engine} is not a server",
            why="a library works for one at a time, and keeps no prompts by itself",
            remedy=Advice("measure it on llama_server, mlx_server or openai", "engine"),
        )
    return workload_tokens(worker, name, corpus, workload)


def workload_tokens(worker: Worker, name: str, corpus: Corpus, workload: Workload) -> list[int]:
    """The tokens a workload is fed with: real text, so that experts route as they do.

    A text that is too short is repeated; one too short for that is a ModelError.
    """
    wanted = workload.n_ctx
    tokens = worker.tokenize(name, corpus.text[: wanted * _CHARACTERS_PER_TOKEN])
    n_needed = min(wanted, MIN_TOKENS)
    if len(tokens) < n_needed:
        raise ModelError(
            f"{name}: the corpus {corpus.path} gives {len(tokens)} tokens, and {workload.name} "
            f"needs {n_needed}",
            why="throughput is measured on real text, not on a few words over and over",
            remedy=f"name a corpus of at least {MIN_TOKENS} tokens",
        )
    return (tokens * (wanted // len(tokens) + 1))[:wanted]


def measure_throughput(
    worker: Worker,
    tokens: Mapping[str, Fed],
    workload: Workload,
    *,
    repetitions: int,
    seed: int,
    progress: Callable[[Mapping[str, Sequence[RawRun]]], None],
    loaded: Mapping[str, LoadedFacts],
    reload: Callable[[str], None],
) -> dict[str, TimedRuns]:
    """Time one workload on every loaded model, in rounds of seeded order.

    Each round has a fresh load of each model if that is cheap for all of them, or if the engine
    knows nothing else. So each model has one load for each repetition, or one for all. `progress`
    is given the runs so far. A run of each model is examined: one drawn at random if the next run
    has a load of its own, otherwise the last.
    """
    # The order must be repeatable from the logged seed, not unguessable.
    order = random.Random(seed)  # noqa: S311
    names = list(tokens)
    # An engine that loads and warms up for each run is left alone; it shares the rounds' order.
    kept = [name for name in names if not loaded[name].loads_each_run]
    warm_ups: dict[str, list[RawRun]] = {name: [] for name in names}
    reloads = True
    for name in kept:
        began_ns = time.perf_counter_ns()
        run = _warm_up(worker, name, tokens[name], workload, loaded[name])
        # A load is not ready for its run before the context is made and filled to the depth.
        ready_ns = loaded[name].load_ns + time.perf_counter_ns() - began_ns - run.elapsed_ns
        reloads &= load_is_cheap(ready_ns, run.elapsed_ns / run.n_tokens * workload.n_tokens)
        warm_ups[name].append(run)
    runs: dict[str, list[RawRun]] = {name: [] for name in names}
    coin = random.Random(seed + 1)  # noqa: S311  # as above
    examined_after = coin.randrange(repetitions) if reloads else repetitions - 1
    examined: dict[str, ExaminedRun | None] = {}
    for done in range(repetitions):
        progress(runs)
        for name in order.sample(names, len(names)):
            if reloads and done and name in kept:
                reload(name)
                warm_ups[name].append(_warm_up(worker, name, tokens[name], workload, loaded[name]))
            runs[name].append(time_workload(worker, name, tokens[name], workload))
            if done == examined_after:
                call = timed_call(worker, name, tokens[name], workload)
                examined[name] = call.examine(runs[name][-1], coin) if call else None
    return {name: TimedRuns(_by_load(warm_ups[name], runs[name]), examined[name]) for name in names}


def _by_load(warm_ups: Sequence[RawRun], runs: Sequence[RawRun]) -> tuple[TimedLoad, ...]:
    if not warm_ups:
        return tuple(TimedLoad(None, (run,)) for run in runs)
    if len(warm_ups) == 1:
        return (TimedLoad(warm_ups[0], tuple(runs)),)
    return tuple(TimedLoad(w, (run,)) for w, run in zip(warm_ups, runs, strict=True))


def time_workload(worker: Worker, name: str, tokens: Fed, workload: Workload) -> RawRun:
    """Time one run of a workload on a loaded model."""
    if isinstance(tokens, ServedText):
        return worker.serve(name, tokens.text, workload)
    if workload.kind == "ttft":
        return worker.first_token(name, tokens)
    if workload.kind == "request":
        return _time_request(worker, name, tokens, workload)
    time_it = worker.prompt if workload.kind == "pp" else worker.generate
    return time_it(name, tokens, workload.depth)


def timed_call(worker: Worker, name: str, tokens: Fed, workload: Workload) -> TimedCall | None:
    """The call that times a workload, so that its run can be examined; None of a server's."""
    if isinstance(tokens, ServedText):
        return None

    def time_it(other: Sequence[int]) -> RawRun:
        return time_workload(worker, name, [*other, *tokens[len(other) :]], workload)

    # The last token of a request is chosen and not decoded.
    n_held = workload.n_ctx - (workload.kind == "request")
    return TimedCall(worker, name, tokens[:n_held], workload.depth, time_it)


def _time_request(worker: Worker, name: str, tokens: Sequence[int], workload: Workload) -> RawRun:
    """Time a prompt until its first output token, and then each further one."""
    prompt, n_ctx = tokens[: workload.depth], workload.n_ctx
    first = worker.first_token(name, prompt, n_ctx=n_ctx)
    rest = worker.generate(name, tokens[: n_ctx - 1], workload.depth, n_ctx=n_ctx)
    return replace(
        rest,
        n_tokens=1 + rest.n_tokens,
        elapsed_ns=first.elapsed_ns + rest.elapsed_ns,
        step_ns=(first.elapsed_ns, *rest.step_ns),
    )


def _warm_up(
    worker: Worker, name: str, tokens: Fed, workload: Workload, loaded: LoadedFacts
) -> RawRun:
    """The first run of a load, after which a GPU is run until it is steady."""

    def time_it() -> RawRun:
        if isinstance(tokens, ServedText) or not workload.generates:
            return time_workload(worker, name, tokens, workload)
        return worker.generate(name, tokens[: workload.depth + _WARM_UP_STEPS], workload.depth)

    return run_until_steady(time_it) if loaded.layers_offloaded else time_it()


def run_until_steady(time_it: Callable[[], RawRun]) -> RawRun:
    """The first of the runs that a GPU takes to be steady: its clocks rise, and kernels load."""
    first = run = time_it()
    for _ in range(_MOST_WARM_UPS - 1):
        if run.elapsed_ns > _LONG_NS:
            break
        previous, run = run, time_it()
        if abs(run.elapsed_ns / previous.elapsed_ns - 1) <= _STEADY:
            break
    return first
