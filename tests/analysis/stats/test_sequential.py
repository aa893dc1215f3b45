import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.outcome import Decision
from pytest_asperf.analysis.stats.ratio_test import RatioTest
from pytest_asperf.analysis.stats.sequential import (
    PairedTest,
    detectable_tolerance,
    evidence,
    least_pairs,
    log_cost_ratio,
    predicted_sd,
)
from pytest_asperf.errors import MeasurementError

differences = st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=40)
costs = st.floats(1e-3, 1e3)


def fed(ratios: list[float], tolerance: float = 0.05) -> PairedTest:
    """Return a test that was given ratios until it was decided."""
    test = PairedTest(tolerance)
    next(filter(None, map(test.update, ratios)), None)
    return test


def undecided(ratios: list[float], tolerance: float = 0.05) -> PairedTest:
    """Return a test that was given all the ratios and has to wait."""
    test = PairedTest(tolerance, min_pairs=len(ratios) + 1, max_pairs=len(ratios) + 1)
    assert not any(map(test.update, ratios))
    return test


def noisy(rng: np.random.Generator, effect: float, n: int = 120) -> list[float]:
    """Return ratios with noise of 2.8 % and an outlier in every tenth pair."""
    outliers = rng.choice((-0.18, 0.18), n) * (rng.random(n) < 0.1)
    ratios: list[float] = (effect + rng.normal(0, 0.028, n) + outliers).tolist()
    return ratios


@pytest.mark.parametrize(
    ("effect", "outcome"), [(0.0, Decision.PASS), (-0.2, Decision.PASS), (0.05, Decision.FAIL)]
)
def test_quiet_machines_decide_in_five_pairs(effect: float, outcome: Decision) -> None:
    """Without noise five pairs are enough, the least that a fair coin can show at 5 %."""
    test = fed([math.log1p(effect)] * 60)
    assert (test.outcome, test.n) == (outcome, 5)
    assert test.expected_pairs_left == 0


def test_tenfold_slowdown_fails_among_outliers() -> None:
    """A catastrophic slowdown fails at once even where other pairs go astray."""
    test = fed([2.3, 2.4, 2.2, -0.1, 2.3, 2.3, 2.5, 2.2, 2.3, 2.3])
    assert test.outcome == Decision.FAIL


@pytest.mark.parametrize(
    ("sd", "tolerance", "typical", "most"), [(0.02, 0.02, 10, 18), (0.03, 0.05, 5, 9)]
)
def test_equal_builds_are_decided_in_few_pairs(
    sd: float, tolerance: float, typical: int, most: int
) -> None:
    """On normal noise, half of the gates need at most `typical` pairs and nine in ten `most`."""
    rng = np.random.default_rng(20261125)
    tests = [fed(rng.normal(0, sd, 120).tolist(), tolerance) for _ in range(1000)]
    pairs = sorted(test.n for test in tests)
    assert pairs[500] <= typical
    assert pairs[900] <= most
    assert sum(test.outcome is Decision.FAIL for test in tests) <= binom.ppf(0.999, 1000, 0.05)


@pytest.mark.parametrize("processes", ["normal, 3 %", "two kinds, 0 or +6 %"])
@pytest.mark.parametrize(("effect", "bound"), [(0.05, 0.05), (0.08, 0.005)])
def test_a_slower_candidate_seldom_passes_if_each_pair_has_its_own_processes(
    processes: str, effect: float, bound: float
) -> None:
    """Processes differ by more than the tolerance at times, and the bound of a PASS is kept."""
    rng, gates = np.random.default_rng(20261125), 1000
    shape = gates, 120, 2
    kinds = (
        0.03 * rng.standard_normal(shape)
        if "3 %" in processes
        else 0.06 * rng.integers(0, 2, shape)
    )
    pairs = np.diff(kinds)[..., 0] + 0.01 * rng.standard_normal((gates, 120)) + math.log1p(effect)
    passed = sum(fed(ratios).outcome is Decision.PASS for ratios in pairs.tolist())
    assert passed <= binom.ppf(0.999, gates, bound)


def test_between_floor_and_tolerance_the_nearer_side_decides() -> None:
    """Until the interval excludes the tolerance, the verdict follows the half of the effect."""
    noise = [0.02, -0.02] * 30
    assert fed([0.015 + n for n in noise]).outcome == Decision.PASS
    assert fed([0.035 + n for n in noise]).outcome == Decision.FAIL


