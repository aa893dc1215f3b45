"""Properties of every input, tried on inputs that Hypothesis draws.

pytest --pyargs pytest_asperf.examples
pytest --pyargs pytest_asperf.examples --asperf-model=models/mine.gguf
"""

import math
from typing import Any

import pytest

from pytest_asperf import Ladder, Model, Speculation, assert_lossless

pytest.importorskip("hypothesis", reason="pip install 'pytest-asperf[properties]'")

from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_asperf.strategies import bits, bounded, ladders, prompts, quants, settings

#: For the drawn settings and quantizations; run MLX with --asperf-engine=mlx too.
ENGINE = "llama_cpp"


@bounded(examples=10, seconds=60)
@given(prompt=prompts())
@pytest.mark.speculative(draft="asperf-draft:F16", target="asperf-target:F16", n_tokens=16)
def test_speculation_is_lossless_on_any_prompt(speculation: Speculation, prompt: str) -> None:
    """Greedy output with the draft is the target's own, up to near-ties."""
    assert_lossless(speculation.on(prompt))


@bounded(examples=10, seconds=60)
@given(text=prompts(), changed=settings(ENGINE))
def test_logits_are_the_same_in_any_batches(
    model: Model, text: str, changed: dict[str, Any]
) -> None:
    """Sizes of batches, threads and flash attention decide how logits are computed, and no more."""
    assert model.scores(text, **changed).agrees


@bounded(examples=10, seconds=60)
@given(text=prompts(), data=st.data())
def test_a_split_leaves_the_nll(model: Model, text: str, data: st.DataObject) -> None:
    """The NLL of a text is that of its beginning, and of the rest after it."""
    whole = model.scores(text)
    at = data.draw(st.integers(2, len(whole.tokens)), label="split at token")
    parts = model.scores(whole.tokens[:at]).nll
    if at < len(whole.tokens):
        parts += model.scores(whole.tokens, after=at).nll
    assert math.isclose(sum(parts), sum(whole.nll), rel_tol=1e-3, abs_tol=1e-2)


@bounded(examples=3, seconds=60)
@given(drawn=ladders(ENGINE), data=st.data())
@pytest.mark.quant_ladder("Q8_0", chunks=3)
def test_the_order_of_a_ladder_leaves_its_verdicts(
    ladder: Ladder, drawn: tuple[str, ...], data: st.DataObject
) -> None:
    """A quantization's interval does not depend on its place in the sweep."""
    order = data.draw(st.permutations(drawn), label="order")
    one, other = ladder.of(*drawn), ladder.of(*order)
    for level in drawn:
        assert one[level].delta.estimate == other[level].delta.estimate


@bounded(examples=5, seconds=60)
@given(more=quants(ENGINE), fewer=quants(ENGINE))
@pytest.mark.quant_ladder("Q8_0", chunks=5)
def test_more_bits_have_no_larger_kld(ladder: Ladder, more: str, fewer: str) -> None:
    """With a bit more for each weight, no quantization is shown to be farther from the baseline."""
    assume(bits(more) >= bits(fewer) + 1)
    pair = ladder.of(more, fewer)
    assert pair[more].kld.estimate.low <= pair[fewer].kld.estimate.high
