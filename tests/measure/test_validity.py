"""The comparison of run record and request, and the usability for assertions."""

from dataclasses import replace

import pytest

from pytest_asperf.analysis.guards import Consequence, Guard, Voids
from pytest_asperf.engine_process import MetalFacts
from pytest_asperf.errors import MeasurementError
from pytest_asperf.measure.validity import placed_shares, require_valid
from tests.engine_facts import context, loaded
from tests.power_samples import RAN


@pytest.mark.parametrize(
    ("weights_mib", "tensor_split"),
    [
        ({"CPU_Mapped": 12.0, "CUDA0": 900.0, "CUDA1": 800.0}, "1/1"),
        ({"CUDA0": 0.0, "CUDA1": 800.0}, "0/1"),
        ({"Vulkan0": 800.0}, "3/0"),
    ],
)
def test_shares_where_they_were_asked_for(weights_mib: dict[str, float], tensor_split: str) -> None:
    """The GPUs with a share have weights, and no others do."""
    assert placed_shares(tensor_split, weights_mib) == tensor_split


@pytest.mark.parametrize(
    ("weights_mib", "placed"),
    [
        ({"CUDA0": 1700.4}, "CUDA0 1700 MiB"),
        (
            {"CUDA0": 900.0, "CUDA1": 800.0, "CUDA2": 1.0},
            "CUDA0 900 MiB, CUDA1 800 MiB, CUDA2 1 MiB",
        ),
        ({}, "no weights on a GPU"),
    ],
)
def test_shares_that_lie_elsewhere(weights_mib: dict[str, float], placed: str) -> None:
    """The place of the weights is in the result instead."""
    assert placed_shares("1/1", weights_mib) == placed


@pytest.mark.parametrize(("layers", "trips"), [(0, False), (2, True)])
def test_a_gpu_without_matrices_is_named_if_layers_are_on_it(layers: int, *, trips: bool) -> None:
    """The run record shows the GPU, and the guard warns, only if it was to compute."""
    metal = MetalFacts(gpu="Apple Paravirtual device", simdgroup_matrix=False)
    ran = replace(RAN, loaded=loaded(layers_offloaded=layers), context=context(metal=metal))
    assert [finding.guard for finding in ran.guard_findings] == ["gpu-limits"] * trips
    assert ("gpu" in dict(ran.rows())) is trips


@pytest.mark.parametrize("guard", Guard)
def test_a_measurement_is_refused_only_if_no_assertion_can_use_it(guard: Guard) -> None:
    """The error of every such guard has the guard's own remedy; the others are for the verdict."""
    finding = guard.finding("found", "the rule")
    if guard.voids is not Voids.ALL or guard.consequence is not Consequence.INVALID:
        require_valid("tg128 m:Q8_0", [finding])
        return
    with pytest.raises(MeasurementError) as caught:
        require_valid("tg128 m:Q8_0", [finding])
    assert caught.value.remedy == str(guard.remedy)


def test_buffers_in_another_order_are_no_difference() -> None:
    """llama.cpp's log changed their order between two releases, and a gate said `differs`."""
    mib = {"CPU_REPACK": 0.34, "CPU_Mapped": 0.79}
    (one, other) = (
        dict(replace(RAN, loaded=loaded(weights_mib=dict(order))).rows())["device"]
        for order in (mib.items(), reversed(mib.items()))
    )
    assert one == other == "CPU_Mapped 0.79 MiB, CPU_REPACK 0.34 MiB; 0/2 layers on a GPU"