def test_a_slowdown_shown_to_lie_within_the_tolerance_passes() -> None:
    """Steady +3 % at 5 % and steady +37 % at 40 % are above the smallest FAIL, and accepted."""
    for effect, tolerance in ((0.03, 0.05), (0.28, 0.4), (0.37, 0.4)):
        test = fed([math.log1p(effect)] * 60, tolerance)
        assert test.outcome is Decision.PASS
        assert test.estimate.high <= tolerance


def test_fail_needs_a_slowdown_near_the_tolerance_or_above() -> None:
    """With a tolerance of 40 %, +28 % in noise passes and +42 % fails."""
    rng = np.random.default_rng(3)
    passed = [fed(noisy(rng, math.log1p(0.28)), 0.4).outcome for _ in range(40)]
    failed = [fed(noisy(rng, math.log1p(0.42)), 0.4).outcome for _ in range(40)]
    assert passed == [Decision.PASS] * 40
    assert failed == [Decision.FAIL] * 40


def test_budget_ends_inconclusive() -> None:
    """Ratios of no clear sign end at the budget, without a forecast."""
    test = PairedTest(0.01, max_pairs=12)
    outcomes = [test.update(0.2 if i % 2 else -0.19) for i in range(12)]
    assert outcomes == [None] * 11 + [Decision.INCONCLUSIVE]
    assert test.expected_pairs_left is None


