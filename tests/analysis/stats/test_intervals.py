import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_asperf.analysis.stats.chunk_intervals import (
    LEAST_CHUNKS,
    chunk_difference_interval,
    chunk_mean_interval,
    delta_ppl,
    paired_differences,
    share_interval,
)
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.stats.intervals import (
    mean_interval_t,
    median_interval,
    neighbour_estimates,
    paired_change_interval,
    shared_confidence,
    unpaired_change_interval,
)
from pytest_asperf.errors import MeasurementError

FIXTURE = Path(__file__).parents[3] / "fixtures" / "ppl_chunks.json"

Chunks = list[list[float]]


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    """Published PPL figures of four quantizations of one model."""
    loaded: dict[str, Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))
    return loaded


def published_delta(published: dict[str, Any], level: str, confidence: float) -> Estimate:
    """Return the published quantization's ΔPPL against F16; a chunk's mean replaces its tokens."""
    base, other = (
        [[math.log(ppl)] for ppl in published["ppl_by_chunk"][name]] for name in ("F16", level)
    )
    return delta_ppl(base, other, confidence)


@pytest.mark.parametrize(
    ("level", "percent"),
    [("Q8_0", (0.01, 0.18, 0.35)), ("Q6_K", (0.02, 0.53, 1.05)), ("Q2_K", (215, 267, 328))],
)
def test_delta_ppl_of_published_logs(
    published: dict[str, Any], level: str, percent: tuple[float, float, float]
) -> None:
    """The paired 95 % intervals of published llama-perplexity logs are reproduced."""
    delta = published_delta(published, level, 0.95)
    shown = [100 * value for value in (delta.low, delta.point, delta.high)]
    assert shown == pytest.approx(percent, abs=0.5 if level == "Q2_K" else 0.006)
    assert delta.n == 10


def test_published_q6_k_is_below_one_percent_one_sided_only(published: dict[str, Any]) -> None:
    """Q6_K is shown below +1 % by the interval that verdicts use, not by a two-sided 95 % one."""
    assert published_delta(published, "Q6_K", 0.90).shown_below(0.01)
    assert not published_delta(published, "Q6_K", 0.95).shown_below(0.01)


def test_published_ppl_is_the_mean_over_its_chunks(published: dict[str, Any]) -> None:
    """The fixture's chunks add up to the PPL that the logs print."""
    for level, ppl in published["printed_ppl"].items():
        chunks = [[math.log(value)] for value in published["ppl_by_chunk"][level]]
        assert math.exp(chunk_mean_interval(chunks, unit="nats").point) == pytest.approx(
            ppl, abs=1e-4
        )


nll = st.floats(0, 30)
pairs = st.lists(st.lists(st.tuples(nll, nll), min_size=1, max_size=6), min_size=2, max_size=8)


def split(data: list[list[tuple[float, float]]]) -> tuple[Chunks, Chunks]:
    """Return the two variants' paired token scores."""
    return [[a for a, _ in c] for c in data], [[b for _, b in c] for c in data]


@given(pairs)
def test_delta_ppl_is_the_ratio_of_perplexities(data: list[list[tuple[float, float]]]) -> None:
    """The point is PPL_other / PPL_base - 1 over all tokens, however unequal the chunks."""
    base, other = split(data)
    ratio = math.exp(np.mean(np.concatenate(other)) - np.mean(np.concatenate(base)))
    delta = delta_ppl(base, other)
    assert delta.point == pytest.approx(ratio - 1, rel=1e-9, abs=1e-9)
    assert delta.low <= delta.point <= delta.high


@given(pairs)
def test_delta_ppl_mirrors_when_the_arms_swap(data: list[list[tuple[float, float]]]) -> None:
    """Swapping the variants inverts the ratio and its bounds."""
    base, other = split(data)
    there, back = delta_ppl(base, other), delta_ppl(other, base)
    assume(math.isfinite(there.high) and math.isfinite(back.high))
    for one, mirrored in ((there.point, back.point), (there.low, back.high)):
        # The larger of the two is inverted: near -100 % a float has few digits of the ratio left.
        fall, rise = sorted((one, mirrored))
        assert 1 + fall == pytest.approx(1 / (1 + rise), rel=1e-6, abs=1e-9)


