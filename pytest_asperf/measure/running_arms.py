"""The variants of a comparison as they run: each has a process of its own, whose work is timed."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias, TypeVar

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import ContextFacts, LoadedFacts, RawRun, n_usable_cores
from pytest_asperf.measure.experiment import Arm, MachineLease
from pytest_asperf.measure.feeding import Fed, Prompts, ServedText, fed_with
from pytest_asperf.measure.metered import MeteredRun
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.running_build import RunningBuild, open_together
from pytest_asperf.measure.timed_work import (
    ExaminedRun,
    TimedCall,
    answer_before,
    time_workload,
    timed_call,
)
from pytest_asperf.measure.validity import require_sound, require_valid
from pytest_asperf.worker.speculation import Generation

#: The model's name if it is the only one.
MODEL: Final = "model"
#: Tokens that are decoded untimed before a run. The caches still have the other variant's data,
#: which costs 34 % of a part at a depth of 1,024, and nothing measurable after these tokens
#: (docs/benchmarks.md).
SETTLING_TOKENS: Final = 4
#: A generation is timed in at most so many parts, of at least so many tokens.
_MOST_PARTS: Final = 16
_LEAST_PART: Final = 8
#: Weights up to which two variants are loaded at once, with four copies in memory.
_SMALL_BYTES: Final = 2**25
#: For a server, whose prompts are new to it.
SERVED_SETTLING: Final = Workload("ttft", 64)


@dataclass(frozen=True, slots=True)
class ArmCache:
    """Results that processes of one variant leave for later ones, so that none repeats the work."""

    folder: Path  #: filled caches of the engine: the text before a timed run
    fed: dict[Workload, Fed] = field(default_factory=dict)  #: their tokens or prompts, by workload
    prompts: dict[int, Prompts] = field(default_factory=dict)  #: of a suite, by the room for them
    #: to prompts of a suite, by the number of the run pair
    replies: dict[int, Generation] = field(default_factory=dict)
    #: the whole replies that were generated before the pairs, by the prompt's number
    outputs: dict[int, list[int]] = field(default_factory=dict)
    #: run record of each model of the last process, and the models' `contexts`
    ran: list[Provenance] = field(default_factory=list)
    contexts: dict[str, ContextFacts] = field(default_factory=dict)
    #: the least and the most of the largest logits after the runs, by workload and then by the
    #: runs' tokens
    peaks: dict[Workload, dict[tuple[int, int], tuple[float, float]]] = field(default_factory=dict)
    #: workloads of which a run was examined, and had no finding
    found_sound: set[Workload] = field(default_factory=set)
    #: the share of the model's file that was cached before each timed load; None if the system does
    #: not report it
    loaded_from: list[float | None] = field(default_factory=list)


@contextmanager
def arm_caches() -> Iterator[tuple[ArmCache, ArmCache]]:
    """A cache for each variant of a comparison, for its duration."""
    with TemporaryDirectory(prefix="asperf-") as folder:
        base, candidate = Path(folder, "baseline"), Path(folder, "candidate")
        base.mkdir()
        candidate.mkdir()
        yield ArmCache(base), ArmCache(candidate)


@dataclass(frozen=True, slots=True)
class SuiteReply:
    """A timed reply to a prompt of a suite; a program shows no context."""

    n_tokens: int
    elapsed_ns: int
    context: ContextFacts | None


TimedRun: TypeAlias = RawRun | MeteredRun | SuiteReply


class TimedArm(RunningBuild, ABC):
    """A running variant, as the pairs of a comparison use it."""

    timed: str = MODEL  #: the name of the model that is timed

    @property
    def loaded(self) -> LoadedFacts:
        """The resolved facts of the last load."""
        return self.facts(self.timed)

    def ran(self, context: ContextFacts | None) -> Provenance:
        """The run record with the last run's context; MeasurementError if not as requested."""
        return self.proof(self.timed, context)

    @property
    def loads_each_run(self) -> bool:
        """True if each run has a load of its own."""
        return self.loaded.loads_each_run

    @property
    def is_kept(self) -> bool:
        """True if no further process may be started for a pair."""
        return bool(self.worker.build.url)

    @property
    def variants(self) -> tuple[TimedArm, ...]:
        """The variants that this process runs: one, or both."""
        return (self,)

    def own(self, workload: Workload) -> Workload:
        """The runs of this variant in a pair of a workload."""
        return workload

    @property
    def is_divisible(self) -> bool:
        """True if a run can be timed in parts, each of which goes on where another ended."""
        # A server generates from a prompt.
        return not self.loads_each_run and self.loaded.served is None

    def most_parts(self, workload: Workload) -> int:
        """The most equal parts that a run can be timed in."""
        return most_parts(workload) if self.is_divisible else 1

    @abstractmethod
    def fed(self, workload: Workload) -> object:
        """The tokens or prompts of the workload, to compare between the variants."""

    @abstractmethod
    def run(self, workload: Workload, turn: int, parts: int) -> TimedRun:
        """Time one run, or one of its parts; both variants do the same work in a run pair."""

    @abstractmethod
    def warm_up(self, workload: Workload, turn: int, parts: int) -> None:
        """Do the extra work of a context's first run, in the shape of a run.

        The work before a workload is done first.
        """

    @abstractmethod
    def settle(self, workload: Workload, turn: int, parts: int) -> None:
        """Do a piece of the run's own work, to remove the other variant's data from the caches."""

    def end_turn(self, turn: int) -> None:
        """Do untimed work after both runs of a run pair, if this is the baseline."""

    def end(self) -> None:
        """Note facts that are known after the last pair."""

    def examine_last(
        self,
        coin: random.Random,  # noqa: ARG002  # see below
        parts: int = 1,  # noqa: ARG002  # see below
    ) -> ExaminedRun | None:
        """Examine the state after the last timed run; None if the engine does not show it.

        Args:
            coin: draws positions.
            parts: of which the run was one; all of them are run first, as when they are timed.
        """
        return None


