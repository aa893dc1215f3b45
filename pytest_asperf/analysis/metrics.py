"""From raw counts, nanoseconds and token scores to the field's metrics.

The formulas of PPL, KLD and their ± are those of llama.cpp's tools/perplexity/perplexity.cpp
(functions `perplexity` and `kl_divergence`), so that figures can be compared to the digit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from pytest_asperf.analysis.stats.chunk_intervals import (
    chunk_mean_interval,
    delta_ppl,
    share_interval,
)
from pytest_asperf.analysis.stats.estimate import SHARE, Estimate
from pytest_asperf.errors import MeasurementError, no_truth_value

#: How far rounding in an engine's float32 softmax may lift a probability above 1, in nats.
_NLL_ROUNDING: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity with its unit and the direction that is better."""

    name: str
    unit: str
    direction: Literal["higher", "lower"]


PP: Final = Metric("PP", "tok/s", "higher")
TG: Final = Metric("TG", "tok/s", "higher")
PPL: Final = Metric("PPL", "", "lower")
KLD: Final = Metric("KLD", "nats", "lower")
SIZE: Final = Metric("size", "MB", "lower")


@dataclass(frozen=True, slots=True)
class ChunkScore:
    """The scored tokens of one chunk.

    Raises:
        MeasurementError: no tokens, columns of unequal length, or a figure that is not finite or
            impossible for a probability.
    """

    nll: tuple[float, ...]  #: negative log-likelihood of each token, in nats
    #: ``sum p_base (ln p_base - ln p)`` over the vocabulary for each token, in nats; empty for the
    #: baseline itself, or if only PPL was requested
    kld: tuple[float, ...] = ()
    #: whether both models' likeliest token is the same one; empty where `kld` is
    same_top: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        _check_column("nll", self.nll, length=len(self.nll))
        if self.kld or self.same_top:
            _check_column("kld", self.kld, length=len(self.nll))
            _check_column("same_top", self.same_top, length=len(self.nll))


