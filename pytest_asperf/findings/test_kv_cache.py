"""The cost and the saving of a quantized KV cache."""

import pytest

from pytest_asperf import (
    Hardware,
    Ladder,
    Memory,
    Quant,
    assert_fits,
    assert_monotonic,
    assert_ppl_delta,
)

pytestmark = pytest.mark.model("@target", engine="llama_cpp")

#: Bits per number: a block of 32 has a scale of 16 bits.
_BITS = {"q8_0": 8.5, "q4_0": 4.5}


@pytest.mark.finding("kv-q8-below-1-percent")
@pytest.mark.kv_ladder("q8_0", chunks=8)
def test_q8_0_cache_is_near_lossless(perplexity: Quant) -> None:
    """A q8_0 cache costs less than 1 % of PPL."""
    assert_ppl_delta(perplexity, below="1%")


@pytest.mark.kv_ladder("q8_0", "q5_0", "q4_0", chunks=8)
def test_divergence_rises_as_cache_bits_fall(ladder: Ladder) -> None:
    """Each type of cache diverges further from F16 than the one above it."""
    assert_monotonic(ladder, "kld")


@pytest.mark.finding("kv-q4-slows")
@pytest.mark.kv_ladder("q4_0")
def test_q4_0_cache_slows_generation_at_64k(ladder: Ladder) -> None:
    """At 64K of context TG with a q4_0 cache is at most 8 % of that with F16."""
    q4_0, f16 = (ladder[kv].throughput("tg64@d65536") for kv in ("q4_0", "f16"))
    assert q4_0 / f16 <= 0.08


# No other claim about speed: on one processor, TG at depth with a q4_0 cache was half of that with
# F16 or more than twice as high, by the flags that the engine was compiled with.
@pytest.mark.kv_ladder(*_BITS)
def test_cache_takes_the_bits_of_its_type(memory: Memory, kv_type: str) -> None:
    """The memory of a quantized cache is smaller by its share of 16 bits."""
    share = _BITS[kv_type] / 16
    assert 0.98 * share <= memory(2048).kv / memory.with_f16_cache(2048).kv <= 1.02 * share


def test_full_context_fits(memory: Memory, hardware: Hardware) -> None:
    """Weights, the cache of the whole context and compute buffers fit in this machine's memory."""
    assert_fits(memory(2048), hardware)