class RunningArm(TimedArm):
    """A variant that runs workloads of one model, with the cache of its earlier processes."""

    def __init__(self, arm: Arm, lease: MachineLease, cache: ArmCache | None = None) -> None:
        self.arm = arm
        self._corpus = lease.corpus
        self._energy_meter = lease.energy_meter
        self._fed = cache.fed if cache else {}
        self._peaks = cache.peaks if cache else {}
        self._found_sound = cache.found_sound if cache else set()
        self._last: tuple[Workload, TimedCall, RawRun] | None = None
        super().__init__(arm.build.engine, lease, cache.folder if cache else None)
        with self.ended_on_error():
            self.load(MODEL, arm)

    def own(self, workload: Workload) -> Workload:
        """The runs of this variant in a pair of a workload."""
        return self.arm.workload or workload

    def fed(self, workload: Workload) -> Fed:
        """The tokens that a workload is fed with, or the text of a server's prompts."""
        workload = self.own(workload)
        if workload not in self._fed:
            args = self.worker, MODEL, self._corpus, workload, self.loaded
            self._fed[workload] = fed_with(*args)
        return self._fed[workload]

    def run(self, workload: Workload, turn: int, parts: int) -> RawRun | MeteredRun:
        """Time one run of a workload; of a generation in parts, the next part.

        If energy is judged, as many runs as its counters need.
        """
        workload = self.own(workload)
        if workload.metered:
            return self._energy_meter().metered(
                f"{workload.name} {self.arm.name}",
                lambda: self._timed(workload, turn, 1),
                on_gpu=self.loaded.layers_offloaded > 0,
            )
        return self._timed(workload, turn, parts)

    def _timed(self, workload: Workload, turn: int, parts: int) -> RawRun:
        tokens = self.fed(workload)
        first, end = _span(workload, turn, parts)
        if parts == 1 or isinstance(tokens, ServedText):
            run = time_workload(self.worker, MODEL, tokens, workload)
            call = timed_call(self.worker, MODEL, tokens, workload)
        else:
            generate = partial(self._generate, workload, first)
            run = generate(tokens[:end])
            call = TimedCall(self.worker, MODEL, tokens[:end], first, generate)
        self._last = (workload, call, run) if call else None
        what = f"{workload.name} {self.arm.name}"
        if run.logits and (peak := run.logits.peak) is not None:
            peaks = self._peaks.setdefault(workload, {})
            seen = (*peaks.get((first, end), ()), peak)
            peaks[first, end] = min(seen), max(seen)
            if workload in self._found_sound:
                require_valid(what, self._unequal_runs(workload))
        return require_sound(what, run, workload)

    def _generate(self, workload: Workload, first: int, tokens: Sequence[int]) -> RawRun:
        """Decode tokens from the first position on, as a part of a generation."""
        return self.worker.generate(
            MODEL, tokens, first, n_ctx=workload.room, sampled=workload.sampled
        )

    def _generate_parts(self, workload: Workload, parts: int, tokens: Sequence[int]) -> RawRun:
        """Decode a whole generation in its parts."""
        spans = (_span(workload, part, parts) for part in range(parts))
        runs = [self._generate(workload, first, tokens[:end]) for first, end in spans]
        return replace(
            runs[-1],
            n_tokens=sum(run.n_tokens for run in runs),
            elapsed_ns=sum(run.elapsed_ns for run in runs),
            step_ns=tuple(step for run in runs for step in run.step_ns),
            call_ns=sum(run.call_ns for run in runs),
            waited_ns=sum(run.waited_ns for run in runs),
        )

    def _unequal_runs(self, workload: Workload) -> tuple[GuardFinding, ...]:
        """Signs that runs of the same tokens did not end with the same logits."""
        found = map(guards.unequal_runs, self._peaks.get(workload, {}).values())
        return tuple(finding for finding in found if finding)

    def examine_last(self, coin: random.Random, parts: int = 1) -> ExaminedRun | None:
        """Examine the state after the last timed run; None if the engine does not show it."""
        if self._last is None:
            return None
        (workload, call, run), self._last = self._last, None
        tokens = self.fed(workload)
        if parts > 1 and not isinstance(tokens, ServedText):
            generate = partial(self._generate_parts, workload, parts)
            tokens = tokens[: workload.n_ctx]
            call = TimedCall(self.worker, MODEL, tokens, workload.depth, generate)
            run = generate(tokens)
        examined = call.examine(run, coin)
        if examined:
            examined = replace(examined, unequal_runs=self._unequal_runs(workload))
        if not (examined and examined.findings):
            self._found_sound.add(workload)
        return examined

    def warm_up(self, workload: Workload, turn: int, parts: int) -> None:
        """Answer the requests before a workload, and run it, or its part."""
        workload = self.own(workload)
        answer_before(self.worker, MODEL, self.fed(workload), workload)
        if workload.depth:
            # The state is kept from before these tokens on: a memory that cannot drop its end
            # goes back there, and does not compute its whole text again.
            self.settle(workload, turn, parts)
        self._timed(workload, turn, parts)

    def settle(self, workload: Workload, turn: int, parts: int) -> None:
        """Decode the tokens before the run's first one again, or its own first ones."""
        workload = self.own(workload)
        tokens = self.fed(workload)
        if isinstance(tokens, ServedText):
            n_tokens = min(SERVED_SETTLING.n_tokens, workload.n_ctx)
            time_workload(self.worker, MODEL, tokens, replace(SERVED_SETTLING, n_tokens=n_tokens))
            return
        first, _ = _span(workload, turn, parts)
        end = max(first, SETTLING_TOKENS)
        before = tokens[:end]
        if workload.kind in {"ttft", "request"}:
            self.worker.first_token(MODEL, before, n_ctx=workload.room)
            return
        decode = self.worker.prompt if workload.is_prompt else self.worker.generate
        decode(MODEL, before, end - SETTLING_TOKENS, n_ctx=workload.room)


