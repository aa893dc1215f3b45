import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.metrics import (
    ChunkScore,
    bandwidth_utilisation,
    compare_scores,
    tokens_per_second,
)
from pytest_asperf.analysis.stats.estimate import SHARE, Estimate
from pytest_asperf.errors import MeasurementError


def scored(seed: int, n_chunks: int = 12) -> tuple[list[ChunkScore], list[ChunkScore]]:
    """Return a baseline's chunks and a worse model's, of unequal lengths."""
    rng = np.random.default_rng(seed)
    base, other = [], []
    for n in rng.integers(60, 128, size=n_chunks):
        nll = rng.exponential(2.0, size=n)
        worse = np.abs(nll + rng.normal(0.02, 0.1, size=n))
        base.append(ChunkScore(tuple(nll.tolist())))
        other.append(
            ChunkScore(
                tuple(worse.tolist()),
                kld=tuple(rng.gamma(0.5, 0.02, size=n).tolist()),
                same_top=tuple((rng.random(n) < 0.95).tolist()),
            )
        )
    return base, other


def column(chunks: list[ChunkScore], name: str) -> list[float]:
    """Return one column over all tokens."""
    return [float(value) for chunk in chunks for value in getattr(chunk, name)]


def mean_and_uncertainty(total: float, squares: float, count: int) -> tuple[float, float]:
    """Return the result of the lambda of that name in llama.cpp's kl_divergence()."""
    mean = total / count
    variance = squares / count - mean * mean
    return mean, math.sqrt(variance / (count - 1)) if variance > 0 and count > 10 else 0.0


@pytest.mark.parametrize("seed", range(3))
def test_ln_ratio_error_is_that_of_kl_divergence(seed: int) -> None:
    """The ± of ln(PPL ratio) equals sqrt(var_q + var_base - 2 cov) from accumulated sums."""
    base, other = scored(seed)
    b, q = column(base, "nll"), column(other, "nll")
    n = len(b)
    mean_q, error_q = mean_and_uncertainty(sum(q), sum(x * x for x in q), n)
    mean_b, error_b = mean_and_uncertainty(sum(b), sum(x * x for x in b), n)
    products = sum(x * y for x, y in zip(q, b, strict=True))
    covariance = (products / n - (sum(q) / n) * (sum(b) / n)) / (n - 1)
    error = math.sqrt(error_q**2 + error_b**2 - 2 * covariance)

    compared = compare_scores(base, other)

    assert compared.n_tokens == n
    assert compared.ln_ppl_ratio.value == pytest.approx(mean_q - mean_b)
    assert compared.ln_ppl_ratio.error == pytest.approx(error)
    assert compared.ppl_ratio.error == pytest.approx(math.exp(mean_q - mean_b) * error)
    assert (compared.ppl.value, compared.ppl.error) == pytest.approx(
        (math.exp(mean_q), math.exp(mean_q) * error_q)
    )
    assert (compared.ppl_base.value, compared.ppl_base.error) == pytest.approx(
        (math.exp(mean_b), math.exp(mean_b) * error_b)
    )


def test_distribution_figures_are_those_of_kl_divergence() -> None:
    """KLD with its ±, and the share of same top tokens, equal the tool's accumulated sums."""
    base, other = scored(5)
    kld, top = column(other, "kld"), column(other, "same_top")
    n = len(kld)
    kld_mean, kld_error = mean_and_uncertainty(sum(kld), sum(x * x for x in kld), n)
    share = sum(top) / n

    compared = compare_scores(base, other)

    assert compared.kld is not None
    assert compared.same_top is not None
    assert compared.kld_printed is not None
    assert (compared.kld_printed.value, compared.kld_printed.error) == pytest.approx(
        (kld_mean, kld_error)
    )
    assert compared.kld.point == pytest.approx(kld_mean)
    assert compared.same_top.point == pytest.approx(share)


def test_ppl_summary_is_the_final_estimate() -> None:
    """PPL and its ± equal the arithmetic behind llama-perplexity's "Final estimate"."""
    base, _ = scored(9)
    nll = column(base, "nll")
    n = len(nll)
    mean = sum(nll) / n
    error = math.sqrt((sum(x * x for x in nll) / n - mean * mean) / (n - 1))
    summary = compare_scores(base, base)
    assert (summary.ppl.value, summary.ppl.error) == pytest.approx(
        (math.exp(mean), error * math.exp(mean))
    )
    assert summary.n_tokens == n


