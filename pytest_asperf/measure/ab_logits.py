"""Prefill against decoding: the same tokens in one batch, and one at a time, under each build.

Batches and single tokens go through different kernels. A build whose prefill is corrupt decodes
as fast and as well as ever once the cache is filled, and one whose decoding is corrupt has the PPL
of its prefill: either shows only where the two are compared.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import Workload
from pytest_asperf.measure.running_arms import MODEL, SMALL_BYTES, RunningArm
from pytest_asperf.measure.throughput import workload_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_asperf.analysis.metrics import ChunkScore
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.measure.ab_arms import Arm
    from pytest_asperf.measure.experiment import MachineLease
    from pytest_asperf.measure.results import Provenance

#: What the second load of the model is called, which is fed one token at a time.
_SINGLY: Final = "singly"
#: Tokens compared: one of llama.cpp's physical batches, and a half that follows it.
_TOKENS: Final = 768
#: Settings under which an engine computes a text one token at a time.
_ONE_AT_A_TIME: Final[Mapping[Engine, EngineSettings]] = {
    "llama_cpp": EngineSettings(n_ubatch=1),
    "llama_tools": EngineSettings(n_ubatch=1),
    "mlx": EngineSettings(n_batch=1),
    "scripted": EngineSettings(n_ubatch=1),
}


@dataclass(frozen=True)
class Drift:
    """How far a build's batched logits are from those of single tokens.

    Attributes:
        batched: scores of the batch; KLD is from the distribution after single tokens.
        ran: proof of path.
    """

    batched: ChunkScore
    ran: Provenance

    @cached_property
    def mean_kld(self) -> float:
        """Mean KLD of a position, nats."""
        return sum(self.batched.kld) / len(self.batched.kld)

    @property
    def largest_kld(self) -> float:
        """KLD of the position where it is largest, nats."""
        return max(self.batched.kld)

    @property
    def position(self) -> int:
        """The position where it is largest."""
        return self.batched.kld.index(self.largest_kld)

    @property
    def same_top(self) -> float:
        """Share of positions with the same likeliest token."""
        return sum(self.batched.same_top) / len(self.batched.same_top)


@dataclass(frozen=True, slots=True)
class LogitsComparison:
    """Prefill against decoding in two arms.

    Attributes:
        drifts: of baseline and candidate.
        elapsed_s: time that it took, loads included.
    """

    drifts: tuple[Drift, Drift]
    elapsed_s: float

    @property
    def ran(self) -> tuple[Provenance, Provenance]:
        """Proof of path of each arm, baseline first."""
        base, candidate = self.drifts
        return base.ran, candidate.ran


@dataclass(frozen=True, slots=True)
class LogitsExperiment:
    """Scores the same tokens in one batch and one at a time, in both arms.

    The model is loaded twice in one process, which costs its memory twice where an engine does not
    share weights of one file.
    """

    def run(self, lease: MachineLease) -> LogitsComparison:
        """Score.

        Raises:
            EngineError: an arm died or refused.
        """
        began = time.monotonic()
        lease.progress("logits", 0, 1)
        arms = [arm for (arm,) in lease.sides]
        # Four copies are then in memory.
        if max(arm.model.size_bytes for arm in arms) <= SMALL_BYTES:
            with ThreadPoolExecutor(len(arms)) as pool:
                base, candidate = pool.map(lambda arm: _drift(arm, lease), arms)
        else:
            base, candidate = (_drift(arm, lease) for arm in arms)
        return LogitsComparison((base, candidate), time.monotonic() - began)

    def attempt(self, lease: MachineLease) -> None:
        """Score with the lease's one side."""
        ((arm,),) = lease.sides
        _drift(arm, lease)


def _drift(arm: Arm, lease: MachineLease) -> Drift:
    with RunningArm(arm, lease) as running:
        worker = running.worker
        settings = arm.settings.merged(
            _ONE_AT_A_TIME.get(arm.build.engine.engine, EngineSettings())
        )
        wanted = Workload("pp", min(_TOKENS, running.loaded.n_ctx_train))
        tokens = workload_tokens(worker, MODEL, lease.corpus, wanted)
        worker.load(_SINGLY, arm.model.path, settings)
        row = worker.score([_SINGLY, MODEL], tokens, 0)
        batched, context = row[MODEL]
        return Drift(batched, running.ran(context))
