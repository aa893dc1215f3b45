"""The arithmetic of speculation against worked examples and its own inverses."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.speculation_model import (
    acceptance_of,
    best_k,
    break_even_ratio,
    emitted_per_round,
    gain,
)

ACCEPTANCES = st.floats(0, 1)
KS = st.integers(1, 16)


@pytest.mark.parametrize(
    ("acceptance", "k", "emitted"), [(0, 4, 1), (1, 4, 5), (0.5, 2, 1.75), (0.8, 5, 3.68928)]
)
def test_a_round_emits_what_the_paper_says(acceptance: float, k: int, emitted: float) -> None:
    """The expected number of tokens is (1 - a^(k+1)) / (1 - a), with its limit at 1."""
    assert emitted_per_round(acceptance, k) == pytest.approx(emitted)


@given(ACCEPTANCES, KS)
def test_acceptance_is_found_again(acceptance: float, k: int) -> None:
    """The acceptance that a mean length implies gives that length again."""
    emitted = emitted_per_round(acceptance, k)
    assert emitted_per_round(acceptance_of(emitted, k), k) == pytest.approx(emitted)


@pytest.mark.parametrize("emitted", [0.5, 5.5, math.nan])
def test_impossible_lengths_have_no_acceptance(emitted: float) -> None:
    """A round of four emits one to five tokens."""
    with pytest.raises(ValueError, match="cannot come of 4"):
        acceptance_of(emitted, 4)


def test_a_costly_verification_loses_even_at_full_acceptance() -> None:
    """With c = 0.4, k = 1 and C(2) = 1.81 two tokens cost more than two steps."""
    assert gain(2, 1, 0.4, 1.81) < 0


@given(ACCEPTANCES, KS, st.floats(1, 8))
def test_nothing_is_gained_at_break_even(acceptance: float, k: int, verify: float) -> None:
    """A draft exactly at the break-even ratio neither gains nor loses."""
    emitted = emitted_per_round(acceptance, k)
    ratio = break_even_ratio(emitted, k, verify)
    if math.isinf(ratio):
        assert gain(emitted, k, 0, verify) <= 1e-9
    else:
        assert gain(emitted, k, 1 / ratio, verify) == pytest.approx(0, abs=1e-9)


def test_the_best_k_is_the_one_that_gains_most() -> None:
    """If batches are free more is better, and where they cost by the token one is best."""
    assert best_k(0.9, 0.01, dict.fromkeys(range(1, 9), 1.0))[0] == 7
    assert best_k(0.6, 0.1, {n: 0.5 + 0.5 * n for n in range(1, 9)})[0] == 1


def test_no_batch_no_best_k() -> None:
    """Without the cost of any batch there is nothing to choose from."""
    with pytest.raises(ValueError, match="two positions"):
        best_k(0.5, 0.1, {1: 1.0})
