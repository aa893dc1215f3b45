"""The cost of quantization for the target; the model card has the shipped one's sweep."""

import pytest

from pytest_asperf import Ladder, Quant, assert_monotonic, assert_pareto_optimal, assert_ppl_delta

pytestmark = pytest.mark.model("@target")

_LADDER = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")


@pytest.mark.finding("q8-near-lossless")
@pytest.mark.quant("Q8_0")
def test_q8_0_is_near_lossless(perplexity: Quant) -> None:
    """Q8_0 costs less than 1 % of PPL."""
    assert_ppl_delta(perplexity, below="1%")


@pytest.mark.finding("q6-below-1-percent")
@pytest.mark.quant("Q6_K")
def test_q6_k_is_near_lossless(perplexity: Quant) -> None:
    """Q6_K costs less than 1 % of PPL."""
    assert_ppl_delta(perplexity, below="1%")


@pytest.mark.finding("q8-q6-llama")
@pytest.mark.quant_ladder("Q8_0", "Q6_K")
def test_q8_0_and_q6_k_of_an_8b_are_near_lossless(ladder: Ladder) -> None:
    """Q8_0 and Q6_K cost a model of 8B less than 1 % of PPL."""
    for quant in ladder.quants:
        assert_ppl_delta(ladder[quant], below="1%")


@pytest.mark.finding("q4-below-5-percent")
@pytest.mark.quant("Q4_K_M")
def test_q4_k_m_costs_little(perplexity: Quant) -> None:
    """Q4_K_M costs less than 5 % of PPL."""
    assert_ppl_delta(perplexity, below="5%")


@pytest.mark.finding("q3-above-10-percent")
@pytest.mark.quant("Q3_K_M")
def test_q3_k_m_costs_a_4b_much(perplexity: Quant) -> None:
    """Q3_K_M costs a model of 4B more than 10 % of PPL."""
    assert_ppl_delta(perplexity, above="10%")


@pytest.mark.finding("q4-elbow")
@pytest.mark.quant_ladder("Q4_K_M", "Q3_K_M")
def test_the_loss_doubles_below_q4_k_m(ladder: Ladder) -> None:
    """Down to Q4_K_M every quantization costs less than half of Q3_K_M's cost."""
    assert ladder["Q4_K_M"].delta / ladder["Q3_K_M"].delta < 1 / 2


@pytest.mark.finding("below-4-bits")
@pytest.mark.quant("Q2_K")
def test_below_four_bits_is_unusable(perplexity: Quant) -> None:
    """Q2_K costs more than half of PPL again."""
    assert_ppl_delta(perplexity, above="50%")


@pytest.mark.quant_ladder(*_LADDER)
def test_divergence_rises_as_bits_fall(ladder: Ladder) -> None:
    """Each quantization diverges further from F16 than the one above it."""
    assert_monotonic(ladder, "kld")


@pytest.mark.finding("ppl-rises-as-bits-fall")
@pytest.mark.quant_ladder(*_LADDER)
def test_perplexity_rises_as_bits_fall(ladder: Ladder) -> None:
    """Each quantization has a higher PPL than the one above it."""
    assert_monotonic(ladder, "ppl")


@pytest.mark.finding("q6-pareto")
@pytest.mark.quant_ladder(*_LADDER)
def test_q6_k_is_on_the_pareto_front(ladder: Ladder) -> None:
    """No quantization is both smaller and better than Q6_K."""
    assert_pareto_optimal(ladder, "Q6_K", objectives=("size", "ppl"))


@pytest.mark.finding("q8-most-efficient")
@pytest.mark.quant_ladder(*_LADDER)
def test_q8_0_has_most_speed_for_its_loss(ladder: Ladder) -> None:
    """Q8_0's part of a lower quantization's loss is smaller than its part of that one's TG.

    So it has more tok/s for a point of PPL, and nothing is divided by its own loss, which may be 0.
    """
    q8_0, *lower_ones = (ladder[quant] for quant in _LADDER)
    for lower in lower_ones:
        assert q8_0.delta / lower.delta < q8_0.throughput("tg128") / lower.throughput("tg128")


@pytest.mark.finding("k-quant-loss")
@pytest.mark.quant_ladder("Q4_K_M", "Q4_0")
def test_q4_0_loses_three_times_as_much(ladder: Ladder) -> None:
    """Q4_K_M costs less than a third of Q4_0's cost."""
    assert ladder["Q4_K_M"].delta / ladder["Q4_0"].delta < 1 / 3


@pytest.mark.finding("k-quant-same-size")
@pytest.mark.quant_ladder("Q4_K_M", "Q4_0")
def test_q4_k_m_has_the_size_of_q4_0(ladder: Ladder) -> None:
    """The two files differ by at most 2 %."""
    assert 1 / 1.02 <= ladder["Q4_K_M"].size / ladder["Q4_0"].size <= 1.02