def test_expected_pairs_are_about_right() -> None:
    """Half way through a steady series, the forecast is near the final number."""
    series = [0.02 + (0.03 if i % 2 else -0.015) for i in range(60)]
    whole = fed(series, 0.05)
    half = fed(series[: whole.n // 2], 0.05)
    assert half.outcome is None
    assert half.expected_pairs_left is not None
    assert half.expected_pairs_left == pytest.approx(whole.n - half.n, rel=0.3)


def test_expected_pairs_are_unknown_without_evidence() -> None:
    """Before the first pair nothing is forecast."""
    assert PairedTest().expected_pairs_left is None


def test_comparisons_share_the_error() -> None:
    """With four comparisons a FAIL needs four times the evidence, and a PASS none more."""
    failing, passing = PairedTest(comparisons=4), PairedTest(comparisons=4)
    assert [failing.update(0.05) for _ in range(5)] == [None] * 5
    assert failing.evidence_slower < 4 / 0.05
    assert [passing.update(0.0) for _ in range(5)] == [None] * 4 + [Decision.PASS]
    assert passing.estimate.confidence == pytest.approx(1 - 0.05 - 0.05)


@given(differences, st.floats(-0.3, 0.3), st.floats(0, 0.3))
def test_evidence_falls_with_the_effect_it_speaks_against(
    ratios: list[float], shift: float, more: float
) -> None:
    """An effect shown above some value is shown above any lower value too."""
    steepness = [1 / predicted_sd(ratios[:i]) for i in range(len(ratios))]
    assert evidence(ratios, steepness, shift) >= evidence(ratios, steepness, shift + more)


@given(differences)
def test_swapping_the_arms_mirrors_evidence_and_interval(ratios: list[float]) -> None:
    """With baseline and candidate swapped, the interval is mirrored and the evidence too."""
    test, swapped = undecided(ratios), undecided([-r for r in ratios])
    low, high = test.interval
    assert swapped.interval == pytest.approx((-high, -low), abs=1e-12)
    assert swapped.evidence_slower == pytest.approx(test.evidence_below(0.0))


@given(differences, st.floats(0.01, 1.0))
def test_reflection_about_the_middle_mirrors_evidence(
    ratios: list[float], tolerance: float
) -> None:
    """Reflected about the middle of `floor` and tolerance, the two e-values are exchanged."""
    test = undecided(ratios, tolerance)
    middle = (test._limit + test._floor) / 2
    reflected = undecided([2 * middle - r for r in ratios], tolerance)
    assert reflected.evidence_slower == pytest.approx(test.evidence_within, rel=1e-6, abs=1e-9)


@given(st.lists(st.tuples(costs, costs), min_size=1, max_size=30), st.floats(1e-6, 1e6))
def test_scaling_the_costs_changes_nothing(pairs: list[tuple[float, float]], factor: float) -> None:
    """Costs in another unit give the same ratios, up to rounding."""
    plain = [log_cost_ratio(candidate=c, baseline=b) for b, c in pairs]
    scaled = [log_cost_ratio(candidate=factor * c, baseline=factor * b) for b, c in pairs]
    assert scaled == pytest.approx(plain, abs=1e-9)
    assert undecided(scaled).evidence_slower == pytest.approx(
        undecided(plain).evidence_slower, rel=1e-3
    )


@given(differences, st.sampled_from([0.01, 0.05, 0.1, 0.4, 3.0]), st.floats(-0.5, 1.5))
def test_interval_encloses_its_point_and_agrees_with_the_verdict(
    ratios: list[float], tolerance: float, effect: float
) -> None:
    """A PASS's bounds are below the tolerance, a FAIL's above `floor` and never wholly within."""
    test = PairedTest(tolerance, max_pairs=max(5, len(ratios)))
    next(filter(None, map(test.update, [effect + r for r in ratios])), None)
    low, high = test.interval
    limit = math.log1p(tolerance)
    assert low <= high
    assert test.estimate.n == test.n
    if test.outcome == Decision.FAIL:
        assert low >= max(0.0, limit - math.log1p(0.05)) - 1e-12
        assert high > limit - 1e-12
    if test.outcome == Decision.PASS:
        assert high <= limit + 1e-12
    if test.outcome == Decision.INCONCLUSIVE:
        assert low < limit < high


@given(differences, st.floats(-0.2, 0.2))
def test_shifting_the_ratios_shifts_the_interval(ratios: list[float], shift: float) -> None:
    """Scale and bets do not follow the mean of the differences."""
    low, high = undecided(ratios).interval
    moved = undecided([r + shift for r in ratios]).interval
    assert moved == pytest.approx((low + shift, high + shift), abs=1e-6)


def test_interval_is_infinite_until_bets_could_show_something() -> None:
    """Four pairs exclude nothing, five do."""
    assert PairedTest().interval == (-math.inf, math.inf)
    assert undecided([0.01] * 4).interval == (-math.inf, math.inf)
    low, high = undecided([0.01] * 5).interval
    assert -0.05 < low < 0.01 < high < 0.07


def test_a_run_that_never_stops_crosses_in_at_most_alpha_of_runs() -> None:
    """Equal builds on a drifting, ramping machine show "slower" at most as often as promised."""
    rng = np.random.default_rng(20261121)
    runs = 600
    crossed = sum(_crosses(rng) for _ in range(runs))
    assert 0 < crossed <= binom.ppf(0.999, runs, 0.05)


def _crosses(rng: np.random.Generator) -> bool:
    """True if evidence reaches 20 within 40 pairs of equal builds, the second run always slower."""
    runs = rng.normal(0, 0.02, 80) + rng.normal(0, 0.01, 80).cumsum() + 0.002 * np.arange(80)
    runs += 0.18 * (rng.random(80) < 0.1)
    runs[1::2] += 0.02
    ratios = (rng.choice((-1, 1), 40) * (runs[1::2] - runs[::2])).tolist()
    steepness = [0.05 / predicted_sd(ratios[:i]) ** 2 for i in range(40)]
    return any(evidence(ratios[:n], steepness[:n], 0.0) >= 20 for n in range(5, 41))


@pytest.mark.parametrize(
    ("effect", "outcome"),
    [
        (0.0, Decision.PASS),
        (-0.01, Decision.PASS),
        (0.2, Decision.FAIL),
        (-0.2, Decision.FAIL),
        (math.log(1.05), Decision.INCONCLUSIVE),
    ],
)
def test_alike_is_within_the_tolerance_on_both_sides(effect: float, outcome: Decision) -> None:
    """Much faster fails as much slower does, and the interval agrees with the verdict."""
    test = RatioTest(1 / 1.05, 1.05)
    ratios = noisy(np.random.default_rng(5), effect)
    found = next(filter(None, map(test.update, ratios)), None)
    limit, (low, high) = math.log(1.05), test.interval
    assert found == outcome
    assert (-limit <= low and high <= limit) == (outcome is Decision.PASS)
    assert (low >= limit or high <= -limit) == (outcome is Decision.FAIL)


@pytest.mark.parametrize("edge", [math.log(1.05), -math.log(1.05)])
def test_costs_at_the_limit_are_seldom_alike(edge: float) -> None:
    """A difference of the whole tolerance, of either sign, passes in at most 5 % of runs."""
    rng = np.random.default_rng(7)
    passed = 0
    for _ in range(30):
        test = RatioTest(1 / 1.05, 1.05)
        passed += next(filter(None, map(test.update, noisy(rng, edge))), None) is Decision.PASS
    assert passed <= binom.ppf(0.999, 30, 0.05)


def test_error_rates_on_noise_with_outliers() -> None:
    """On noise of 2.8 % with outliers, at least 97 % of gates are right at tolerance 5 %."""
    rng = np.random.default_rng(7)
    gates = 400
    passed = sum(fed(noisy(rng, 0.0)).outcome == Decision.PASS for _ in range(gates))
    failed = sum(fed(noisy(rng, math.log1p(0.05))).outcome == Decision.FAIL for _ in range(gates))
    assert min(passed, failed) >= 0.97 * gates


@given(st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=30))
def test_the_next_sd_knows_no_sign_and_is_never_zero(ratios: list[float]) -> None:
    """It is positive and the same for mirrored differences."""
    assert predicted_sd(ratios) == predicted_sd([-r for r in ratios]) > 0


def test_sd_starts_from_the_prior_and_follows_the_data() -> None:
    """Without data it is 3 %, with much data the standard deviation, outliers cut."""
    assert predicted_sd([]) == predicted_sd([0.4]) == 0.03
    many = np.random.default_rng(2).normal(0, 0.2, 500).tolist()
    assert predicted_sd(many) == pytest.approx(0.2, rel=0.1)
    assert predicted_sd([*many, *[9.0, -9.0] * 10]) == pytest.approx(0.2, rel=0.15)


def test_least_pairs_is_walds_bound() -> None:
    """At 5 % errors the bound is 5.3 (sd / ln(1 + tolerance))^2, and never below five tosses."""
    assert least_pairs(0.1, 0.05) == math.ceil(5.3 * (0.1 / math.log(1.05)) ** 2) == 23
    assert least_pairs(0.0, 0.05) == 5
    assert least_pairs(0.0, 0.05, alpha=0.01) == 7


def test_wald_bound_follows_the_spread_without_outliers() -> None:
    """The bound uses the robust spread, and waits for three pairs."""
    assert undecided([0.1, -0.1]).wald_bound is None
    quiet = undecided([0.1, -0.1, 0.1, -0.1, 0.0] * 4)
    assert quiet.wald_bound == undecided([*[0.1, -0.1, 0.1, -0.1, 0.0] * 4, 3.0]).wald_bound
    assert quiet.wald_bound == least_pairs(0.14826, 0.05)


def test_detectable_tolerance_shrinks_with_the_root_of_the_budget() -> None:
    """Four times the pairs halve the smallest detectable effect, in the logarithm."""
    few, many = detectable_tolerance(0.03, 10), detectable_tolerance(0.03, 40)
    assert math.log1p(few) == pytest.approx(2 * math.log1p(many))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e9])
