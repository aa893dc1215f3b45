from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.stats.ppl_sequential import (
    PairedPplTest,
    evidence_below,
    parse_ppl_limit,
)
from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.errors import ConfigError, MeasurementError

FIXTURE = Path(__file__).parents[3] / "fixtures" / "ppl_chunks.json"
LIMIT = math.log1p(0.01)

small = st.floats(-0.02, 0.02)


def fed(differences: list[float], total: int, limit: float = 0.01) -> PairedPplTest:
    """Return a test that was given differences until it was decided."""
    test = PairedPplTest(limit, n_chunks_total=total)
    next(filter(None, map(test.update, differences)), None)
    return test


@pytest.mark.parametrize(
    "values", [[-1.0, 0.0, 0.5, 0.5, 0.9], [-9.0, 0.0, 0.5, 0.5], [0.9, 0.8, 0.7, -0.2]]
)
def test_bets_are_fair_over_all_orders(values: list[float]) -> None:
    """At the true mean of the clipped values, evidence averages 1 over all orders."""
    mean = float(np.mean(np.maximum(values, -1)))
    for seen in range(1, len(values)):
        found = [
            evidence_below(order[:seen], len(values), mean, 1.0)
            for order in itertools.permutations(values)
        ]
        assert np.mean(found) == pytest.approx(1)


@given(st.lists(small, min_size=1, max_size=20), small, st.floats(0, 0.02))
def test_evidence_grows_with_the_mean_it_speaks_against(
    values: list[float], mean: float, more: float
) -> None:
    """What shows a mean below some value shows it below any higher value too."""
    total = len(values) + 5
    lower = evidence_below(values, total, mean, 0.05)
    assert lower <= evidence_below(values, total, mean + more, 0.05) * (1 + 1e-9)


@given(st.lists(small, min_size=2, max_size=30))
def test_the_whole_corpus_decides_exactly(differences: list[float]) -> None:
    """After the last chunk the interval is the mean, and the verdict its comparison."""
    test = PairedPplTest(n_chunks_total=len(differences), min_chunks=len(differences))
    outcomes = list(map(test.update, differences))
    mean = sum(differences) / len(differences)
    assert outcomes[:-1] == [None] * (len(differences) - 1)
    assert test.interval == pytest.approx((mean, mean))
    assert test.estimate.is_exact
    if abs(mean - LIMIT) > 1e-9:
        assert outcomes[-1] == (Outcome.PASS if mean < LIMIT else Outcome.FAIL)


@pytest.mark.parametrize("n", [1, 4, 5])
def test_a_corpus_of_few_chunks_decides_nothing(n: int) -> None:
    """What four chunks have in common need not be the text's: five is the least, also of all."""
    test = PairedPplTest(n_chunks_total=n)
    outcomes = list(map(test.update, [0.0] * n))
    assert outcomes[-1] == (Outcome.PASS if n >= 5 else None)


@given(st.lists(small, min_size=1, max_size=25))
def test_swapping_the_models_mirrors_the_interval(differences: list[float]) -> None:
    """With the models swapped, the bounds change places and signs."""
    one, other = (
        PairedPplTest(n_chunks_total=40, min_chunks=40),
        PairedPplTest(n_chunks_total=40, min_chunks=40),
    )
    for difference in differences:
        one.update(difference)
        other.update(-difference)
    low, high = one.interval
    assert low <= high
    assert other.interval == pytest.approx((-high, -low), abs=1e-9)
    assert one.estimate.low <= one.estimate.point <= one.estimate.high


@given(st.lists(small, min_size=6, max_size=60))
def test_an_early_verdict_agrees_with_the_interval(differences: list[float]) -> None:
    """A PASS's upper bound is at most the limit, a FAIL's lower bound at least."""
    test = fed(differences, 80)
    low, high = test.interval
    if test.outcome == Outcome.PASS:
        assert high <= LIMIT + 1e-12
    if test.outcome == Outcome.FAIL:
        assert low >= LIMIT - 1e-12


def test_equal_builds_need_a_fifth_of_the_corpus() -> None:
    """Differences near zero pass after some 13 of 63 chunks."""
    test = fed([0.0003 * (-1) ** i for i in range(63)], 63)
    assert test.outcome == Outcome.PASS
    assert test.n <= 14


