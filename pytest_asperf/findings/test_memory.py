"""How much memory a model takes."""

from __future__ import annotations

import pytest
from gguf import GGUFReader

from pytest_asperf import Hardware, Ladder, Model, assert_fits

pytestmark = pytest.mark.model("@target")


@pytest.mark.finding("ram-60-percent")
def test_weights_keep_to_60_percent(model: Model, hardware: Hardware) -> None:
    """The weights take at most 60 % of a memory that the system shares, and the rest fits too."""
    assert_fits(model, hardware)


@pytest.mark.finding("q4-quarter-size")
@pytest.mark.quant_ladder("Q4_K_M")
def test_q4_k_m_takes_a_quarter(ladder: Ladder) -> None:
    """Q4_K_M takes 75 % less than F16, to the percentage points that the check allows."""
    assert "23%" <= ladder["Q4_K_M"].size / ladder["F16"].size <= "27%"


#: Bits per weight: by the type's definition, and of the mixture llama.cpp's own average.
_BITS = {"Q8_0": 8.5, "Q4_K_M": 4.8944}


@pytest.mark.finding("ram-table")
@pytest.mark.quant_ladder(*_BITS)
def test_weights_take_parameters_times_bits(model: Model, ladder: Ladder) -> None:
    """Each file has as many GB as parameters times bits over 8, within 5 %."""
    parameters = sum(int(tensor.n_elements) for tensor in GGUFReader(model.path).tensors)
    for quant, bits in _BITS.items():
        gb = parameters * bits / 8 / 1e9
        assert f"{0.95 * gb} GB" <= ladder[quant].size <= f"{1.05 * gb} GB"
