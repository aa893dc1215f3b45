"""What bounds the speed of inference, on the shipped target."""

from __future__ import annotations

import pytest

from pytest_asperf import Throughput, assert_bandwidth_utilization, assert_monotonic

pytestmark = [pytest.mark.model("asperf-target"), pytest.mark.quant("Q8_0")]


@pytest.mark.finding("bandwidth-ceiling")
def test_generation_stays_below_the_bandwidth(throughput: Throughput) -> None:
    """A step reads every weight, so TG times bytes per token cannot exceed the bandwidth."""
    assert_bandwidth_utilization(throughput("tg128"), at_most=1.0)


@pytest.mark.finding("prompt-outpaces-generation")
def test_a_prompt_outpaces_generation(throughput: Throughput) -> None:
    """A batch reads each weight once for many tokens, so PP is faster than TG."""
    assert_monotonic([throughput("tg128"), throughput("pp512")], direction="rising")


@pytest.mark.finding("context-slows-generation")
def test_generation_slows_with_context(throughput: Throughput) -> None:
    """Each token attends to all before it, so TG falls with depth."""
    depths = [throughput(name) for name in ("tg64", "tg64@d512", "tg64@d1536")]
    assert_monotonic(depths, direction="falling")
