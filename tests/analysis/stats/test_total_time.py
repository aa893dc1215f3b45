import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.outcome import Decision, Outcome
from pytest_asperf.analysis.stats.sequential import PairedTest
from pytest_asperf.analysis.stats.total_time import (
    SuiteTest,
    TotalTimeTest,
    total_log_ratio,
    typical_log_ratio,
)
from pytest_asperf.errors import MeasurementError

TURNS = 25
costs = st.floats(1e-3, 1e3)
turns = st.lists(st.tuples(costs, costs), min_size=1, max_size=25)


def gate(rng: np.random.Generator, *, share: float, slow_by: float) -> TotalTimeTest:
    """Return a decided test of a candidate of which a share of the runs is slow."""
    test = TotalTimeTest()
    while test.outcome is None:
        base, candidate = np.exp(0.02 * rng.standard_normal((2, TURNS)))
        for side in (base, candidate):
            side[rng.random(TURNS) < 0.05] *= 1.2
        candidate[rng.random(TURNS) < share] *= 1 + slow_by
        test.update(typical_log_ratio(base, candidate), total_log_ratio(base, candidate))
    return test


@pytest.mark.parametrize(("share", "slow_by"), [(0.25, 0.5), (0.4, 0.3), (0.5, 0.2), (0.5, 0.5)])
def test_a_candidate_with_slow_runs_does_not_pass(share: float, slow_by: float) -> None:
    """If the mean slowdown is 10 % and more, no gate passes, for any median pair."""
    rng = np.random.default_rng(1)
    assert {gate(rng, share=share, slow_by=slow_by).outcome for _ in range(20)} == {Decision.FAIL}


def test_slow_runs_in_the_minority_are_told_as_two_speeds() -> None:
    """The median run pair alone would pass; the total decides, and both are seen to differ."""
    test = gate(np.random.default_rng(2), share=0.25, slow_by=0.5)
    assert test.is_within
    assert test.outcome is Decision.FAIL
    assert test.decisive is test.total
    assert test.parts


def test_equal_builds_with_outliers_pass_in_few_pairs() -> None:
    """Hiccups that hit either one alike cost a pair or two, and no verdict."""
    rng = np.random.default_rng(3)
    gates = [gate(rng, share=0, slow_by=0) for _ in range(40)]
    assert {test.outcome for test in gates} == {Decision.PASS}
    assert np.median([test.n for test in gates]) <= 7
    assert not any(test.parts for test in gates)


def test_evidence_of_both_is_shared() -> None:
    """Two costs that part at random fail equal builds in at most 5 % of runs."""
    rng = np.random.default_rng(4)
    runs = 300
    failed = 0
    for _ in range(runs):
        test = TotalTimeTest(max_pairs=40)
        coins = rng.choice((-1, 1), 40)
        sizes = rng.normal(0.0, 0.05, (40, 2)) + 0.02
        sizes[:, 1] += 0.3 * (rng.random(40) < 0.2)
        for coin, (typical, total) in zip(coins, sizes, strict=True):
            if test.update(coin * typical, coin * total):
                break
        failed += test.outcome is Decision.FAIL
    assert failed <= binom.ppf(0.999, runs, 0.05)


@given(turns, st.floats(0.1, 10))
def test_the_total_turns_its_sign_with_the_sides_and_follows_a_factor(
    pairs: list[tuple[float, float]], factor: float
) -> None:
    """The sequential test needs nothing else of a difference."""
    base, candidate = ([pair[side] for pair in pairs] for side in (0, 1))
    total = total_log_ratio(base, candidate)
    assert total_log_ratio(candidate, base) == pytest.approx(-total, abs=1e-9)
    scaled = [factor * cost for cost in candidate]
    assert total_log_ratio(base, scaled) == pytest.approx(total + math.log(factor), abs=1e-9)


def test_a_stall_counts_as_twice_the_typical_turn() -> None:
    """A run that hangs outweighs nothing; one that is slower by half counts in full."""
    base = [1.0] * 10
    assert total_log_ratio(base, [1.0] * 9 + [50.0]) == pytest.approx(math.log(1.1))
    assert total_log_ratio(base, [1.0] * 9 + [1.5]) == pytest.approx(math.log(1.05))


@given(st.lists(st.tuples(st.floats(-0.3, 0.3), st.floats(-0.3, 0.3)), min_size=5, max_size=30))
def test_a_pass_has_both_intervals_within_and_a_fail_has_not(
    ratios: list[tuple[float, float]],
) -> None:
    """The verdict agrees with its interval, at the budget too."""
    test = TotalTimeTest(max_pairs=len(ratios))
    for typical, total in ratios:
        if test.update(typical, total):
            break
    limit = math.log1p(test.tolerance)
    highest = max(test.interval[1], test.total.interval[1])
    if test.outcome is Decision.PASS:
        assert highest <= limit + 1e-12
        assert sum(test.mean) <= limit
    else:
        assert highest >= limit - 1e-12 or test.is_held_up
    if test.outcome is Decision.FAIL:
        low, high = test.decisive.interval
        assert low >= -1e-12
        assert high >= limit - 1e-12