@dataclass(frozen=True, slots=True)
class PlusMinus:
    """A figure with one standard error that treats tokens as independent, as llama.cpp prints it.

    It is narrower than an `Estimate`'s interval, which treats chunks as independent; verdicts use
    the latter.
    """

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.6f} ± {self.error:.6f}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One model against the baseline, on the same tokens."""

    n_tokens: int  #: scored tokens
    ppl_base: PlusMinus  #: PPL of the baseline
    ppl: PlusMinus  #: PPL of the model
    delta_ppl: Estimate  #: ``ppl / ppl_base - 1``, paired by chunk
    ln_ppl_ratio: PlusMinus  #: ``ln(ppl / ppl_base)`` as `--kl-divergence` prints it
    ppl_ratio: PlusMinus  #: ``ppl / ppl_base`` as `--kl-divergence` prints it
    #: mean KLD from the baseline in nats, judged by chunks; None if it was not requested, like all
    #: below
    kld: Estimate | None = None
    kld_printed: PlusMinus | None = None  #: the same mean as `--kl-divergence` prints it
    #: share of tokens where both models' likeliest is the same, judged by chunks
    same_top: Estimate | None = None

    def __bool__(self) -> NoReturn:
        raise no_truth_value("a comparison of two models", 'assert perplexity.delta < "1%"')


def tokens_per_second(n_tokens: int, elapsed_ns: int) -> float:
    """Rate of `n_tokens` in `elapsed_ns`; MeasurementError without tokens or time."""
    if n_tokens < 1 or elapsed_ns < 1:
        raise MeasurementError(
            f"{n_tokens} tokens in {elapsed_ns} ns is not a rate",
            why="a rate from nothing would pass any limit or none",
            remedy="look at the engine's log for failed decodes; time more tokens",
        )
    return n_tokens * 1e9 / elapsed_ns


def bandwidth_utilisation(tg: Estimate, bytes_per_token: int, bandwidth_gbs: float) -> Estimate:
    """Share of the memory bandwidth that generation at `tg` tok/s used; 1 is all of it."""
    if not (bytes_per_token > 0 and bandwidth_gbs > 0):
        raise ValueError(f"{bytes_per_token} bytes per token at {bandwidth_gbs} GB/s")
    return tg.scaled(bytes_per_token / (bandwidth_gbs * 1e9), SHARE)


#: The speed-up for each percent of PPL that it costs.
EFFICIENCY_UNIT: Final = "x per %"


def efficiency(speed_up: Estimate, loss: Estimate) -> Estimate:
    """A speed-up, as a factor, for each percent of PPL lost.

    The interval uses the worst bounds of both intervals; its confidence is that of both together if
    they share one.
    """
    if loss.point <= 0:
        raise MeasurementError(
            f"no loss of PPL to divide a speed-up by: {loss.text()}",
            why="the score of a quantization that loses nothing is infinite",
            remedy="score more of the corpus, or compare the two rates",
        )
    low = speed_up.low / (100 * loss.high)
    high = speed_up.high / (100 * loss.low) if loss.low > 0 else math.inf
    return Estimate(
        speed_up.point / (100 * loss.point),
        low,
        high,
        min(speed_up.n, loss.n),
        method=f"{speed_up.method} over {loss.method}",
        unit=EFFICIENCY_UNIT,
        counted="pairs or chunks",
        confidence=1 - (1 - speed_up.confidence) - (1 - loss.confidence),
    )


def compare_scores(base: Sequence[ChunkScore], other: Sequence[ChunkScore]) -> Comparison:
    """Compare a model's scores with the baseline's, chunk by chunk, both in the same order.

    A MeasurementError means that there are no chunks, that the variants did not score the same
    tokens, or that only some chunks were compared with the baseline's distribution.
    """
    base_nll, other_nll = [c.nll for c in base], [c.nll for c in other]
    delta = delta_ppl(base_nll, other_nll)
    tokens_base, tokens = _all_tokens(base_nll), _all_tokens(other_nll)
    # sqrt(var_q + var_base - 2 cov), as kl_divergence() has it, is the standard error of the
    # token-wise difference.
    ln_ratio = _mean(tokens - tokens_base)
    n_compared = sum(bool(chunk.kld) for chunk in other)
    if n_compared not in {0, len(other)}:
        raise MeasurementError(
            f"only {n_compared} of {len(other)} chunks have KLD",
            why="a mean over some of the chunks is of another corpus than PPL is",
            remedy="score every chunk the same way",
        )
    compared = Comparison(
        n_tokens=len(tokens),
        ppl_base=_exp(_mean(tokens_base)),
        ppl=_exp(_mean(tokens)),
        delta_ppl=delta,
        ln_ppl_ratio=ln_ratio,
        ppl_ratio=_exp(ln_ratio),
    )
    if not n_compared:
        return compared
    kld = [chunk.kld for chunk in other]
    return replace(
        compared,
        kld=chunk_mean_interval(kld, unit=KLD.unit),
        kld_printed=_mean(_all_tokens(kld)),
        same_top=share_interval([chunk.same_top for chunk in other]),
    )


def _all_tokens(by_chunk: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    return np.concatenate([np.asarray(chunk, dtype=np.float64) for chunk in by_chunk])


def _mean(values: NDArray[np.float64]) -> PlusMinus:
    """Mean and ± as `mean_and_uncertainty` in kl_divergence() does.

    That function prints ± 0 for up to 10 values; here one value alone has no finite error.
    """
    n = len(values)
    error = float(values.std()) / math.sqrt(n - 1) if n > 1 else math.inf
    return PlusMinus(float(values.mean()), error)


def _exp(log: PlusMinus) -> PlusMinus:
    value = math.exp(log.value)
    return PlusMinus(value, value * log.error)


def _check_column(name: str, values: Sequence[float], *, length: int) -> None:
    array = np.asarray(values, dtype=np.float64)
    if len(array) != length or not length:
        problem = f"{len(array)} values of {name} for {length} scored tokens"
    elif not np.isfinite(array).all():
        problem = f"{np.count_nonzero(~np.isfinite(array))} of {length} values of {name} not finite"
    elif name == "nll" and array.min() < -_NLL_ROUNDING:
        problem = f"an NLL of {array.min():g} means a probability above 1"
    else:
        return
    raise MeasurementError(
        f"broken scores: {problem}",
        why="PPL or KLD over them would look like a figure and mean nothing",
        remedy="look at the engine's log; try without GPU offload or with f16 KV types",
    )
