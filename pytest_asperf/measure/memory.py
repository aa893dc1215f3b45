"""The memory of a model, counted by the engine that has it; of two builds, also by the process."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import psutil

from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import ContextFacts, EngineMemory, Worker
from pytest_asperf.engine_process.ways import embedded
from pytest_asperf.errors import MeasurementError, UnfitError
from pytest_asperf.measure.embeddings import texts_to_embed
from pytest_asperf.measure.experiment import MachineLease, OfAnyModel, SharedProcess
from pytest_asperf.measure.feeding import workload_tokens
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.running_arms import MODEL, RunningArm, ask_anew
from pytest_asperf.measure.running_build import kept_build
from pytest_asperf.measure.validity import require_numbers

#: Tokens that fill the context if no depth is requested, and tokens decoded at its end.
_FILLED: Final = 512
_DECODED: Final = 16
#: Requests after the context was filled. Memory that a request does not give back adds up over the
#: later ones: the first ones still fill buffers that stay.
_FIRST_REQUESTS, LATER_REQUESTS = 8, 24
#: Tokens of each prompt and of its reply: memory may stay of each request, or of each token.
_REQUESTED: Final = 48
_REPLIED: Final = 8
_WHY: Final = "a model's memory is the engine's own count"


def _require_counted(worker: Worker) -> None:
    """Reject an engine that does not count its allocations, before any context is filled."""
    if reason := worker.describe().cannot.get("memory"):
        raise UnfitError(f"memory: {reason}", why=_WHY, remedy="measure on llama_cpp or mlx")


def _counted(ran: Provenance) -> EngineMemory:
    if ran.memory is None:
        raise MeasurementError(
            f"{ran.model}: the engine does not report its allocations",
            why=_WHY,
            remedy="measure on llama_cpp or mlx; an engine without a figure cannot be judged",
        )
    return ran.memory


@dataclass(frozen=True)
class MemoryResult:
    """The memory of a model with `n_ctx` positions filled, as the engine counts it.

    The peak resident memory is the worker's and does not include a GPU's memory.
    """

    n_ctx: int
    memory: EngineMemory
    peak_rss_bytes: int
    ran: Provenance


@dataclass(frozen=True)
class MemoryExperiment(SharedProcess):
    """Fills the context of the lease's one model with `n_ctx` tokens."""

    n_ctx: int

    def run(self, lease: MachineLease) -> MemoryResult:
        """Measure the memory of this work; an UnfitError if the engine does not count it."""
        ((arm,),) = lease.sides
        name, n_ctx = arm.name, self.n_ctx
        build = kept_build(lease, {name: arm})
        worker = build.worker
        _require_counted(worker)
        build.require_context(name, n_ctx, f"memory at {n_ctx}")
        fill = Workload("pp", n_ctx)
        tokens = workload_tokens(worker, name, lease.corpus, fill)
        lease.progress(f"memory at {n_ctx} {name}", 0, 1)
        run = require_numbers(f"{fill.name} {name}", worker.prompt(name, tokens, 0))
        ran = build.proof(name, run.context)
        return MemoryResult(n_ctx, _counted(ran), run.peak_rss_bytes, ran)


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """The memory of one build with a filled context."""

    counted: EngineMemory  #: by the engine itself
    #: the largest resident memory that its process had, also while it computed a later request
    peak_rss_bytes: int
    #: the resident memory of its process at the end, including child processes, without free memory
    #: of its allocator
    steady_rss_bytes: int
    #: by how much that grew in `LATER_REQUESTS` requests of equal length, in one context or in a
    #: new one each
    left_bytes: int
    ran: Provenance  #: the run record


@dataclass(frozen=True, slots=True)
class MemoryComparison:
    """The memory of one model file in two builds."""

    base: HeldMemory  #: of the baseline
    candidate: HeldMemory  #: of the candidate
    n_ctx: int  #: tokens that the context was filled with
    elapsed_s: float  #: its duration, loads included

    @property
    def ran(self) -> tuple[Provenance, Provenance]:
        """Run record of each build, baseline first."""
        return self.base.ran, self.candidate.ran


