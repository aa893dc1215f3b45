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

from pytest_asperf.analysis.guards import kld
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import UnfitError
from pytest_asperf.measure.feeding import workload_tokens
from pytest_asperf.measure.running_arms import MODEL, RunningArm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_asperf.config.engines import Engine
    from pytest_asperf.measure.experiment import Arm, MachineLease
    from pytest_asperf.measure.results import Provenance

#: What the second load of the model is called, which is fed one token at a time.
_SINGLY: Final = "singly"
#: Tokens compared: one of llama.cpp's physical batches, and a half that follows it.
_TOKENS: Final = 768
#: Tokens compared after a depth.
_DEEP_TOKENS: Final = 64
#: Models up to this size are cheap to hold more than once.
_SMALL_BYTES: Final = 2**28
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
        kld: of each position's distribution in the batch from that after single tokens, nats.
        same_tops: whether both have the same likeliest token, or group of tokens, at each position.
        ran: the run record.
        first: the first position.
    """

    kld: tuple[float, ...]
    same_tops: tuple[bool, ...]
    ran: Provenance
    first: int = 0

    @cached_property
    def mean_kld(self) -> float:
        """Mean KLD of a position, nats."""
        return sum(self.kld) / len(self.kld)

    @property
    def largest_kld(self) -> float:
        """KLD of the position where it is largest, nats."""
        return max(self.kld)

    @property
    def position(self) -> int:
        """The position where it is largest."""
        return self.first + self.kld.index(self.largest_kld)

    @property
    def same_top(self) -> float:
        """Share of positions with the same likeliest token."""
        return sum(self.same_tops) / len(self.same_tops)


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
        """Run record of each arm, baseline first."""
        base, candidate = self.drifts
        return base.ran, candidate.ran


@dataclass(frozen=True, slots=True)
class LogitsExperiment:
    """Scores the same tokens in one batch and one at a time, in both arms.

    Without a depth the model is loaded twice in one process, which costs its memory twice where an
    engine does not share weights of one file.

    Attributes:
        depth: tokens before those that are compared, decoded in batches; 0 for none.
    """

    depth: int = 0

    def run(self, lease: MachineLease) -> LogitsComparison:
        """Score.

        Raises:
            EngineError: an arm died or refused.
        """
        began = time.monotonic()
        lease.progress("logits", 0, 1)
        arms = [arm for (arm,) in lease.sides]
        # Four copies are then in memory.
        if max(arm.model.size_bytes for arm in arms) <= _SMALL_BYTES:
            with ThreadPoolExecutor(len(arms)) as pool:
                base, candidate = pool.map(lambda arm: self._drift(arm, lease), arms)
        else:
            base, candidate = (self._drift(arm, lease) for arm in arms)
        return LogitsComparison((base, candidate), time.monotonic() - began)

    def attempt(self, lease: MachineLease) -> None:
        """Score with the lease's one side."""
        ((arm,),) = lease.sides
        self._drift(arm, lease)

    def _drift(self, arm: Arm, lease: MachineLease) -> Drift:
        with RunningArm(arm, lease) as running:
            return (
                _deep_drift(running, lease, self.depth)
                if self.depth
                else _drift(running, arm, lease)
            )


def _drift(running: RunningArm, arm: Arm, lease: MachineLease) -> Drift:
    worker = running.worker
    settings = arm.settings.merged(_ONE_AT_A_TIME.get(arm.build.engine.engine, EngineSettings()))
    wanted = Workload("pp", min(_TOKENS, running.loaded.n_ctx_train))
    tokens = workload_tokens(worker, MODEL, lease.corpus, wanted)
    worker.load(_SINGLY, arm.model.path, settings)
    batched, context = worker.score([_SINGLY, MODEL], tokens, 0)[MODEL]
    return Drift(batched.kld, batched.same_top, running.ran(context))


def _deep_drift(running: RunningArm, lease: MachineLease, depth: int) -> Drift:
    """Compare tokens that are decoded one at a time after a depth with one batch of all of them."""
    worker, wanted = running.worker, Workload("tg", _DEEP_TOKENS, depth)
    if wanted.n_ctx > running.loaded.n_ctx_train:
        raise UnfitError(
            f"logits@d{depth} needs {wanted.n_ctx} tokens of context, and the model was trained on "
            f"{running.loaded.n_ctx_train}",
            why=f"{_DEEP_TOKENS} tokens are compared after {depth}",
            remedy="name a smaller depth",
        )
    tokens = workload_tokens(worker, MODEL, lease.corpus, wanted)
    run = worker.generate(MODEL, tokens, depth)
    singly = worker.revisit(MODEL, range(depth, wanted.n_ctx)).rows
    if not singly:
        raise UnfitError(
            f"{worker.build.engine} shows no logits inside of a run",
            why="tokens after a depth are compared one by one",
            remedy="check logits without a depth, or with the engines llama_cpp and mlx",
        )
    computed = worker.recompute(MODEL, tokens, list(singly))
    rows = [(singly[position], computed[position]) for position in sorted(singly)]
    return Drift(
        tuple(kld(true, other) for true, other in rows),
        tuple(_top(true) == _top(other) for true, other in rows),
        running.ran(run.context),
        min(singly),
    )


def _top(row: Sequence[float]) -> int:
    return row.index(max(row))
