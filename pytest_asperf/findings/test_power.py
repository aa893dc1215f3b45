"""What the Neural Engine and the Core ML hybrid take in power and energy, beside the GPU.

The models are those that the user names for `test_pipelines.py`. Each phase is measured by itself.
Where a model or a meter is missing, the test is skipped with the reason.
"""

from __future__ import annotations

import pytest

from pytest_asperf import Energy, EnergyReading, HardwareError, assert_figure

pytestmark = pytest.mark.model("@mlx_alone")

_PREFILL, _DECODING = "pp410", "tg200"
#: Above this the Neural Engine works; the finding's own limit.
_IDLE_W = 0.1


def _both(energy: Energy, role: str, workload: str) -> tuple[EnergyReading, EnergyReading]:
    """MLX alone and another; whether there is another is known before anything is measured."""
    other = energy.of(role)
    return energy(workload), other(workload)


@pytest.mark.finding("power-282")
def test_the_neural_engine_takes_282_times_less_power(energy: Energy) -> None:
    """Prefill on the GPU takes at least 200 times the power, all rails counted."""
    gpu, ane = _both(energy, "@ane_lm", _PREFILL)
    assert_figure(gpu.power(over=ane), at_least=200)


@pytest.mark.finding("power-10")
def test_the_neural_engine_takes_a_quarter_of_the_power(energy: Energy) -> None:
    """Prefill on the GPU takes at least 4 times the power, all rails counted."""
    gpu, ane = _both(energy, "@ane_lm", _PREFILL)
    assert_figure(gpu.power(over=ane), at_least=4)


@pytest.mark.finding("ane-prefill-saves-energy")
def test_a_prefill_on_the_neural_engine_saves_energy(energy: Energy) -> None:
    """A token of a prompt takes more energy on the GPU."""
    gpu, ane = _both(energy, "@ane_lm", _PREFILL)
    assert_figure(gpu.energy(over=ane), at_least=1)


@pytest.mark.finding("hybrid-saves-power-0.8b")
def test_the_hybrid_saves_power_for_a_small_model(energy: Energy) -> None:
    """The hybrid's prefill takes less power than the GPU's; its decoding is the GPU's own."""
    _assert_hybrid_saves(energy)


@pytest.mark.finding("hybrid-saves-power-9b")
def test_the_hybrid_saves_power_for_a_9b(energy: Energy) -> None:
    """The same with a 9B."""
    _assert_hybrid_saves(energy)


def _assert_hybrid_saves(energy: Energy) -> None:
    gpu, hybrid = _both(energy, "@coreml_hybrid", _PREFILL)
    assert_figure(hybrid.power(over=gpu), at_most=1)


@pytest.mark.finding("ane-idle-under-coreml")
@pytest.mark.model("@coreml_hybrid")
def test_core_ml_leaves_the_neural_engine_idle(energy: Energy) -> None:
    """While Core ML reads a prompt, the Neural Engine's rail stays below 0.1 W."""
    reading = energy(_PREFILL)
    try:
        power = reading.power("ane")
    except HardwareError as error:  # a counter that stands still may be dead
        pytest.skip(error.what)
    assert_figure(power, at_most=_IDLE_W)


@pytest.mark.finding("ane-decode-power")
def test_decoding_on_the_neural_engine_takes_less_power(energy: Energy) -> None:
    """Decoding takes less power there than on the GPU, all rails counted."""
    gpu, ane = _both(energy, "@ane_lm", _DECODING)
    assert_figure(ane.power(over=gpu), at_most=1)


@pytest.mark.finding("ane-decode-energy")
def test_decoding_on_the_neural_engine_takes_less_energy(energy: Energy) -> None:
    """A generated token takes less energy there, all rails counted."""
    gpu, ane = _both(energy, "@ane_lm", _DECODING)
    assert_figure(ane.energy(over=gpu), at_most=1)