@given(pairs, st.lists(st.floats(0, 5), min_size=8, max_size=8))
def test_delta_ppl_ignores_what_both_arms_share(
    data: list[list[tuple[float, float]]], shifts: list[float]
) -> None:
    """A chunk that is harder for both models alike changes neither point nor interval."""
    base, other = split(data)
    plain = delta_ppl(base, other)
    assume(math.isfinite(plain.high))
    shifted = delta_ppl(
        [[v + s for v in c] for c, s in zip(base, shifts, strict=False)],
        [[v + s for v in c] for c, s in zip(other, shifts, strict=False)],
    )
    assert shifted.point == pytest.approx(plain.point, rel=1e-6, abs=1e-9)
    assert shifted.high == pytest.approx(plain.high, rel=1e-5, abs=1e-9)


@given(pairs)
def test_equal_chunks_reduce_to_students_t(data: list[list[tuple[float, float]]]) -> None:
    """With chunks of equal length the interval is Student's t on the chunk means."""
    chunks = [[value for pair in chunk[:1] for value in pair] for chunk in data] * LEAST_CHUNKS
    by_chunk = chunk_mean_interval(chunks, unit="nats")
    by_mean = mean_interval_t([float(np.mean(chunk)) for chunk in chunks], unit="nats")
    for attribute in ("point", "low", "high"):
        expected = getattr(by_mean, attribute)
        assert getattr(by_chunk, attribute) == pytest.approx(expected, rel=1e-9, abs=1e-9)


samples = st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=40)


@given(samples, samples)
def test_wider_confidence_widens_every_interval(a: list[float], b: list[float]) -> None:
    """More confidence never narrows an interval, and all contain their point."""
    n = min(len(a), len(b))
    hits = [[value > 1 for value in a], [value > 1 for value in b]]
    for narrow, wide in [
        (median_interval(a, 0.8, unit="ms"), median_interval(a, 0.95, unit="ms")),
        (mean_interval_t(a, 0.8, unit="ms"), mean_interval_t(a, 0.95, unit="ms")),
        (paired_change_interval(a[:n], b[:n], 0.8), paired_change_interval(a[:n], b[:n], 0.95)),
        (unpaired_change_interval(a, b, 0.8), unpaired_change_interval(a, b, 0.95)),
        (share_interval(hits, 0.8), share_interval(hits, 0.95)),
    ]:
        assert wide.low <= narrow.low <= narrow.point <= narrow.high <= wide.high
        assert narrow.point == wide.point


@pytest.mark.parametrize("n", [5, 8, 11, 20, 31])
@pytest.mark.parametrize("confidence", [0.8, 0.9])
def test_median_interval_covers_on_skewed_data(n: int, confidence: float) -> None:
    """On log-normal samples the true median is inside at least as often as promised."""
    rng = np.random.default_rng(20261121 + n)
    draws = rng.lognormal(size=(4000, n))
    estimates = [median_interval(row.tolist(), confidence, unit="ms") for row in draws]
    covered = np.mean([e.low <= 1 <= e.high for e in estimates])
    assert covered >= confidence


def test_median_interval_ranks_match_published_table() -> None:
    """For n = 10 at 95 % the bounds are the 2nd and 9th values (David & Nagaraja, section 7.1)."""
    estimate = median_interval(range(1, 11), 0.95, unit="ms")
    assert (estimate.low, estimate.point, estimate.high) == (2, 5.5, 9)


