"""The cost of quantization on MLX, on a small model: MLX without a GPU is slow."""

import sys
from importlib.util import find_spec

import pytest

from pytest_asperf import Ladder, Quant, assert_monotonic, assert_pareto_optimal, assert_ppl_delta

pytestmark = [
    pytest.mark.skipif(find_spec("mlx_lm") is None, reason="pytest-asperf[mlx] is not installed"),
    pytest.mark.model("@small", engine="mlx"),
]

#: Without a GPU, MLX needs seconds for a chunk.
_CHUNKS = 24 if sys.platform == "darwin" else 5


@pytest.mark.quant_ladder("8bit", "4bit", chunks=_CHUNKS)
def test_divergence_rises_as_bits_fall(ladder: Ladder) -> None:
    """4 bits diverge further from F16 than 8, and neither is both larger and worse."""
    assert_monotonic(ladder, "kld")
    assert_pareto_optimal(ladder, "8bit", objectives=("size", "kld"))


@pytest.mark.kv_ladder("8bit", chunks=_CHUNKS)
def test_8_bit_cache_is_near_lossless(perplexity: Quant) -> None:
    """A KV cache of 8 bits costs less than 1 % of PPL."""
    assert_ppl_delta(perplexity, below="1%")
