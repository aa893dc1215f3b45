"""What bounds the speed of inference, on the shipped target."""

from __future__ import annotations

import pytest

from pytest_asperf import (
    Hardware,
    HardwareError,
    Throughput,
    assert_bandwidth_utilization,
    assert_monotonic,
)

pytestmark = [pytest.mark.model("asperf-target"), pytest.mark.quant("Q8_0")]

#: What a step of the target with 64 more layers reads.
_WEIGHTS_BYTES = 124_000_000
#: A cache still holds parts of what is four times its size (`hardware/bandwidth.py`).
_FROM_MEMORY = 8


@pytest.mark.finding("bandwidth-ceiling")
@pytest.mark.model("asperf-target+layers=64")
@pytest.mark.quant("F16")
def test_generation_stays_below_the_bandwidth(throughput: Throughput, hardware: Hardware) -> None:
    """A step reads every weight, so TG times bytes per token cannot exceed the bandwidth.

    Only where weights are read from memory: those that a processor's own cache holds are not bound.
    """
    if reason := _cached(hardware):
        pytest.skip(reason)
    reading = throughput("tg16")
    try:
        assert_bandwidth_utilization(reading, at_most=1.0)
    except HardwareError as error:  # an unknown card, or no memory to measure in
        pytest.skip(error.what)


def _cached(hardware: Hardware) -> str:
    """Why a processor's cache may hold much of the weights, or nothing."""
    cache = hardware.machine.cache_bytes
    if hardware.shares_memory or (cache and _FROM_MEMORY * cache <= _WEIGHTS_BYTES):
        return ""
    size = f"is {cache / 1e6:.0f} MB" if cache else "has an unknown size"
    return (
        f"the last-level cache {size}: memory bounds only weights of {_FROM_MEMORY} times that, "
        f"and these have {_WEIGHTS_BYTES / 1e6:.0f} MB"
    )


@pytest.mark.finding("prompt-outpaces-generation")
def test_a_prompt_outpaces_generation(throughput: Throughput) -> None:
    """A batch reads each weight once for many tokens, so PP is faster than TG."""
    assert_monotonic([throughput("tg128"), throughput("pp512")], direction="rising")


@pytest.mark.finding("context-slows-generation")
def test_generation_slows_with_context(throughput: Throughput) -> None:
    """Each token attends to all before it, so TG falls with depth."""
    depths = [throughput(name) for name in ("tg64", "tg64@d512", "tg64@d1536")]
    assert_monotonic(depths, direction="falling")
