"""What a model takes, counted by the engine that holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_asperf.errors import MeasurementError

if TYPE_CHECKING:
    from pytest_asperf.engine_process import EngineMemory, RawRun
    from pytest_asperf.measure.results import Provenance


@dataclass(frozen=True)
class MemoryResult:
    """What a model takes with `n_ctx` positions filled, as the engine counts it.

    The peak resident memory is the worker's; of what a GPU holds it knows nothing.
    """

    n_ctx: int
    memory: EngineMemory
    peak_rss_bytes: int
    ran: Provenance


def counted_memory(n_ctx: int, run: RawRun, ran: Provenance) -> MemoryResult:
    """What a run that filled a context took, as the engine says."""
    if ran.memory is None:
        raise MeasurementError(
            f"{ran.model}: the engine does not say what it allocated",
            why="what a model takes is the engine's own count",
            remedy="measure on llama_cpp or mlx; an engine without a figure cannot be judged",
        )
    return MemoryResult(n_ctx, ran.memory, run.peak_rss_bytes, ran)
