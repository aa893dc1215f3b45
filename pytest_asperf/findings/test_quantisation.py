"""What quantisation costs, on the shipped target; its ladder is in the model card."""

from __future__ import annotations

import pytest

from pytest_asperf import (
    Ladder,
    Perplexity,
    assert_monotonic,
    assert_pareto_optimal,
    assert_ppl_delta,
)

pytestmark = pytest.mark.model("asperf-target")

_LADDER = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")


@pytest.mark.finding("q8-near-lossless")
@pytest.mark.quant("Q8_0")
def test_q8_0_is_near_lossless(perplexity: Perplexity) -> None:
    """Q8_0 costs less than 1 % of PPL."""
    assert_ppl_delta(perplexity, below="1%")


@pytest.mark.finding("q6-below-1-percent")
@pytest.mark.quant("Q6_K")
def test_q6_k_is_near_lossless(perplexity: Perplexity) -> None:
    """Q6_K costs less than 1 % of PPL."""
    assert_ppl_delta(perplexity, below="1%")


@pytest.mark.finding("below-4-bits")
@pytest.mark.quant("Q2_K")
def test_below_four_bits_is_unusable(perplexity: Perplexity) -> None:
    """Q2_K costs more than half of PPL again."""
    assert_ppl_delta(perplexity, above="50%")


@pytest.mark.quant_ladder(*_LADDER)
def test_divergence_rises_as_bits_fall(ladder: Ladder) -> None:
    """Each level diverges further from F16 than the one above it."""
    assert_monotonic(ladder, "kld")


@pytest.mark.finding("ppl-rises-as-bits-fall")
@pytest.mark.quant_ladder(*_LADDER)
def test_perplexity_rises_as_bits_fall(ladder: Ladder) -> None:
    """Each level has a higher PPL than the one above it."""
    assert_monotonic(ladder, "ppl")


@pytest.mark.finding("q6-pareto")
@pytest.mark.quant_ladder(*_LADDER)
def test_q6_k_is_on_the_pareto_front(ladder: Ladder) -> None:
    """No level is both smaller and better than Q6_K."""
    assert_pareto_optimal(ladder, "Q6_K", objectives=("size", "ppl"))