def test_what_is_no_ratio_is_refused_and_forgotten(bad: float) -> None:
    """NaN, infinities and impossible ratios raise and leave the test as it was."""
    test = PairedTest()
    test.update(0.01)
    with pytest.raises(MeasurementError, match="pair 2"):
        test.update(bad)
    assert test.n == 1
    assert test.update(0.01) is None


@pytest.mark.parametrize(("candidate", "baseline"), [(0, 1), (1, -1), (math.nan, 1), (1, math.inf)])
def test_costs_must_be_positive_and_finite(candidate: float, baseline: float) -> None:
    """The error for a cost of zero, below it, or without a value names its build."""
    with pytest.raises(MeasurementError, match="cost is"):
        log_cost_ratio(candidate=candidate, baseline=baseline)


def test_a_decided_test_takes_no_more_pairs() -> None:
    """A verdict once returned cannot be changed by feeding on."""
    test = fed([0.0] * 10)
    with pytest.raises(RuntimeError, match="PASS"):
        test.update(0.0)


def test_no_pairs_have_no_estimate() -> None:
    """An estimate of nothing raises instead of returning a number."""
    with pytest.raises(MeasurementError, match="no pair"):
        _ = PairedTest().estimate


@pytest.mark.parametrize(
    "arguments",
    [
        {"tolerance": 0.0},
        {"tolerance": math.nan},
        {"alpha": 0.0},
        {"alpha": 0.5},
        {"beta": 1.0},
        {"beta": math.nan},
        {"min_pairs": 0},
        {"min_pairs": 121},
        {"comparisons": 0},
    ],
)
def test_impossible_arguments_are_refused(arguments: dict[str, float]) -> None:
    """An argument out of its range is named."""
    with pytest.raises(ValueError, match=next(iter(arguments))):
        PairedTest(**arguments)  # type: ignore[arg-type]
