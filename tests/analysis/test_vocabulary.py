"""Vocabularies that differ in padding."""

import hashlib

import pytest

from pytest_asperf.analysis.speculation_model import MOST_PADDING, Vocabulary


def _vocabulary(n_tokens: int, *, padding: int = 0, rest: str = "gpt2") -> Vocabulary:
    """A vocabulary of numbered tokens, and padding behind them."""
    tokens = [f"token {n}" for n in range(n_tokens)] + [f"[PAD{n}]" for n in range(padding)]
    digest, ends = hashlib.sha256(), []
    for n, token in enumerate(tokens, 1):
        digest.update(token.encode())
        if len(tokens) - n <= MOST_PADDING:
            ends.append(digest.digest())
    return Vocabulary(rest, tuple(ends))


@pytest.mark.parametrize(("padding", "pairs"), [(0, True), (1, True), (128, True), (129, False)])
def test_padding_up_to_the_bound_of_llama_cpp_pairs(padding: int, *, pairs: bool) -> None:
    """The order of the two does not matter."""
    one, other = _vocabulary(500), _vocabulary(500, padding=padding)
    assert one.pairs_with(other) is other.pairs_with(one) is pairs


def test_other_tokens_or_rules_do_not_pair() -> None:
    """Equal numbers of tokens are not equal tokens."""
    assert not _vocabulary(500).pairs_with(_vocabulary(499, padding=1))
    assert not _vocabulary(500).pairs_with(_vocabulary(500, rest="spm"))
