"""MLX against llama.cpp, each on its own file of the same weights.

The claims are about Metal, and are measured on the hardware that they were published for: CPUs are
no smaller GPUs (on one, MLX has no fast kernels at all).
"""

from __future__ import annotations

import pytest

from pytest_asperf import Engines, Latency, assert_equivalent, assert_faster, assert_figure

pytestmark = pytest.mark.model("@target")


@pytest.mark.finding("mlx-faster-below-14b")
@pytest.mark.quant("Q4_K_M")
def test_mlx_generates_faster(engines: Engines) -> None:
    """Below 14B MLX generates faster, at 4 bits as published."""
    assert_faster(engines, "mlx", than="llama_cpp", on="tg128")


@pytest.mark.finding("long-prompt-llama-faster")
@pytest.mark.model("@moe")
@pytest.mark.quant("Q4_K_M")
def test_llama_cpp_reads_a_long_prompt_faster(engines: Engines) -> None:
    """At 8K tokens llama.cpp reads the prompt of a mixture of experts faster than MLX."""
    assert_faster(engines, "llama_cpp", than="mlx", on="pp8192")


@pytest.mark.finding("mlx-ties-at-27b")
@pytest.mark.quant("Q4_K_M")
def test_both_generate_equally_fast_at_27b(engines: Engines) -> None:
    """At 27B the rates differ by at most 10 %."""
    assert_equivalent(engines, "mlx", "llama_cpp", "tg128", within="10%")


@pytest.mark.finding("prefill-dominates")
@pytest.mark.model("@moe")
def test_prefill_dominates_a_long_request(latency: Latency) -> None:
    """Of a request with 8K tokens of prompt and 160 of answer, three quarters are prefill."""
    assert_figure(latency("pp8192+tg160").prefill_share, at_least="75%")
