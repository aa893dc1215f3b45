"""Prefill and decoding by different units: five pipelines, each a model that the user names.

None is shipped: a pipeline is a model with `phases` (docs/pipelines.md). `@mlx_alone` may be an MLX
model as well. If one is missing, the test is skipped and names its model slot.
"""

import pytest

from pytest_asperf import Latency, Throughput

MLX, HYBRID = "@mlx_alone", "@coreml_hybrid"
ANE, ANE_HYBRID, ANE_BATCH = "@ane_lm", "@ane_hybrid", "@ane_batch"
#: Tokens of the published prompts: short, medium and long.
SHORT, MEDIUM, LONG = 6, 133, 410
#: Equal within 10 %, either way.
_LOW, _HIGH = 1 / 1.1, 1.1


@pytest.mark.finding("ttft-gpu-fastest")
@pytest.mark.model(HYBRID)
def test_gpu_answers_sooner(latency: Latency) -> None:
    """At 6 and at 133 tokens the hybrid is slower than the GPU alone."""
    for n in (SHORT, MEDIUM):
        assert latency(f"ttft{n}") > latency(f"ttft{n}", model=MLX)


@pytest.mark.finding("ttft-ane-slowest")
@pytest.mark.model(ANE)
def test_ane_alone_reads_ten_times_slower(latency: Latency) -> None:
    """At 133 and at 410 tokens the ANE is ten times as slow as the GPU."""
    for n in (MEDIUM, LONG):
        assert latency(f"ttft{n}") / latency(f"ttft{n}", model=MLX) >= 10.0


@pytest.mark.finding("coreml-equals-gpu-long")
@pytest.mark.model(HYBRID)
def test_coreml_is_as_fast_at_410_tokens(latency: Latency) -> None:
    """At 410 tokens TTFT is the same within 10 %."""
    assert _LOW <= latency("ttft410") / latency("ttft410", model=MLX) <= _HIGH


@pytest.mark.finding("crossover-410")
@pytest.mark.model(HYBRID)
def test_coreml_is_no_slower_from_410_tokens(latency: Latency) -> None:
    """The hybrid is the faster one from 410 tokens on at the latest."""
    assert latency.crossover(HYBRID, MLX, over="ttft64..ttft1024") <= 410


@pytest.mark.finding("hybrid-2b-equals-gpu")
@pytest.mark.model(HYBRID)
def test_hybrid_of_2b_equals_the_gpu(latency: Latency) -> None:
    """With a 2B, TTFT is equal within 10 % at each published length."""
    for n in (SHORT, MEDIUM, LONG):
        assert _LOW <= latency(f"ttft{n}") / latency(f"ttft{n}", model=MLX) <= _HIGH


@pytest.mark.finding("hybrid-9b-ttft")
@pytest.mark.model(HYBRID)
def test_hybrid_of_9b_answers_later(latency: Latency) -> None:
    """With a 9B the hybrid is slower at each published length."""
    for n in (SHORT, MEDIUM, LONG):
        assert latency(f"ttft{n}") > latency(f"ttft{n}", model=MLX)


@pytest.mark.finding("hybrid-9b-tg")
@pytest.mark.model(HYBRID)
def test_hybrid_of_9b_generates_slower(throughput: Throughput) -> None:
    """With a 9B the hybrid's TG is lower."""
    assert throughput("tg200") < throughput("tg200", model=MLX)


@pytest.mark.finding("decode-equal-across-pipelines")
@pytest.mark.model(HYBRID)
def test_whoever_reads_the_prompt(throughput: Throughput) -> None:
    """A pipeline that generates on the GPU has MLX's TG within 10 %."""
    for hybrid in (HYBRID, ANE_HYBRID):
        assert _LOW <= throughput("tg200", model=hybrid) / throughput("tg200", model=MLX) <= _HIGH


@pytest.mark.finding("ane-decode-third")
@pytest.mark.model(ANE)
def test_ane_alone_generates_at_less_than_half(throughput: Throughput) -> None:
    """TG on the ANE is less than half of the GPU's."""
    assert throughput("tg200") / throughput("tg200", model=MLX) <= 0.5


@pytest.mark.finding("ane-dispatch-floor")
@pytest.mark.model(ANE)
def test_each_token_costs_a_dispatch(latency: Latency) -> None:
    """A prompt needs 35 ms or more for each of its tokens, at 133 and at 410 tokens."""
    for n in (MEDIUM, LONG):
        assert latency(f"ttft{n}") >= 35.0 * n


@pytest.mark.finding("ane-batch-speedup")
@pytest.mark.model(ANE_BATCH)
def test_batches_are_ten_times_as_fast(throughput: Throughput) -> None:
    """With 32 tokens a dispatch, the same prompt is read ten times as fast."""
    assert throughput("pp410") / throughput("pp410", model=ANE) >= 10.0


@pytest.mark.finding("ane-batch-speedup-2b")
@pytest.mark.model(ANE_BATCH)
def test_batches_of_2b_are_five_times_as_fast(throughput: Throughput) -> None:
    """The same with a 2B, five times."""
    assert throughput("pp410") / throughput("pp410", model=ANE) >= 5.0


@pytest.mark.finding("ane-batch-below-gpu")
@pytest.mark.model(ANE_BATCH)
def test_gpu_reads_faster_than_batches(throughput: Throughput) -> None:
    """The GPU's rate for 74 tokens is higher."""
    assert throughput("pp74", model=MLX) > throughput("pp74")
