"""Before a model runs: does it fit, how fast is it at most, would a draft pay?

Nothing here is measured. A ceiling is memory bandwidth over the bytes that one token reads: an
upper bound of TG if weights come from memory. The share that real runs reach is published
experience.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_asperf.analysis.speculation_model import (
    Vocabulary,
    best_k,
    break_even_ratio,
    emitted_per_round,
)
from pytest_asperf.analysis.stats.estimate import memory_text

#: The rule of thumb of published guides to local inference: the rest is for the system, the KV
#: cache and the engine.
WEIGHTS_SHARE: Final = 0.6
#: Share of its memory that a Mac gives its GPU at least.
GPU_SHARE: Final = 2 / 3
#: Share of the ceiling that real runs reach, by the same guides.
REACHED_SHARE: Final = (0.6, 0.8)
#: Share of the ceiling by active experts that the published runs of one MoE reached
#: (docs/predict.md).
MOE_REACHED_SHARE: Final = (0.2, 0.4)
#: If no acceptance rate is given.
ACCEPTANCES: Final = (0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The memory that one model needs at one length of context."""

    label: str
    basis: str
    context: int  #: positions of the KV cache
    weights_bytes: int
    kv_bytes: int  #: the KV cache of the whole context; an upper bound if there is a `window`
    #: bytes that decoding one token reads, with an empty and with a full context; a lower bound
    read_bytes: tuple[int, int]
    n_ctx_train: int | None = None  #: context of the training, in tokens; None if it is not stated
    #: Positions in the window of a sliding layer; None without one. The layers that have it are
    #: unknown: `kv_bytes` assumes none, `read_bytes` assumes all.
    window: int | None = None
    has_experts: bool = False  #: only a part of the weights is read for one token
    is_recurrent: bool = False  #: some layers keep a state instead of a KV cache
    #: equal for two models with the same tokens; None if it is unknown
    tokenizer_sha256: str | None = None
    vocabulary: Vocabulary | None = None  #: the tokens of a GGUF file

    def splits_as(self, other: Demand) -> bool:
        """True if both models have the same tokens, or differ in padding behind them."""
        if self.vocabulary and other.vocabulary and self.vocabulary.pairs_with(other.vocabulary):
            return True
        return self.tokenizer_sha256 == other.tokenizer_sha256


@dataclass(frozen=True, slots=True)
class MemoryCapacity:
    """The memory that weights and KV cache have to lie in."""

    nbytes: int
    #: True if the system and other programs use it as well; a graphics card's is its own
    is_shared: bool
    basis: str
    #: the system's limit of shared memory for a GPU, Metal's working set; None if it is unknown,
    #: and for the CPU
    gpu_limit_bytes: int | None = None
    #: True if models lie in memory that a Mac gives its GPU in part only
    has_working_set: bool = False

    def holding(self, n_gpu_layers: int | None) -> MemoryCapacity:
        """It, for a model of which so many layers are on the GPU: no limit of one if none are."""
        if n_gpu_layers != 0:
            return self
        return replace(self, gpu_limit_bytes=None, has_working_set=False)

    @property
    def is_certain(self) -> bool:
        """False if the limit of a GPU that shares the memory is unknown."""
        return not self.has_working_set or self.gpu_limit_bytes is not None

    @property
    def usable_bytes(self) -> int:
        """The bytes of it that a model can have."""
        return min(self.nbytes, self.gpu_limit_bytes or self.nbytes)

    @property
    def usable_text(self) -> str:
        """The same, with the reason if they are not all."""
        text = memory_text(self.usable_bytes)
        return text if self.usable_bytes == self.nbytes else f"{text}, Metal's working set"


