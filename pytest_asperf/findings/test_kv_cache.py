"""What a quantised KV cache costs, and saves, on the shipped target."""

from __future__ import annotations

import pytest

from pytest_asperf import (
    Hardware,
    Ladder,
    Memory,
    Perplexity,
    assert_fits,
    assert_monotonic,
    assert_ppl_delta,
)

pytestmark = pytest.mark.model("asperf-target:F16", engine="llama_cpp")


@pytest.mark.finding("kv-q8-below-1-percent")
@pytest.mark.kv_ladder("q8_0", chunks=8)
def test_q8_0_cache_is_near_lossless(perplexity: Perplexity) -> None:
    """A q8_0 cache costs less than 1 % of PPL."""
    assert_ppl_delta(perplexity, below="1%")


@pytest.mark.kv_ladder("q8_0", "q5_0", "q4_0", chunks=8)
def test_divergence_rises_as_cache_bits_fall(ladder: Ladder) -> None:
    """Each type of cache diverges further from F16 than the one above it."""
    assert_monotonic(ladder, "kld")


@pytest.mark.model("asperf-draft:F16", engine="llama_cpp")
@pytest.mark.kv_ladder("q4_0")
def test_q4_0_cache_slows_generation_at_depth(ladder: Ladder) -> None:
    """At 1,500 tokens of context TG with a q4_0 cache is below that with F16.

    Of the draft, whose weights and cache of 5 MB stay in a processor's own cache. Where they are
    read from memory, and others read there too, fewer bytes weigh more than what unpacking costs.
    """
    readings = ladder.readings("tg64@d1500", with_baseline=True)
    assert_monotonic(list(readings.values()), direction="falling")


def test_full_context_fits(memory: Memory, hardware: Hardware) -> None:
    """Weights, the cache of the whole context and compute buffers fit in this machine's memory."""
    assert_fits(memory(2048), hardware)