@given(st.lists(st.floats(-0.3, 0.3), min_size=1, max_size=30))
def test_with_one_turn_a_pair_it_is_the_paired_test(ratios: list[float]) -> None:
    """If total and median run pair are equal, judging both can only prevent a PASS."""
    both, alone = TotalTimeTest(), PairedTest()
    for ratio in ratios:
        if both.update(ratio) != alone.update(ratio):
            assert both.is_held_up
            assert alone.outcome is Decision.PASS
        if alone.outcome:
            break


def test_slow_pairs_that_no_interval_sees_withhold_a_pass() -> None:
    """One pair in seven of twice the time is an outlier to the bets, and 10 % to the user."""
    test = TotalTimeTest(max_pairs=56)
    for number in range(56):
        test.update(0.69 if number % 7 == 4 else 0.0)
        if test.outcome:
            break
    assert test.outcome_if_stopped is Outcome.INCONCLUSIVE
    assert test.is_held_up
    assert test.expected_pairs_left is None


def test_a_pass_waits_for_its_pairs_and_a_fail_does_not() -> None:
    """If a slow quarter could hide from five runs, twelve are needed to exclude it."""
    passing, failing = TotalTimeTest(pairs_for_pass=12), TotalTimeTest(pairs_for_pass=12)
    assert [passing.update(0.0) for _ in range(11)] == [None] * 11
    assert passing.expected_pairs_left == 1
    assert passing.outcome_if_stopped is Outcome.INCONCLUSIVE
    assert passing.update(0.0) is Decision.PASS
    assert [failing.update(0.1) for _ in range(5)][-1] is Decision.FAIL
    short = TotalTimeTest(pairs_for_pass=12, max_pairs=6)
    assert [short.update(0.0) for _ in range(6)][-1] is Decision.PASS


def test_a_slow_quarter_of_single_runs_seldom_passes() -> None:
    """With one run pair a pair, 25 % of runs slower by 50 % pass in at most 5 % of gates."""
    rng = np.random.default_rng(8)
    passed, gates = 0, 150
    for _ in range(gates):
        test = TotalTimeTest(pairs_for_pass=12)
        for _ in range(test.max_pairs):
            noise = 0.02 * rng.standard_normal(2) + math.log(1.2) * (rng.random(2) < 0.05)
            slow = math.log(1.5) * (rng.random() < 0.25)
            if test.update(float(noise[1] - noise[0] + slow)):
                break
        passed += test.outcome is Decision.PASS
    assert passed <= binom.ppf(0.99, gates, 0.05)


def test_what_is_no_ratio_leaves_both_as_they_were() -> None:
    """Neither test has a pair that the other one rejected."""
    test = TotalTimeTest()
    for pair in ((math.nan, 0.0), (0.0, math.inf)):
        with pytest.raises(MeasurementError, match="pair 1"):
            test.update(*pair)
    assert test.n == test.total.n == 0


def test_pairs_for_the_total_are_forecast() -> None:
    """A total that is noisier than the median pair needs more pairs."""
    quiet, noisy = TotalTimeTest(), TotalTimeTest()
    for n in range(5):
        quiet.update(0.02 * (-1) ** n, 0.02 * (-1) ** n)
        noisy.update(0.02 * (-1) ** n, 0.15 * (-1) ** (n + 1))
    assert noisy.outcome is None
    assert quiet.expected_pairs_left is not None
    left = noisy.expected_pairs_left
    assert left is None or left >= quiet.expected_pairs_left


@given(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=12), st.floats(-0.2, 0.2))
def test_a_suite_ends_at_the_pair_that_decides_its_limit(ratios: list[float], limit: float) -> None:
    """Its interval is that of the pairs so far, and no later pair runs; without a limit all do."""
    suite, every, known = (
        SuiteTest((limit,), 12),
        SuiteTest((), 12),
        PairedTest(min_pairs=12, max_pairs=12),
    )
    for number, ratio in enumerate(ratios, 1):
        known.update(ratio)
        seen = known.estimate
        decided = suite.update(ratio) is not None
        assert suite.estimate == seen
        is_known = seen.shown_above(limit) or seen.shown_at_most(limit)
        assert decided == (is_known or number == 12)
        assert (every.update(ratio) is None) == (number < 12)
        if decided:
            return