@dataclass(frozen=True, slots=True)
class Fit:
    """True if models that are loaded together fit in a memory; compute buffers may be unknown."""

    memory: MemoryCapacity
    weights_bytes: int
    kv_bytes: int
    compute_bytes: int | None = None

    @property
    def weights_limit_bytes(self) -> float:
        """Limit of the weights: a share of shared memory, all of a card's."""
        return self.memory.nbytes * (WEIGHTS_SHARE if self.memory.is_shared else 1)

    @property
    def needed_bytes(self) -> int:
        """The known bytes; unknown compute buffers are not included."""
        return self.weights_bytes + self.kv_bytes + (self.compute_bytes or 0)

    @property
    def weights_fit(self) -> bool:
        """True if the weights stay below their limit."""
        return self.weights_bytes < self.weights_limit_bytes

    @property
    def fits(self) -> bool:
        """True if they fit, and the required memory is smaller than the memory for models."""
        return self.weights_fit and self.needed_bytes < self.memory.usable_bytes

    @property
    def is_uncertain(self) -> bool:
        """True if they fit in the memory, and perhaps not in its unknown part for the GPU."""
        exceeds = self.needed_bytes > GPU_SHARE * self.memory.nbytes
        return self.fits and exceeds and not self.memory.is_certain


def fit(memory: MemoryCapacity, demands: Sequence[Demand]) -> Fit:
    """True if models that are loaded together fit in a memory."""
    return Fit(
        memory,
        sum(demand.weights_bytes for demand in demands),
        sum(demand.kv_bytes for demand in demands),
    )


def kv_cache_bytes(
    kv_elements: tuple[int, int], context: int, kv_bytes_per_element: tuple[float, float]
) -> int:
    """Size of a KV cache in which every layer keeps every position.

    Elements are those of one position over all layers, of K and of V.
    """
    row = sum(n * size for n, size in zip(kv_elements, kv_bytes_per_element, strict=True))
    return math.ceil(context * row)


def tg_bound(bandwidth_gbs: float, read_bytes: int) -> float:
    """The TG in tok/s at which decoding, `read_bytes` a token, uses the whole bandwidth."""
    return bandwidth_gbs * 1e9 / read_bytes


def speed_ratio(target: Demand, draft: Demand) -> float:
    """How many times as fast a draft is, both at the same share of their ceilings.

    Small models reach less of theirs, so a measured ratio is lower as a rule.
    """
    return target.read_bytes[0] / draft.read_bytes[0]


@dataclass(frozen=True, slots=True)
class Verification:
    """The cost C(n) of a batch of n >= 2 positions on the target, in steps of the target."""

    costs: tuple[tuple[int, float], ...]
    basis: str


#: Costs to assume if C was not measured.
ASSUMED_COSTS: Final = (
    Verification(tuple((n, 1.0) for n in range(2, 10)), "ideal, assumed: C = 1"),
    Verification(((2, 1.59),), "low public report, Apple GPU: C(2) = 1.59"),
    Verification(((2, 1.81),), "high public report, Apple GPU: C(2) = 1.81"),
)


@dataclass(frozen=True, slots=True)
class Payoff:
    """The effect of speculation at one acceptance rate."""

    acceptance: float
    #: speed ratio of draft to target from which it gains; infinite for never
    break_even_ratio: float
    break_even_k: int  #: tokens drafted per round there
    #: tokens drafted per round with the highest gain; None without a ratio
    best_k: int | None = None
    gain: float | None = None  #: that gain in rate, a fraction; None without a ratio


def payoff(acceptance: float, costs: Verification, ratio: float | None = None) -> Payoff:
    """The predicted gain of speculation over all k with a known cost.

    `ratio` is the speed of the draft over the target's; without it there is only the break-even.
    """
    verify = dict(costs.costs)
    ratios = {
        n - 1: break_even_ratio(emitted_per_round(acceptance, n - 1), n - 1, verify[n])
        for n in sorted(verify)
    }
    k = min(ratios, key=lambda k: ratios[k])
    if ratio is None:
        return Payoff(acceptance, ratios[k], k)
    return Payoff(acceptance, ratios[k], k, *best_k(acceptance, 1 / ratio, verify))