def test_delta_is_the_ratio_of_the_two_perplexities() -> None:
    """ΔPPL, the PPL ratio and both PPLs of one comparison agree."""
    compared = compare_scores(*scored(2))
    ratio = compared.ppl.value / compared.ppl_base.value
    assert compared.delta_ppl.point == pytest.approx(ratio - 1)
    assert compared.ppl_ratio.value == pytest.approx(ratio)


def test_a_model_against_itself_differs_in_nothing() -> None:
    """Equal scores in both variants give 0 with no width, and no division by zero."""
    base, _ = scored(3)
    compared = compare_scores(base, base)
    assert (compared.delta_ppl.low, compared.delta_ppl.high) == (0, 0)


def test_scores_without_distribution_give_ppl_only() -> None:
    """If only NLL was requested there is no KLD, rather than one of zero."""
    base, other = scored(4)
    compared = compare_scores(base, [ChunkScore(c.nll) for c in other])
    assert compared.kld is None
    assert compared.same_top is None
    assert compared.delta_ppl.n == 12


def test_half_compared_chunks_are_refused() -> None:
    """KLD over some of the chunks would be of another corpus than PPL."""
    base, other = scored(4)
    other[3] = ChunkScore(other[3].nll)
    with pytest.raises(MeasurementError, match="only 11 of 12 chunks"):
        compare_scores(base, other)


def test_arms_of_unequal_work_are_refused() -> None:
    """A missing chunk in one variant is an error, not a shorter comparison."""
    base, other = scored(4)
    with pytest.raises(MeasurementError, match="different numbers"):
        compare_scores(base, other[:-1])


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"nll": ()}, "0 values of nll"),
        ({"nll": (1.0, math.nan)}, "1 of 2 values of nll not finite"),
        ({"nll": (math.inf,)}, "not finite"),
        ({"nll": (-0.5,)}, "probability above 1"),
        ({"nll": (1.0, 2.0), "kld": (0.1,)}, "1 values of kld for 2 scored tokens"),
        ({"nll": (1.0,), "kld": (math.nan,), "same_top": (True,)}, "kld not finite"),
        ({"nll": (1.0,), "same_top": (True,)}, "0 values of kld for 1 scored tokens"),
    ],
)
def test_broken_scores_are_refused(columns: dict[str, Any], problem: str) -> None:
    """Scores that no probability distribution gives never become a figure."""
    with pytest.raises(MeasurementError, match=problem):
        ChunkScore(**columns)


def test_nothing_scored_is_refused() -> None:
    """PPL over no chunks or no tokens is an error."""
    with pytest.raises(MeasurementError, match="no chunks"):
        compare_scores([], [])
    with pytest.raises(MeasurementError, match="0 values"):
        ChunkScore(())


def test_rounding_of_a_certain_token_is_accepted() -> None:
    """A float32 softmax may put a certain token's NLL a hair below zero."""
    assert ChunkScore((-1e-7,)).nll == (-1e-7,)


@given(st.integers(1, 10**6), st.integers(1, 10**13))
def test_rate_counts_tokens_and_time(n_tokens: int, elapsed_ns: int) -> None:
    """A rate times its duration gives back the tokens."""
    assert tokens_per_second(n_tokens, elapsed_ns) * elapsed_ns / 1e9 == pytest.approx(n_tokens)


@pytest.mark.parametrize(("n_tokens", "elapsed_ns"), [(0, 10), (10, 0), (-1, 10), (10, -1)])
def test_rates_from_nothing_are_refused(n_tokens: int, elapsed_ns: int) -> None:
    """No tokens or no time is an error, not a rate of zero or infinity."""
    with pytest.raises(MeasurementError, match="not a rate"):
        tokens_per_second(n_tokens, elapsed_ns)


def test_bandwidth_utilisation_is_a_share() -> None:
    """50 tok/s reading 8 GB each use half of 800 GB/s."""
    tg = Estimate(50, 49, 52, 10, method="by hand", unit="tok/s")
    share = bandwidth_utilisation(tg, 8_000_000_000, 800)
    assert (share.low, share.point, share.high) == pytest.approx((0.49, 0.5, 0.52))
    assert share.unit == SHARE
    with pytest.raises(ValueError, match="GB/s"):
        bandwidth_utilisation(tg, 8_000_000_000, 0)
