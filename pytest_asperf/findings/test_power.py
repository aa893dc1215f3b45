"""Power and energy of the Neural Engine and of the Core ML hybrid, compared with the GPU.

The models are those that the user names for `test_pipelines.py`. A phase, and a whole request, is
measured by itself. If a model or a meter is missing, the test is skipped with the reason.
"""

import pytest

from pytest_asperf import Energy, HardwareError

pytestmark = pytest.mark.model("@mlx_alone")

_ANE, _HYBRID = "@ane_lm", "@coreml_hybrid"
_PREFILL, _DECODING, _REQUEST = "pp410", "tg200", "pp410+tg200"
#: Above this the Neural Engine works; the finding's own limit.
_IDLE_W = 0.1


@pytest.mark.finding("power-282")
def test_the_neural_engine_takes_282_times_less_power(energy: Energy) -> None:
    """Prefill on the GPU draws at least 200 times the power, all rails counted."""
    assert energy(_PREFILL).power / energy(_PREFILL, model=_ANE).power >= 200


@pytest.mark.finding("power-10")
def test_the_neural_engine_takes_a_quarter_of_the_power(energy: Energy) -> None:
    """Prefill on the GPU draws at least 4 times the power, all rails counted."""
    assert energy(_PREFILL).power / energy(_PREFILL, model=_ANE).power >= 4


@pytest.mark.finding("ane-prefill-saves-energy")
def test_a_prefill_on_the_neural_engine_saves_energy(energy: Energy) -> None:
    """A token of a prompt needs more energy on the GPU."""
    assert energy(_PREFILL) > energy(_PREFILL, model=_ANE)


@pytest.mark.finding("hybrid-saves-power-0.8b")
def test_the_hybrid_saves_power_for_a_small_model(energy: Energy) -> None:
    """A whole request draws a third less power with the hybrid than on the GPU."""
    assert energy(_REQUEST, model=_HYBRID).power / energy(_REQUEST).power <= 2 / 3


@pytest.mark.finding("hybrid-saves-power-9b")
def test_the_hybrid_saves_power_for_a_9b(energy: Energy) -> None:
    """With a 9B a whole request draws 58 % less."""
    assert energy(_REQUEST, model=_HYBRID).power / energy(_REQUEST).power <= 0.42


@pytest.mark.finding("ane-idle-under-coreml")
@pytest.mark.model(_HYBRID)
def test_core_ml_leaves_the_neural_engine_idle(energy: Energy) -> None:
    """While Core ML reads a prompt, the Neural Engine's rail stays below 0.1 W."""
    try:
        assert energy(_PREFILL).rail("ane").power <= _IDLE_W
    except HardwareError as error:  # a counter that does not move may be dead
        pytest.skip(error.what)


@pytest.mark.finding("ane-decode-power")
def test_decoding_on_the_neural_engine_takes_less_power(energy: Energy) -> None:
    """Decoding draws less power there than on the GPU, all rails counted."""
    assert energy(_DECODING, model=_ANE).power < energy(_DECODING).power


@pytest.mark.finding("ane-decode-energy")
def test_decoding_on_the_neural_engine_takes_less_energy(energy: Energy) -> None:
    """A generated token needs less energy there, all rails counted."""
    assert energy(_DECODING, model=_ANE) < energy(_DECODING)
