"""MLX against llama.cpp, each on its own file of the same weights.

The claims are about Metal, and are measured on the hardware that they were published for: CPUs are
no smaller GPUs (on one, MLX has no fast kernels at all).
"""

import pytest

from pytest_asperf import Latency, Throughput

pytestmark = pytest.mark.model("@target")


@pytest.mark.finding("mlx-faster-below-14b")
@pytest.mark.quant("Q4_K_M")
def test_mlx_generates_faster(throughput: Throughput) -> None:
    """Below 14B MLX generates faster, at 4 bits as published."""
    assert throughput("tg128", engine="mlx") > throughput("tg128", engine="llama_cpp")


@pytest.mark.finding("long-prompt-llama-faster")
@pytest.mark.model("@moe")
@pytest.mark.quant("Q4_K_M")
def test_llama_cpp_reads_a_long_prompt_faster(throughput: Throughput) -> None:
    """At 8K tokens llama.cpp reads the prompt of a mixture of experts faster than MLX."""
    assert throughput("pp8192", engine="llama_cpp") > throughput("pp8192", engine="mlx")


@pytest.mark.finding("mlx-ties-at-27b")
@pytest.mark.quant("Q4_K_M")
def test_both_generate_equally_fast_at_27b(throughput: Throughput) -> None:
    """At 27B the rates differ by at most 10 %."""
    mlx, llama_cpp = (throughput("tg128", engine=engine) for engine in ("mlx", "llama_cpp"))
    assert 1 / 1.1 <= mlx / llama_cpp <= 1.1


@pytest.mark.finding("prefill-dominates")
@pytest.mark.model("@moe")
def test_prefill_dominates_a_long_request(latency: Latency) -> None:
    """Three quarters of a request with 8K tokens of prompt and 160 of answer are prefill."""
    assert latency("pp8192+tg160").prefill_share >= "75%"