def most_parts(workload: Workload) -> int:
    """The most equal parts that a workload's run can be timed in."""
    if not workload.generates or workload.metered or workload.percentile:
        return 1
    return equal_parts(workload.n_tokens, _LEAST_PART)


def equal_parts(n_tokens: int, least: int) -> int:
    """The most equal parts of so many tokens, each of which has at least so many."""
    most = min(_MOST_PARTS, n_tokens // least)
    return max((n for n in range(1, most + 1) if n_tokens % n == 0), default=1)


def _span(workload: Workload, turn: int, parts: int) -> tuple[int, int]:
    """The first position that a run, or its part, decodes, and the one after its last."""
    if workload.kind == "request":
        return 0, workload.n_ctx
    n_tokens = workload.n_tokens // parts
    first = workload.depth + turn % parts * n_tokens
    return first, first + n_tokens


Answer = TypeVar("Answer")


def ask_each(arms: Sequence[RunningArm], ask: Callable[[RunningArm], Answer]) -> list[Answer]:
    """All processes' answers to a request that is not timed, at once if they have the cores."""
    with ThreadPoolExecutor(len(arms) if have_own_cores(arms) else 1) as pool:
        return list(pool.map(ask, arms))


def ask_anew(
    arms: Sequence[Arm], lease: MachineLease, ask: Callable[[RunningArm], Answer]
) -> list[Answer]:
    """The answers of a new process of each variant to a request that is not timed."""
    opening = [partial(RunningArm, arm, lease) for arm in arms]
    if max(arm.model.size_bytes for arm in arms) <= _SMALL_BYTES:
        with ExitStack() as stack:
            return ask_each(open_together(stack, opening), ask)
    answers = []
    for start in opening:
        with start() as running:
            answers.append(ask(running))
    return answers


def have_own_cores(arms: Sequence[RunningArm]) -> bool:
    """True if there is a core for each thread of all processes.

    Otherwise threads spin while others keep them waiting (docs/benchmarks.md).
    """
    loaded = [arm.loaded for arm in arms]
    threads = sum(0 if facts.layers_offloaded else facts.threads or 0 for facts in loaded)
    return threads <= n_usable_cores()