def test_too_few_samples_have_no_interval() -> None:
    """Below the least n the bounds are infinite, and the method names the missing number."""
    four = median_interval([1, 2, 3, 4], 0.9, unit="ms", counted="repetitions")
    assert (four.low, four.high) == (-math.inf, math.inf)
    assert "at least 5 repetitions" in four.method
    assert median_interval([1, 2, 3, 4, 5], 0.9, unit="ms").has_interval
    for one in (
        mean_interval_t([3], unit="ms"),
        paired_change_interval([1], [2]),
        unpaired_change_interval([1, 2, 3], [2]),
    ):
        assert not one.has_interval


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_too_few_chunks_give_no_interval(n: int) -> None:
    """Below five chunks every figure over chunks is without bounds, and names the needed number."""
    scores = [[1.0 + 0.1 * chunk, 2.0] for chunk in range(n)]
    for estimate in (
        chunk_mean_interval(scores, unit="nats"),
        chunk_difference_interval(scores, [[2.0, 2.0]] * n, unit="nats"),
        delta_ppl(scores, [[2.0, 2.0]] * n),
        share_interval([[True, False]] * n),
    ):
        assert estimate.has_interval is (n >= 5)
        assert ("at least 5 chunks" in estimate.method) is (n < 5)


def test_one_stalled_repetition_does_not_move_the_median() -> None:
    """The median and its interval shrug off the outlier that breaks a mean of rates."""
    steady = [253.0, 252.5, 253.4, 252.9, 253.1, 253.2, 252.8, 253.3]
    stalled = median_interval([*steady, 1.19], unit="tok/s")
    assert 252 < stalled.low <= stalled.point <= stalled.high < 254


def test_delta_ppl_covers_unequal_chunks() -> None:
    """On simulated chunks of unequal length the truth is covered about as often as promised."""
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(1000):
        lengths = rng.integers(40, 256, size=20)
        base = [rng.exponential(2.0, size=n) for n in lengths]
        other = [b + 0.01 + rng.normal(0, 0.02) + rng.normal(0, 0.1, size=len(b)) for b in base]
        delta = delta_ppl(base, other, 0.9)
        covered += delta.low <= math.expm1(0.01) <= delta.high
    assert 0.87 <= covered / 1000 <= 0.93


def test_share_interval_covers_where_chunks_differ() -> None:
    """If chunks differ in their share, the interval still covers about as often as promised."""
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(1000):
        shares = rng.beta(38, 2, size=20)
        hits = [(rng.random(100) < share).tolist() for share in shares]
        interval = share_interval(hits, 0.9)
        covered += interval.low <= 0.95 <= interval.high
    assert 0.86 <= covered / 1000 <= 0.95


def test_share_of_all_hits_keeps_a_width() -> None:
    """A thousand hits out of a thousand do not prove 100 %."""
    interval = share_interval([[True] * 100] * 10)
    assert interval.high == interval.point == 1
    assert 0.99 < interval.low < 1


def test_paired_change_beats_unpaired_under_common_drift() -> None:
    """Drift that both variants share cancels in pairs and not between two series."""
    base = [10.0, 11.0, 12.1, 13.2, 14.5]
    other = [
        value * ratio for value, ratio in zip(base, [1.05, 1.051, 1.049, 1.05, 1.05], strict=True)
    ]
    paired, unpaired = paired_change_interval(base, other), unpaired_change_interval(base, other)
    assert paired.point == pytest.approx(0.05, abs=1e-3)
    assert paired.shown_above(0.045)
    assert not unpaired.shown_above(0)


def test_welch_matches_a_worked_example() -> None:
    """Welch's interval on logs agrees with scipy's two-sample test on the same logs."""
    from scipy import stats  # type: ignore[import-untyped]  # scipy ships no types

    base, other = [10.1, 9.8, 10.4, 10.0], [11.5, 12.9, 12.2, 10.9, 12.0, 11.1]
    expected = stats.ttest_ind(np.log(other), np.log(base), equal_var=False).confidence_interval(
        0.9
    )
    change = unpaired_change_interval(base, other, 0.9)
    assert math.log1p(change.low) == pytest.approx(expected.low)
    assert math.log1p(change.high) == pytest.approx(expected.high)


def test_identical_series_have_no_difference_and_no_width() -> None:
    """A model compared with itself is 0 everywhere, without a division by zero."""
    same = [[1.0, 2.0], [3.0]] * LEAST_CHUNKS
    for estimate in (delta_ppl(same, same), unpaired_change_interval([2, 2], [2, 2])):
        assert (estimate.low, estimate.point, estimate.high) == (0, 0, 0)


