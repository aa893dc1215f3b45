"""The bounds of the speed of inference."""

from importlib.util import find_spec

import pytest
from gguf import GGUFReader

from pytest_asperf import Hardware, HardwareError, Ladder, Model, Throughput, assert_monotonic

pytestmark = pytest.mark.model("@target")

_on_mlx = pytest.mark.skipif(
    find_spec("mlx_lm") is None, reason="pytest-asperf[mlx] is not installed"
)

#: The bytes of a step of the shipped large model: the target with 64 more layers.
_SHIPPED_BYTES = 124_000_000
#: A cache still has parts of data that is four times its size (`hardware/bandwidth.py`).
_FROM_MEMORY = 8
#: Tokens: the published long context is 32 to 64 times 1,024.
_PUBLISHED_DEPTH = 40 * 1024


@pytest.mark.finding("bandwidth-ceiling")
@pytest.mark.model("@large")
def test_generation_stays_below_the_bandwidth(
    model: Model, throughput: Throughput, hardware: Hardware
) -> None:
    """A step reads every weight, so TG times bytes per token cannot exceed the bandwidth.

    Only if weights are read from memory: those in a processor's own cache are not bound.
    """
    if model.name.startswith("asperf-") and (reason := _cached(hardware)):
        pytest.skip(reason)
    try:
        assert throughput("tg16").bandwidth_utilization <= "100%"
    except HardwareError as error:  # an unknown card, or no memory to measure in
        pytest.skip(error.what)


def _cached(hardware: Hardware) -> str:
    """The reason why a processor's cache may have much of the shipped weights, or nothing."""
    cache = hardware.machine.cache_bytes
    if hardware.shares_memory or (cache and _FROM_MEMORY * cache <= _SHIPPED_BYTES):
        return ""
    size = f"is {cache / 1e6:.0f} MB" if cache else "has an unknown size"
    return (
        f"the last-level cache {size}: memory bounds only weights of {_FROM_MEMORY} times that, "
        f"and these have {_SHIPPED_BYTES / 1e6:.0f} MB"
    )


@pytest.mark.finding("prompt-outpaces-generation")
def test_a_prompt_outpaces_generation(throughput: Throughput) -> None:
    """A batch reads each weight once for many tokens, so PP is faster than TG."""
    assert_monotonic([throughput("tg128"), throughput("pp512")], direction="rising")


@pytest.mark.finding("context-slows-generation")
@pytest.mark.model("@target", engine="llama_cpp")
def test_generation_slows_with_context(model: Model, throughput: Throughput) -> None:
    """Each token attends to all before it, so TG falls up to 40K tokens, or the model's context."""
    file = GGUFReader(model.path)
    architecture = file.fields["general.architecture"].contents()
    longest = int(file.fields[f"{architecture}.context_length"].contents())
    deepest = min(_PUBLISHED_DEPTH, longest - 64)
    depths = [throughput(name) for name in ("tg64", f"tg64@d{deepest // 4}", f"tg64@d{deepest}")]
    assert_monotonic(depths, direction="falling")


@pytest.mark.finding("tg-rises-as-bits-fall")
@pytest.mark.quant_ladder(
    "F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K", baseline="F32"
)
def test_generation_speeds_up_as_bits_fall(ladder: Ladder) -> None:
    """TG rises from F16 to each smaller quantization in turn."""
    assert_monotonic(ladder, "tg128")


@pytest.mark.finding("pp-u-shape")
@pytest.mark.quant_ladder("Q5_K_M", "Q2_K")
def test_a_prompt_is_read_slowest_in_the_middle(ladder: Ladder) -> None:
    """F16 and Q2_K read a prompt faster than Q5_K_M."""
    for quant in ("F16", "Q2_K"):
        assert ladder[quant].throughput("pp512") > ladder["Q5_K_M"].throughput("pp512")


@pytest.mark.finding("q6-faster-than-q5")
@pytest.mark.quant_ladder("Q6_K", "Q5_K_M")
def test_q6_k_generates_faster_than_q5_k_m(ladder: Ladder) -> None:
    """Fewer bits to unpack outweigh fewer bytes to read."""
    assert ladder["Q6_K"].throughput("tg128") > ladder["Q5_K_M"].throughput("tg128")


# Nothing is scored; F32 is a quantization that none of them has.
@pytest.mark.finding("tg-falls-with-size")
@pytest.mark.model("@large")
@pytest.mark.quant_ladder("@small", "@medium", "@large", baseline="F32")
def test_generation_slows_with_size(ladder: Ladder) -> None:
    """TG falls from the small model to the medium and the large one."""
    assert_monotonic(ladder, "tg128", direction="falling")


@pytest.mark.finding("moe-faster-than-dense")
@pytest.mark.quant_ladder("@target", "@moe", baseline="F32")
def test_a_mixture_of_experts_outpaces_a_dense_model(ladder: Ladder) -> None:
    """A mixture with few active parameters generates faster than a smaller dense model."""
    assert ladder["@moe"].throughput("tg128") > ladder["@target"].throughput("tg128")


@pytest.mark.finding("utilisation-60-80")
def test_generation_uses_60_to_80_percent(throughput: Throughput) -> None:
    """TG uses 60 to 80 % of the bandwidth."""
    assert "60%" <= throughput("tg128").bandwidth_utilization <= "80%"


@pytest.mark.finding("ceiling-table")
def test_generation_stays_below_the_table(throughput: Throughput) -> None:
    """TG is at most the bandwidth over the bytes that a token reads, as the table has it."""
    assert throughput("tg128").bandwidth_utilization <= "100%"


@_on_mlx
@pytest.mark.finding("fp16-0.8b-bandwidth-bound")
@pytest.mark.model("@small", engine="mlx")
@pytest.mark.quant("F16")
def test_a_small_model_is_bound_by_the_bandwidth(throughput: Throughput) -> None:
    """A small model in 16 bits uses most of the bandwidth under MLX."""
    assert throughput("tg128").bandwidth_utilization >= "55%"


@_on_mlx
@pytest.mark.finding("tg-steady-over-prompts")
@pytest.mark.model("@target", engine="mlx")
def test_generation_is_steady_over_short_prompts(throughput: Throughput) -> None:
    """TG after 410 tokens differs by at most 10 % from that after 6."""
    assert 0.9 <= throughput("tg128@d410") / throughput("tg128@d6") <= 1.1