@dataclass(frozen=True, slots=True)
class MemoryABExperiment(OfAnyModel):
    """Fills the context of one model in both builds, in a new process of each.

    An encoder embeds texts in batches instead.
    """

    depth: int = 0  #: tokens that it is filled with; 0 for as many as usual

    def run(self, lease: MachineLease) -> MemoryComparison:
        """Measure the memory of this work; an UnfitError if the engine does not count it."""
        began = time.monotonic()
        lease.progress("memory", 0, 1)
        arms = [arm for (arm,) in lease.sides]
        base, candidate = ask_anew(arms, lease, partial(self._held, lease=lease))
        (base_held, n_ctx), (candidate_held, _) = base, candidate
        return MemoryComparison(base_held, candidate_held, n_ctx, time.monotonic() - began)

    def attempt(self, lease: MachineLease) -> None:
        """Fill the context in the lease's only variant."""
        ((arm,),) = lease.sides
        ask_anew([arm], lease, partial(self._held, lease=lease))

    def _held(self, running: RunningArm, lease: MachineLease) -> tuple[HeldMemory, int]:
        worker = running.worker
        _require_counted(worker)
        is_encoder = running.arm.model.is_encoder
        fill = self._embed if is_encoder else self._fill
        context, n_ctx = fill(running, lease)
        ran = running.ran(context)
        requests = [_embed_one] if is_encoder else [_ask_one, _ask_anew]
        at = [_resident_after(request, running, lease) for request in requests]
        left_bytes = max(steady - early for early, steady in at)
        peak_rss_bytes = _give_back(worker)
        return HeldMemory(_counted(ran), peak_rss_bytes, at[0][-1], left_bytes, ran), n_ctx

    def _fill(self, running: RunningArm, lease: MachineLease) -> tuple[ContextFacts, int]:
        """Fill the context; its resolved settings, and the tokens."""
        worker = running.worker
        n_ctx = self.depth or min(_FILLED, running.loaded.n_ctx_train)
        running.require_context(MODEL, n_ctx, f"memory at {n_ctx}")
        tokens = workload_tokens(worker, MODEL, lease.corpus, Workload("pp", n_ctx))
        worker.prompt(MODEL, tokens, 0)
        decoded = worker.generate(MODEL, tokens, max(0, n_ctx - _DECODED))
        run = require_numbers(f"memory {running.arm.name}", decoded)
        return run.context, n_ctx

    def _embed(self, running: RunningArm, lease: MachineLease) -> tuple[ContextFacts, int]:
        """Embed texts in batches; the same, with the tokens that the context has room for."""
        if self.depth:
            running.arm.model.require_causal()
        texts = texts_to_embed(lease, running)
        _, context = embedded(running.worker, MODEL, texts, together=True)
        return context, context.n_ctx or 0


def _ask_one(running: RunningArm, lease: MachineLease) -> None:
    """Compute a prompt, and decode tokens after it: each way may leave memory of its own."""
    worker, prompt = running.worker, min(_REQUESTED, running.loaded.n_ctx_train - _REPLIED)
    tokens = workload_tokens(worker, MODEL, lease.corpus, Workload("tg", _REPLIED, prompt))
    worker.prompt(MODEL, tokens[:prompt], 0, n_ctx=len(tokens))
    worker.generate(MODEL, tokens, prompt)


def _ask_anew(running: RunningArm, lease: MachineLease) -> None:
    """Compute a few tokens in a context of their own, which is freed."""
    tokens = workload_tokens(running.worker, MODEL, lease.corpus, Workload("pp", _REPLIED))
    running.worker.recompute(MODEL, tokens, [_REPLIED - 1])


def _embed_one(running: RunningArm, lease: MachineLease) -> None:
    texts = texts_to_embed(lease, running)
    embedded(running.worker, MODEL, texts[:1], together=False)


def _resident_after(
    request: Callable[[RunningArm, MachineLease], None], running: RunningArm, lease: MachineLease
) -> tuple[int, int]:
    """Resident memory of the process after the first requests, and after the later ones."""
    at = []
    for count in (_FIRST_REQUESTS, LATER_REQUESTS):
        for _ in range(count):
            request(running, lease)
        _give_back(running.worker)
        at.append(_resident_bytes(running.worker.pid))
    return at[0], at[1]


def _give_back(worker: Worker) -> int:
    """Free the allocator's unused memory; the peak resident memory of the process so far."""
    return worker.asked("give_back", lambda answer: int(answer["peak_rss_bytes"]))


def _resident_bytes(pid: int) -> int:
    """The resident memory of a process and of those that it started."""
    process = psutil.Process(pid)
    every = [process, *process.children(recursive=True)]
    return sum(int(one.memory_info().rss) for one in every)
