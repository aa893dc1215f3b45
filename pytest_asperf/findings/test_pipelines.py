"""Prefill and decoding by different units: five pipelines, each a model that the user names.

None is shipped: a pipeline is a model with `phases` (docs/pipelines.md). `@mlx_alone` may be an MLX
model as well. Where one is missing, the test is skipped and names its role.
"""

from __future__ import annotations

import pytest

from pytest_asperf import Latency, Pipelines, assert_figure, assert_latency, assert_ratio

MLX, HYBRID = "@mlx_alone", "@coreml_hybrid"
ANE, ANE_HYBRID, ANE_BATCH = "@ane_lm", "@ane_hybrid", "@ane_batch"
#: Equal within 10 %, either way.
_LOW, _HIGH = 1 / 1.1, 1.1


@pytest.mark.finding("ttft-gpu-fastest")
@pytest.mark.model(HYBRID)
def test_gpu_answers_sooner(pipelines: Pipelines) -> None:
    """At 133 tokens the hybrid takes longer than the GPU alone."""
    assert_ratio(pipelines, HYBRID, MLX, "ttft133", at_least=1.0)


@pytest.mark.finding("ttft-ane-slowest")
@pytest.mark.model(ANE)
def test_ane_alone_reads_ten_times_slower(pipelines: Pipelines) -> None:
    """At 133 tokens the ANE takes ten times as long as the GPU."""
    assert_ratio(pipelines, ANE, MLX, "ttft133", at_least=10.0)


@pytest.mark.finding("coreml-equals-gpu-long")
@pytest.mark.model(HYBRID)
def test_coreml_is_as_fast_at_410_tokens(pipelines: Pipelines) -> None:
    """At 410 tokens TTFT is the same within 10 %."""
    assert_ratio(pipelines, HYBRID, MLX, "ttft410", at_least=_LOW, at_most=_HIGH)


@pytest.mark.finding("crossover-410")
@pytest.mark.model(HYBRID)
def test_coreml_is_no_slower_from_410_tokens(pipelines: Pipelines) -> None:
    """The hybrid is the faster one from 410 tokens on at the latest."""
    assert_figure(pipelines.crossover(HYBRID, MLX, over="ttft64..ttft1024"), at_most=410)


@pytest.mark.finding("hybrid-2b-equals-gpu")
@pytest.mark.model(HYBRID)
def test_hybrid_of_2b_equals_the_gpu(pipelines: Pipelines) -> None:
    """With a 2B, TTFT is the same within 10 %."""
    assert_ratio(pipelines, HYBRID, MLX, "ttft410", at_least=_LOW, at_most=_HIGH)


@pytest.mark.finding("hybrid-9b-ttft")
@pytest.mark.model(HYBRID)
def test_hybrid_of_9b_answers_later(pipelines: Pipelines) -> None:
    """With a 9B the hybrid takes longer at 410 tokens too, where it is nearest."""
    assert_ratio(pipelines, HYBRID, MLX, "ttft410", at_least=1.0)


@pytest.mark.finding("hybrid-9b-tg")
@pytest.mark.model(HYBRID)
def test_hybrid_of_9b_generates_slower(pipelines: Pipelines) -> None:
    """With a 9B the hybrid's TG is lower."""
    assert_ratio(pipelines, HYBRID, MLX, "tg200", at_most=1.0)


@pytest.mark.finding("decode-equal-across-pipelines")
@pytest.mark.model(HYBRID)
def test_whoever_reads_the_prompt(pipelines: Pipelines) -> None:
    """What generates on the GPU has MLX's TG within 10 %."""
    for hybrid in (HYBRID, ANE_HYBRID):
        assert_ratio(pipelines, hybrid, MLX, "tg200", at_least=_LOW, at_most=_HIGH)


@pytest.mark.finding("ane-decode-third")
@pytest.mark.model(ANE)
def test_ane_alone_generates_at_less_than_half(pipelines: Pipelines) -> None:
    """TG on the ANE is less than half of the GPU's."""
    assert_ratio(pipelines, ANE, MLX, "tg200", at_most=0.5)


@pytest.mark.finding("ane-dispatch-floor")
@pytest.mark.model(ANE)
def test_each_token_costs_a_dispatch(latency: Latency) -> None:
    """A prompt of 410 tokens takes 35 ms for each of them, and more."""
    assert_latency(latency("ttft410"), at_least=35.0 * 410)


@pytest.mark.finding("ane-batch-speedup")
@pytest.mark.model(ANE_BATCH)
def test_batches_are_ten_times_as_fast(pipelines: Pipelines) -> None:
    """With 32 tokens a dispatch, the same prompt is read ten times as fast."""
    assert_ratio(pipelines, ANE_BATCH, ANE, "pp410", at_least=10.0)


@pytest.mark.finding("ane-batch-speedup-2b")
@pytest.mark.model(ANE_BATCH)
def test_batches_of_2b_are_five_times_as_fast(pipelines: Pipelines) -> None:
    """The same with a 2B, five times."""
    assert_ratio(pipelines, ANE_BATCH, ANE, "pp410", at_least=5.0)


@pytest.mark.finding("ane-batch-below-gpu")
@pytest.mark.model(ANE_BATCH)
def test_gpu_reads_faster_than_batches(pipelines: Pipelines) -> None:
    """The GPU's rate for 74 tokens is higher."""
    assert_ratio(pipelines, MLX, ANE_BATCH, "pp74", at_least=1.0)
