"""Predictions before a model runs: monotone if they must be, right on worked examples."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.capacity import (
    ASSUMED_COSTS,
    Demand,
    Fit,
    MemoryCapacity,
    Verification,
    fit,
    kv_cache_bytes,
    payoff,
    speed_ratio,
    tg_bound,
)

SIZES = st.integers(1, 2**42)
CONTEXTS = st.integers(0, 2**21)
ELEMENTS = st.tuples(st.integers(0, 2**18), st.integers(0, 2**18))
PER_ELEMENT = st.tuples(st.sampled_from((0.5625, 1.0625, 2.0)), st.sampled_from((1.0625, 4.0)))
SHARED = MemoryCapacity(100 * 10**9, is_shared=True, basis="")
CARD = MemoryCapacity(100 * 10**9, is_shared=False, basis="")


def demand(weights_bytes: int, kv_bytes: int = 0, read_bytes: int = 1) -> Demand:
    """Return a demand of which only the sizes matter."""
    return Demand(
        label="m",
        basis="",
        context=1,
        weights_bytes=weights_bytes,
        kv_bytes=kv_bytes,
        read_bytes=(read_bytes, read_bytes + kv_bytes),
    )


@given(ELEMENTS, CONTEXTS, CONTEXTS, PER_ELEMENT)
def test_more_context_never_needs_less(
    elements: tuple[int, int], one: int, other: int, per_element: tuple[float, float]
) -> None:
    """The KV cache grows with the context, and two halves are never less than the whole."""
    low, high = sorted((one, other))
    small, large = (kv_cache_bytes(elements, n, per_element) for n in (low, high))
    assert small <= large
    assert kv_cache_bytes(elements, one + other, per_element) <= small + large


@given(weights=SIZES, kv=SIZES, nbytes=SIZES, more=SIZES, is_shared=st.booleans())
def test_more_memory_never_fits_less(
    weights: int, kv: int, nbytes: int, more: int, *, is_shared: bool
) -> None:
    """A model that fits still fits in a larger memory, and with less KV cache."""
    assert not Fit(MemoryCapacity(nbytes, is_shared, "", weights + kv), weights, kv).fits
    if Fit(MemoryCapacity(nbytes, is_shared, ""), weights, kv).fits:
        assert Fit(MemoryCapacity(nbytes, is_shared, "", weights + kv + 1), weights, kv).fits
        assert Fit(MemoryCapacity(nbytes + more, is_shared, ""), weights, kv).fits
        assert Fit(MemoryCapacity(nbytes, is_shared, ""), weights, kv // 2).fits


@given(st.floats(1, 1e4), st.floats(1, 1e4), SIZES, SIZES)
def test_more_bandwidth_never_lowers_the_ceiling(
    one_gbs: float, other_gbs: float, one: int, other: int
) -> None:
    """The ceiling rises with the bandwidth and falls with the bytes that are read."""
    gbs, n_bytes = sorted((one_gbs, other_gbs)), sorted((one, other))
    assert tg_bound(gbs[0], one) <= tg_bound(gbs[1], one)
    assert tg_bound(one_gbs, n_bytes[1]) <= tg_bound(one_gbs, n_bytes[0])


def test_the_ceilings_of_published_guides() -> None:
    """120 GB/s and 4 GB per token allow 30 tok/s; 546 GB/s and 40 GB allow 14."""
    assert tg_bound(120, 4 * 10**9) == pytest.approx(30)
    assert tg_bound(546, 40 * 10**9) == pytest.approx(13.65)


@pytest.mark.parametrize(
    ("memory", "weights_gb", "kv_gb", "fits"),
    [
        (SHARED, 59, 0, True),
        (SHARED, 60, 0, False),
        (SHARED, 59, 40, True),
        (SHARED, 59, 41, False),
        (CARD, 95, 4, True),
        (CARD, 95, 5, False),
    ],
)
def test_weights_and_cache_have_their_limits(
    memory: MemoryCapacity, weights_gb: int, kv_gb: int, *, fits: bool
) -> None:
    """Weights stay below 60 % of shared memory, and with the KV cache below all of any."""
    assert Fit(memory, weights_gb * 10**9, kv_gb * 10**9).fits is fits


def test_a_draft_takes_memory_too() -> None:
    """Models that are loaded together have to fit together."""
    assert fit(SHARED, [demand(59 * 10**9)]).fits
    assert not fit(SHARED, [demand(59 * 10**9), demand(2 * 10**9)]).fits


def test_the_ratio_follows_from_what_is_read() -> None:
    """Half the bytes are read twice as often."""
    assert speed_ratio(demand(9, read_bytes=8), demand(9, read_bytes=4)) == 2


@given(st.floats(0.01, 1), st.floats(1, 3), st.floats(0.1, 1000))
def test_gain_and_break_even_agree(acceptance: float, cost: float, ratio: float) -> None:
    """With one k to choose from there is a gain exactly beyond the break-even ratio."""
    found = payoff(acceptance, Verification(((3, cost),), ""), ratio)
    assert found.gain is not None
    if abs(found.gain) > 1e-9:
        assert (found.gain > 0) == (ratio > found.break_even_ratio)


@given(st.floats(0.05, 1), st.floats(0.05, 1), st.floats(0.1, 1000))
def test_more_acceptance_never_pays_less(one: float, other: float, ratio: float) -> None:
    """Over all assumptions, the gain rises with the acceptance rate and the break-even falls."""
    low, high = sorted((one, other))
    for costs in ASSUMED_COSTS:
        worse, better = payoff(low, costs, ratio), payoff(high, costs, ratio)
        assert worse.gain is not None
        assert better.gain is not None
        assert worse.gain <= better.gain + 1e-12
        assert better.break_even_ratio <= worse.break_even_ratio


def test_a_fast_draft_may_still_lose() -> None:
    """At the costs reported for Apple GPUs the 2.5x rule is met and nothing is gained."""
    assert [payoff(0.7, costs, 2.5).gain for costs in ASSUMED_COSTS[1:]] == [
        pytest.approx(1.7 / (0.4 + 1.59) - 1),
        pytest.approx(1.7 / (0.4 + 1.81) - 1),
    ]


def test_without_a_ratio_only_the_break_even_is_told() -> None:
    """If verifying costs as much as a round emits at most, no draft is fast enough."""
    found = payoff(0.5, Verification(((2, 1.5),), ""))
    assert (found.best_k, found.gain, found.break_even_ratio) == (None, None, math.inf)