def test_published_q2_k_fails_at_once() -> None:
    """A ruined model is beyond the bound upwards, which a FAIL does not need."""
    published = json.loads(FIXTURE.read_text(encoding="utf-8"))["ppl_by_chunk"]
    differences = np.log(published["Q2_K"]) - np.log(published["F16"])
    test = fed(differences.tolist(), 63)
    assert test.outcome == Outcome.FAIL
    assert test.n <= 7
    assert test.estimate.low > 0.01


def test_a_chunk_beyond_the_bound_ends_early_passing() -> None:
    """One chunk that refutes the bound leaves PASS to the whole corpus."""
    differences = [0.3] + [-0.01] * 62
    test = fed(differences, 63)
    assert (test.outcome, test.n) == (Outcome.PASS, 63)
    early = fed(differences[:40], 63)
    assert early.outcome is None
    assert early.interval[1] == math.inf
    assert not early.estimate.has_interval


@pytest.mark.parametrize("shape", ["normal", "rare"])
def test_wrong_passes_at_the_limit_are_rare(shape: str) -> None:
    """Where the corpus is just at the limit, at most 5 % of random orders pass early."""
    rng = np.random.default_rng(11)
    orders, total = 400, 40
    values = rng.normal(0, 0.01, total) if shape == "normal" else 0.03 * (np.arange(total) % 8 == 0)
    values = values - values.mean() + LIMIT * (1 + 1e-9)
    passed = sum(
        fed(rng.permutation(values).tolist(), total).outcome == Outcome.PASS for _ in range(orders)
    )
    assert passed <= binom.ppf(0.999, orders, 0.05)


def test_wrong_fails_just_below_the_limit_are_rare() -> None:
    """Where the corpus is just below the limit, at most 5 % of random orders fail."""
    rng = np.random.default_rng(12)
    orders, total = 400, 40
    values = rng.exponential(0.01, total)
    values = values - values.mean() + LIMIT * (1 - 1e-9)
    failed = sum(
        fed(rng.permutation(values).tolist(), total).outcome == Outcome.FAIL for _ in range(orders)
    )
    assert failed <= binom.ppf(0.999, orders, 0.05)


def test_comparisons_share_the_error() -> None:
    """Several tests in one gate need more chunks for a FAIL each, and none more for a PASS."""
    for difference, costs_more in ((0.0, False), (0.02, True)):
        shared = PairedPplTest(n_chunks_total=63, comparisons=4)
        next(filter(None, map(shared.update, [difference] * 63)))
        assert (shared.n > fed([difference] * 63, 63).n) == costs_more


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_differences_that_are_not_finite_are_refused_and_forgotten(bad: float) -> None:
    """NaN and infinities raise and leave the test as it was."""
    test = PairedPplTest(n_chunks_total=10)
    with pytest.raises(MeasurementError, match="number 1"):
        test.update(bad)
    assert test.n == 0
    with pytest.raises(MeasurementError, match="no chunk"):
        _ = test.estimate


def test_a_decided_test_takes_no_more_chunks() -> None:
    """A verdict once returned cannot be changed by feeding on."""
    test = fed([0.0] * 63, 63)
    with pytest.raises(RuntimeError, match="PASS"):
        test.update(0.0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"limit": 0.0},
        {"limit": math.nan},
        {"alpha": 0.0},
        {"beta": 0.5},
        {"n_chunks_total": 0},
        {"min_chunks": 0},
        {"comparisons": 0},
        {"bound": 0.005},
        {"bound": math.inf},
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, float]) -> None:
    """An argument out of its range is named."""
    with pytest.raises(ValueError, match=next(iter(arguments))):
        PairedPplTest(**{"n_chunks_total": 10, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", ["0%", "0.00001%", 1e-7, "0.000099%"])
def test_a_limit_below_rounding_is_refused(limit: str | float) -> None:
    """The message names the option: the test itself would only raise a ValueError."""
    with pytest.raises(ConfigError, match=r"--max-ppl-delta: .* is too small a limit"):
        parse_ppl_limit(limit, where="--max-ppl-delta")


@given(st.floats(1e-6, 1e6))
def test_every_limit_that_is_read_can_be_tested(limit: float) -> None:
    """What the parser accepts, the test accepts."""
    assert PairedPplTest(parse_ppl_limit(limit, where="x"), n_chunks_total=5).limit == limit
