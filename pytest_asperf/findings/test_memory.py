"""The memory of a model."""

import pytest
from gguf import GGUFReader

from pytest_asperf import Hardware, Ladder, Model, assert_fits

pytestmark = pytest.mark.model("@target")


@pytest.mark.finding("ram-60-percent")
def test_weights_keep_to_60_percent(model: Model, hardware: Hardware) -> None:
    """The weights use at most 60 % of a memory that the system shares, and the rest fits too."""
    assert_fits(model, hardware)


@pytest.mark.finding("q4-quarter-size")
@pytest.mark.quant_ladder("Q4_K_M")
def test_q4_k_m_takes_a_quarter(ladder: Ladder) -> None:
    """Q4_K_M is 75 % smaller than F16, to the percentage points that the check allows."""
    assert "23%" <= ladder["Q4_K_M"].size / ladder["F16"].size <= "27%"


#: Bits per weight of llama.cpp's mixture, its own average.
_Q4_K_M_BITS = 4.8944


@pytest.mark.finding("ram-table")
@pytest.mark.quant("Q4_K_M")
def test_weights_take_parameters_times_bits(model: Model) -> None:
    """The file has as many GB as parameters times bits over 8, within 5 %."""
    parameters = sum(int(tensor.n_elements) for tensor in GGUFReader(model.path).tensors)
    gb = parameters * _Q4_K_M_BITS / 8 / 1e9
    assert f"{0.95 * gb:.4g} GB" <= model.size <= f"{1.05 * gb:.4g} GB"
