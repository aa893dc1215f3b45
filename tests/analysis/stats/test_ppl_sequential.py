import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.limit_verdict import parse_tolerance
from pytest_asperf.analysis.metrics import ChunkScore
from pytest_asperf.analysis.outcome import Decision
from pytest_asperf.analysis.stats.ppl_sequential import DriftTest, PairedPplTest, SeenChunks
from pytest_asperf.errors import ConfigError, MeasurementError

FIXTURE = Path(__file__).parents[3] / "fixtures" / "ppl_chunks.json"
LIMIT = math.log1p(0.01)

small = st.floats(-0.02, 0.02)


def fed(differences: list[float], total: int, limit: float = 0.01) -> PairedPplTest:
    """Return a test that was given differences until it was decided."""
    test = PairedPplTest(limit, n_chunks_total=total)
    next(filter(None, map(test.update, differences)), None)
    return test


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
        assert outcomes[-1] == (Decision.PASS if mean < LIMIT else Decision.FAIL)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_a_corpus_of_few_chunks_decides_nothing(n: int) -> None:
    """Five chunks are the minimum, also of all: a common trait of four need not be the text's."""
    test = PairedPplTest(n_chunks_total=n)
    outcomes = list(map(test.update, [0.0] * n))
    assert outcomes[-1] == (Decision.PASS if n >= 5 else None)


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
    """A PASS's upper bound is below the limit, a FAIL's lower bound above."""
    test = fed(differences, 80)
    low, high = test.interval
    if test.outcome == Decision.PASS:
        assert high < LIMIT
    if test.outcome == Decision.FAIL:
        assert low > LIMIT


@given(st.lists(small, min_size=6, max_size=40), st.floats(0.001, 0.05), st.floats(1, 4))
def test_a_larger_limit_is_no_harder_to_keep(
    differences: list[float], limit: float, times: float
) -> None:
    """A value shown below a limit is shown below any larger one, and not above it."""
    one, other = (
        PairedPplTest(value, n_chunks_total=80, min_chunks=len(differences))
        for value in (limit, limit * times)
    )
    for difference in differences:
        one.update(difference)
        other.update(difference)
    if one.outcome == Decision.PASS:
        assert other.outcome == Decision.PASS
    if other.outcome == Decision.FAIL:
        assert one.outcome == Decision.FAIL


@given(st.lists(small, min_size=5, max_size=20))
def test_many_corpora_at_once_are_judged_as_one(differences: list[float]) -> None:
    """Arrays of figures, which simulations use, give each corpus its own interval."""
    seen = SeenChunks.of(differences)
    fields = {
        name: np.full(3, getattr(seen, name)) for name in ("mean", "squares", "above", "below")
    }
    low, high = SeenChunks(seen.n, **fields).interval(40, LIMIT, alpha=0.05, beta=0.05)
    test = PairedPplTest(n_chunks_total=40, min_chunks=40)
    for difference in differences:
        test.update(difference)
    # NumPy and Python may round a power differently in the last bit.
    assert (low[1], high[1]) == pytest.approx(test.interval, rel=1e-12)  # type: ignore[index]


