"""MLX against llama.cpp on the shipped target, each on its own file of the same weights.

The claim is about Metal, and is measured on the hardware that it was published for: CPUs are no
smaller GPUs (on one, MLX has no fast kernels at all).
"""

from __future__ import annotations

import pytest

from pytest_asperf import Engines, assert_faster

pytestmark = pytest.mark.model("asperf-target")


@pytest.mark.finding("mlx-faster-below-14b")
@pytest.mark.quant("Q4_K_M")
def test_mlx_generates_faster(engines: Engines) -> None:
    """Below 14B MLX generates faster, at 4 bits as published."""
    assert_faster(engines, "mlx", than="llama_cpp", on="tg128")
