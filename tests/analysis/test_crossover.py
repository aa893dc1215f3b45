"""The search for the length at which two models cross."""

import math

from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.crossover import MOST_COMPARISONS, Compared, CrossoverSearch
from pytest_asperf.analysis.outcome import Outcome


def searched(crossing: float, blur: float = 1.0) -> CrossoverSearch:
    """Search between 64 and 4096; within a factor of the crossing nothing is decided."""
    search = CrossoverSearch(64, 4096)
    while (n := search.next_length()) is not None:
        outcome = Outcome.PASS if n > crossing else Outcome.FAIL
        if blur > 1 and crossing / blur < n < crossing * blur:
            outcome = Outcome.INCONCLUSIVE
        search.done.append(Compared(n, outcome))
    return search


@given(st.floats(10, 20_000), st.floats(1, 3))
def test_the_interval_holds_the_crossing(crossing: float, blur: float) -> None:
    """At any place, and however much of its neighbourhood stays undecided."""
    search = searched(crossing, blur)
    estimate = search.estimate
    assert len(search.done) <= MOST_COMPARISONS
    assert len({compared.n_tokens for compared in search.done}) == len(search.done)
    # The first whole length beyond the crossing.
    assert estimate.low <= math.floor(crossing) + 1 <= estimate.high


@given(st.floats(70, 3700))
def test_the_interval_is_narrow_where_every_length_is_decided(crossing: float) -> None:
    """Two neighbours within 10 %, as prompts are no more exact."""
    estimate = searched(crossing).estimate
    assert estimate.high <= 1.11 * estimate.low + 1


@given(st.floats(250, 1000), st.floats(1.05, 1.5))
def test_an_undecided_neighbourhood_is_enclosed(crossing: float, blur: float) -> None:
    """The search goes on in both directions from it."""
    estimate = searched(crossing, blur).estimate
    assert estimate.high / estimate.low < 2 * blur**2


def test_who_is_faster_everywhere_takes_one_or_two_comparisons() -> None:
    """The first beyond the longest prompt; at the shortest already it is open below."""
    never, always = searched(9000), searched(20)
    assert (len(never.done), never.estimate.low, never.estimate.high) == (1, 4097, math.inf)
    assert (len(always.done), always.estimate.low, always.estimate.high) == (2, 0, 64)