@pytest.mark.parametrize("deviation", [0.0, 1e-9, 0.0003, 0.002])
def test_healthy_builds_pass_within_eight_chunks(deviation: float) -> None:
    """Differences that are small against the limit, or none at all, pass soon, not at once."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        test = fed(rng.normal(0, deviation, 40).tolist(), 40)
        assert test.outcome == Decision.PASS
        assert 5 < test.n <= 8


def test_identical_differences_near_the_limit_are_not_decided_early() -> None:
    """Without any spread, a minimum of the scale keeps 0.9 % from passing at 1 % for a while."""
    assert fed([0.9 * LIMIT] * 20, 60).outcome is None
    assert fed([LIMIT * (1 + 1e-9)] * 59, 60).outcome is None


def test_published_q2_k_fails_at_once() -> None:
    """A ruined model fails within a few chunks, however much its chunks differ."""
    published = json.loads(FIXTURE.read_text(encoding="utf-8"))["ppl_by_chunk"]
    differences = np.log(published["Q2_K"]) - np.log(published["F16"])
    test = fed(differences.tolist(), 63)
    assert test.outcome == Decision.FAIL
    assert test.n <= 7
    assert test.estimate.low > 0.01


def test_a_broken_chunk_delays_a_pass() -> None:
    """After one chunk of 0.3 nats, 40 healthy ones do not show that no other is broken."""
    assert fed([0.3] + [-0.01] * 40, 63).outcome is None
    assert fed([0.3] + [-0.01] * 62, 63).outcome == Decision.PASS


@pytest.mark.parametrize("shape", ["normal", "heavy tails", "exponential", "two kinds"])
def test_wrong_verdicts_at_the_limit_are_rare(shape: str) -> None:
    """If the corpus is just at the limit, at most 5 % of orders pass early, or fail."""
    rng = np.random.default_rng(11)
    corpora, total = size = 1000, 30
    values = {
        "normal": lambda: rng.normal(size=size),
        "heavy tails": lambda: rng.standard_t(3, size),
        "exponential": lambda: rng.exponential(size=size),
        "two kinds": lambda: rng.choice([0.0, 1.0], size) + rng.normal(0, 0.2, size),
    }[shape]()
    values = 0.1 * (values - values.mean(axis=1, keepdims=True))
    passed, failed = np.zeros((2, corpora), bool)
    for n in range(5, total):
        part = values[:, :n]
        mean = part.mean(axis=1)
        above, below = part.max(axis=1) - mean, mean - part.min(axis=1)
        seen = SeenChunks(n, mean, part.var(axis=1) * n, above, below)
        low, high = seen.interval(total, LIMIT, alpha=0.05, beta=0.05)
        passed |= (high < 0) & ~failed
        failed |= (low > 0) & ~passed
    assert max(passed.sum(), failed.sum()) <= binom.ppf(0.999, corpora, 0.05)


def test_comparisons_share_the_error_of_a_fail_alone() -> None:
    """Several tests in one gate need more chunks to FAIL, and as many to PASS."""

    def shared(value: float) -> int:
        test = PairedPplTest(n_chunks_total=63, comparisons=14)
        next(filter(None, map(test.update, [value] * 63)))
        return test.n

    assert shared(0.0) == fed([0.0] * 63, 63).n
    assert shared(2 * LIMIT) > fed([2 * LIMIT] * 63, 63).n


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
        parse_tolerance(limit, where="--max-ppl-delta")


@given(st.floats(1e-6, 1e6))
def test_every_limit_that_is_read_can_be_tested(limit: float) -> None:
    """The test accepts what the parser accepts."""
    parsed = parse_tolerance(limit if limit < 1 else f"{100 * limit}%", where="x")
    assert PairedPplTest(parsed, n_chunks_total=5).limit == pytest.approx(limit)


def _scores(klds: list[float], changed: float = 0.0) -> list[ChunkScore]:
    n_changed = round(changed * 100)
    same = (False,) * n_changed + (True,) * (100 - n_changed)
    return [ChunkScore((1.0,) * 100, (kld,) * 100, same) for kld in klds]


@pytest.mark.parametrize(
    ("kld", "changed", "outcome"),
    [
        (0.0, 0.0, Decision.PASS),
        (0.003, 0.02, Decision.PASS),
        (0.05, 0.02, Decision.FAIL),
        (0.003, 0.3, Decision.FAIL),
    ],
)
def test_answers_drift_by_kld_or_by_top_tokens(
    kld: float, changed: float, outcome: Decision
) -> None:
    """Either of them beyond its limit is a FAIL, and both below are a PASS."""
    test = DriftTest(0.01, 0.08, n_chunks_total=40)
    rng = np.random.default_rng(1)
    for score in _scores((kld * rng.uniform(0.8, 1.2, 40)).tolist(), changed):
        if test.update(score) is not None:
            break
    assert test.outcome == outcome
    assert 5 <= test.n < 40
    assert test.kld.interval[0] >= 0


def test_drift_of_a_whole_corpus_is_known() -> None:
    """After the last chunk there is no doubt left."""
    test = DriftTest(0.01, 0.08, n_chunks_total=6)
    for score in _scores([0.009] * 6):
        test.update(score)
    assert test.outcome == Decision.PASS
    assert test.kld.estimate.point == pytest.approx(0.009)
    assert test.kld.estimate.is_exact


def test_a_divergence_that_rounding_puts_below_zero_is_none() -> None:
    """A release with its predecessor's arithmetic gave a KLD of -1.3e-10 on a GPU."""
    test = DriftTest(0.01, 0.08, n_chunks_total=40)
    test.update(ChunkScore(nll=(1.0,), kld=(-1.3e-10,), same_top=(True,)))
    assert (test.kld.estimate.low, test.kld.estimate.point) == (0, 0)