def test_neighbours_share_the_error() -> None:
    """Each of k - 1 neighbour intervals is made at 1 - alpha / (k - 1)."""
    series = [[[0.1 * level + 0.01 * chunk, 1.0] for chunk in range(5)] for level in range(4)]
    found = neighbour_estimates(series, delta_ppl, 0.9)
    each = shared_confidence(0.9, 3)
    assert found == tuple(delta_ppl(a, b, each) for a, b in pairwise(series))
    assert each == pytest.approx(1 - 0.1 / 3)


def test_kld_neighbours_are_compared_by_difference() -> None:
    """KLD of two quantizations is compared per token, in nats, paired by chunk."""
    lower, higher = [[0.01, 0.03], [0.02]], [[0.02, 0.05], [0.04]]
    difference = chunk_difference_interval(lower, higher, unit="nats")
    assert difference.point == pytest.approx(0.05 / 3)


@given(
    data=st.lists(
        st.lists(st.tuples(*[st.floats(0, 10)] * 4), min_size=1, max_size=4),
        min_size=2,
        max_size=6,
    )
)
def test_a_step_less_another_is_the_difference_of_its_ends(
    data: list[list[tuple[float, float, float, float]]],
) -> None:
    """Steps from a to b and from c to d differ as their ends do, whichever are paired first."""
    a, b, c, d = ([[token[arm] for token in chunk] for chunk in data] for arm in range(4))
    steps = paired_differences(a, b), paired_differences(c, d)
    ends = paired_differences(a, c), paired_differences(b, d)
    of_steps, of_ends = (chunk_difference_interval(*pair, unit="nats") for pair in (steps, ends))
    assert of_steps.point == pytest.approx(of_ends.point, abs=1e-9)
    assert of_steps.low == pytest.approx(of_ends.low, abs=1e-9)
    assert of_steps.high == pytest.approx(of_ends.high, abs=1e-9)


def test_extreme_changes_stay_finite_or_infinite_not_errors() -> None:
    """A ratio beyond the range of floats becomes an infinite bound instead of an overflow."""
    change = delta_ppl([[0.0]] * LEAST_CHUNKS, [[1.0]] * (LEAST_CHUNKS - 1) + [[3000.0]])
    assert change.high == math.inf
    assert math.isfinite(change.point)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, math.nan])
def test_impossible_confidence_is_refused(confidence: float) -> None:
    """Confidence outside (0, 1) is a programming error."""
    with pytest.raises(ValueError, match="confidence"):
        mean_interval_t([1, 2], confidence, unit="ms")


def test_sharing_among_nothing_is_refused() -> None:
    """A sweep of one has no neighbours to compare."""
    with pytest.raises(ValueError, match="comparisons"):
        neighbour_estimates([[[1.0]]], delta_ppl)


@pytest.mark.parametrize(
    ("base", "other", "problem"),
    [
        ([], [], "no chunks"),
        ([[1.0], []], [[1.0], []], "no tokens in a chunk"),
        ([[1.0]], [[1.0], [2.0]], "different numbers"),
        ([[1.0, 2.0], [1.0]], [[1.0], [1.0, 2.0]], "different numbers"),
        ([[1.0], [1.0]], [[math.nan], [1.0]], "not finite"),
        ([[1.0], [1.0]], [[math.inf], [1.0]], "not finite"),
    ],
)
def test_broken_chunks_are_refused(base: Chunks, other: Chunks, problem: str) -> None:
    """Nothing, unequal work and non-finite scores are errors, never figures."""
    with pytest.raises(MeasurementError, match=problem):
        delta_ppl(base, other)


@pytest.mark.parametrize(
    ("base", "other", "problem"),
    [
        ([1.0, 2.0], [1.0], "cannot be paired"),
        ([1.0, 0.0], [1.0, 2.0], "not positive"),
        ([], [], "no samples"),
    ],
)
def test_broken_samples_are_refused(base: list[float], other: list[float], problem: str) -> None:
    """Samples that no clock can have produced are errors."""
    with pytest.raises(MeasurementError, match=problem):
        paired_change_interval(base, other)
