"""The memory of a model, counted by the engine that has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import MeasurementError, UnfitError
from pytest_asperf.measure.experiment import SharedProcess
from pytest_asperf.measure.feeding import workload_tokens
from pytest_asperf.measure.running_build import kept_build
from pytest_asperf.measure.validity import require_numbers

if TYPE_CHECKING:
    from pytest_asperf.engine_process import EngineMemory
    from pytest_asperf.measure.experiment import MachineLease
    from pytest_asperf.measure.results import Provenance


@dataclass(frozen=True)
class MemoryResult:
    """The memory of a model with `n_ctx` positions filled, as the engine counts it.

    The peak resident memory is the worker's; of what a GPU holds it knows nothing.
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
        """Read what that takes.

        Raises:
            UnfitError: the engine does not count it, or the model's context is shorter.
            EngineError: the engine died or refused.
        """
        ((arm,),) = lease.sides
        name, n_ctx = arm.name, self.n_ctx
        build = kept_build(lease, {name: arm})
        worker = build.worker
        if reason := worker.describe().cannot.get("memory"):
            raise UnfitError(
                f"memory: {reason}",
                why="what a model takes is the engine's own count",
                remedy="measure on llama_cpp or mlx",
            )
        build.require_context(name, n_ctx, f"memory at {n_ctx}")
        fill = Workload("pp", n_ctx)
        tokens = workload_tokens(worker, name, lease.corpus, fill)
        lease.progress(f"memory at {n_ctx} {name}", 0, 1)
        run = require_numbers(f"{fill.name} {name}", worker.prompt(name, tokens, 0))
        ran = build.proof(name, run.context)
        if ran.memory is None:
            raise MeasurementError(
                f"{ran.model}: the engine does not say what it allocated",
                why="what a model takes is the engine's own count",
                remedy="measure on llama_cpp or mlx; an engine without a figure cannot be judged",
            )
        return MemoryResult(n_ctx, ran.memory, run.peak_rss_bytes, ran)
