"""Fine-tuned under its quantization, a model degrades less and more smoothly, at equal cost.

On MLX, whose quantization the shipped target was tuned for. Its counterpart is the same target
quantized afterwards (PTQ): equal sizes and arithmetic, other weights.
"""

import sys
from importlib.util import find_spec

import pytest

from pytest_asperf import Ladder, assert_monotonic

pytestmark = [
    pytest.mark.skipif(find_spec("mlx_lm") is None, reason="pytest-asperf[mlx] is not installed"),
    pytest.mark.model("@ptq", engine="mlx"),
]

_QAT = ("@qat:4bit", "@qat:3bit")
_PTQ = ("4bit", "3bit")

#: Without a GPU, MLX needs 10 to 22 seconds for a chunk of all five models.
_CHUNKS = 24 if sys.platform == "darwin" else 5
#: Seconds within which MLX times the pairs that show 5 %.
_PAIRS_S = 12 if sys.platform == "darwin" else 60

_scored = pytest.mark.quant_ladder(*_QAT, *_PTQ, chunks=_CHUNKS)


@_scored
def test_qat_degrades_less_and_more_smoothly(ladder: Ladder) -> None:
    """QAT diverges less from F16 at 4 and at 3 bits, and by a smaller step between them."""
    (q4, q3), (p4, p3) = ([ladder[quant] for quant in quants] for quants in (_QAT, _PTQ))
    assert q4.kld < p4.kld
    assert q3.kld < p3.kld
    assert q3.kld - q4.kld < p3.kld - p4.kld


@_scored
def test_qat_has_a_lower_perplexity_at_3_bits(ladder: Ladder) -> None:
    """The worth of the smaller divergence in PPL, where PTQ has lost most."""
    assert ladder[_QAT[1]].delta < ladder[_PTQ[1]].delta


@pytest.mark.quant_ladder(*_QAT, chunks=_CHUNKS)
def test_divergence_of_qat_rises_as_bits_fall(ladder: Ladder) -> None:
    """Fine-tuned, 3 bits diverge further from F16 than 4."""
    assert_monotonic(ladder, "kld")


@pytest.mark.quant_ladder(*_PTQ, chunks=_CHUNKS)
def test_divergence_of_ptq_rises_as_bits_fall(ladder: Ladder) -> None:
    """The target quantized afterwards, at each quantization."""
    assert_monotonic(ladder, "kld")


@_scored
def test_qat_is_no_larger(ladder: Ladder) -> None:
    """The weights have equal bytes; only the files' headers differ, by less than 0.01 %."""
    for qat, ptq in zip(_QAT, _PTQ, strict=True):
        assert 0.9999 <= ladder[qat].size / ladder[ptq].size <= 1.0001


@pytest.mark.parametrize(
    "quants",
    [
        pytest.param(quants, id=quants[1], marks=pytest.mark.quant_ladder(*quants))
        for quants in zip(_QAT, _PTQ, strict=True)
    ],
)
def test_qat_generates_as_fast(ladder: Ladder, quants: tuple[str, str]) -> None:
    """TG of QAT and PTQ, in pairs, differs by less than 5 %."""
    budget_s = ladder.measurement.budget.max_seconds
    if budget_s < _PAIRS_S:
        pytest.skip(
            f"5 % costs MLX up to {_PAIRS_S} s of pairs without a GPU: "
            f"--asperf-max-seconds={_PAIRS_S}, not {budget_s:g}"
        )
    qat, ptq = (ladder[quant].throughput("tg16") for quant in quants)
    assert 1 / 1.05 <= qat / ptq <= 1.05


# None is scored; F32 is a quantization that none of them has.
@pytest.mark.finding("qat-tg-follows-bits")
@pytest.mark.quant_ladder("@qat:8bit", "@qat:6bit", "@qat:4bit", "@qat:3bit", baseline="F32")
def test_generation_of_qat_follows_bits(ladder: Ladder) -> None:
    """TG rises from 8 bits to 6, 4 and 3."""
    assert_monotonic(ladder, "tg128")


@pytest.mark.finding("qat-steadier-than-ptq")
@_scored
def test_generation_of_qat_is_steadier(ladder: Ladder) -> None:
    """TG of each QAT quantization varies less from run to run than that of its PTQ counterpart."""
    for qat, ptq in zip(_QAT, _PTQ, strict=True):
        assert ladder[qat].throughput("tg128").cv < ladder[ptq].throughput("tg128").cv
