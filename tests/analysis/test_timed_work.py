"""Guards on the state after timed runs, with rows for each case."""

import math

import pytest

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import Consequence, GuardFinding

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


def row(likeliest: int, share: float = 0.9, n: int = 256) -> tuple[float, ...]:
    """Return log-probabilities of which one has a share, and the others the rest alike."""
    rest = math.log((1 - share) / (n - 1))
    return tuple(math.log(share) if i == likeliest else rest for i in range(n))


def predicting(tokens: list[int]) -> dict[int, tuple[float, ...]]:
    """Return rows that predict the tokens which follow."""
    return {position: row(token) for position, token in enumerate(tokens[1:])}


def _invalid(finding: GuardFinding | None) -> bool:
    return finding is not None and finding.consequence is Consequence.INVALID


def test_the_same_rows_pass() -> None:
    """A run whose state equals its tokens' own computation is sound."""
    rows = predicting(TOKENS)
    assert guards.skipped_work(8, 8, rows) is None
    assert guards.other_logits(TOKENS, rows, rows, {}) is None
    assert guards.unlike_baseline(rows, rows, 0.0) is None


def test_a_memory_of_another_length_is_invalid() -> None:
    """A memory with fewer tokens than were timed; one without a report proves nothing."""
    assert _invalid(guards.skipped_work(8, 3, predicting(TOKENS)))
    assert guards.skipped_work(8, None, predicting(TOKENS)) is None


def test_rows_that_are_all_alike_are_invalid() -> None:
    """One row alone is no repetition."""
    assert _invalid(guards.skipped_work(8, 8, {2: row(1), 5: row(1)}))
    assert guards.skipped_work(8, 8, {5: row(1)}) is None


def test_other_logits_at_one_position_are_invalid() -> None:
    """The finding names the position, and the figures."""
    rows = predicting(TOKENS)
    finding = guards.other_logits(TOKENS, rows | {3: row(200)}, rows, rows)
    assert _invalid(finding)
    assert finding is not None
    assert "at position 3" in finding.found
    assert guards.unlike_baseline(rows | {3: row(200)}, rows, 0.0) is not None


@pytest.mark.parametrize(("own", "is_sound"), [(0.0, False), (0.01, False), (0.03, True)])
def test_coarser_weights_are_not_the_baselines(own: float, *, is_sound: bool) -> None:
    """As at Q4_K_M for F16, 0.044 nats, unless the baseline's own logits differ as much."""
    rows = predicting(TOKENS)
    others = {position: row(token, 0.77) for position, token in enumerate(TOKENS[1:])}
    assert 0.03 < guards.kld(rows[0], others[0]) < 0.06
    assert (guards.unlike_baseline(others, rows, own) is None) is is_sound
    assert guards.other_logits(TOKENS, others, rows, rows) is None


def test_one_position_in_ten_is_not_a_changed_model() -> None:
    """As of a sound release on a card, whose logits differ by 0.76 nats at one position of ten."""
    tokens = list(range(1, 22))
    rows = predicting(tokens)
    far = {position: row(token, 0.27) for position, token in enumerate(tokens[1:])}
    assert 0.7 < guards.kld(rows[3], far[3]) < 1
    for places, is_sound in (([3], True), ([3, 9], True), ([3, 9, 12], False)):
        others = rows | {place: far[place] for place in places}
        assert (guards.unlike_baseline(others, rows, 0.0) is None) is is_sound


def test_small_differences_at_all_positions_pass_up_to_the_limit() -> None:
    """Rounding differs between batches and single tokens."""
    rows = predicting(TOKENS)
    near = {position: row(TOKENS[position + 1], 0.85) for position in rows}
    far = {position: row(TOKENS[position + 1], 0.6) for position in rows}
    assert guards.other_logits(TOKENS, near, rows, {}) is None
    assert _invalid(guards.other_logits(TOKENS, far, rows, rows))


def test_weights_that_predict_nothing_are_a_warning() -> None:
    """Random weights turn rounding into other logits, so the right ones are unknown."""
    computed = {position: row(100 + position) for position in range(7)}
    left = {position: row(200 - position) for position in range(7)}
    finding = guards.other_logits(TOKENS, left, computed, computed)
    assert finding is not None
    assert finding.consequence is Consequence.WARNING
    assert guards.predicts_nothing(TOKENS, computed)
    assert not guards.predicts_nothing(TOKENS, predicting(TOKENS))


def test_logits_that_ignore_the_context_are_invalid() -> None:
    """Equal to the bit after another beginning; any difference is enough."""
    assert _invalid(guards.ignored_context(8, 4, row(1), row(1)))
    assert guards.ignored_context(8, 4, row(1), row(1, 0.9000001)) is None


@pytest.mark.parametrize(("new_ms", "is_repeated"), [(10, False), (19.9, False), (25, True)])
def test_new_tokens_take_about_as_long(new_ms: float, is_repeated: bool) -> None:  # noqa: FBT001
    """A run that is far faster than one of new tokens repeats a result."""
    assert (guards.repeated_result(10e6, new_ms * 1e6) is not None) is is_repeated


@pytest.mark.parametrize(
    ("timed_ms", "call_ms", "is_unpaid"),
    [(100, 101, False), (100, 151, False), (100, 160, True), (5, 8, False), (0.1, 37, True)],
)
def test_a_call_lasts_hardly_longer_than_its_run(
    timed_ms: float, call_ms: float, *, is_unpaid: bool
) -> None:
    """Work after the clock has stopped, and a clock that is too slow, keep the caller waiting."""
    assert _invalid(guards.untimed_work(1e6 * timed_ms, 1e6 * call_ms)) is is_unpaid


def test_runs_of_the_same_tokens_end_alike() -> None:
    """Rounding is allowed, and an engine may show no logits."""
    assert guards.unequal_runs([]) is None
    assert guards.unequal_runs([14.0, None, 13.8]) is None
    assert guards.unequal_runs([6.124, 6.292, 6.2]) is None
    assert guards.unequal_runs([1.0, 1.2]) is None
    assert _invalid(guards.unequal_runs([14.0, 14.0, 12.5]))
    assert _invalid(guards.unequal_runs([-14.0, -12.5]))


def test_an_unchecked_gain_is_open_beyond_twice() -> None:
    """The share that a build may gain needs no proof of its work."""
    assert guards.unchecked_gain(1.9) is None
    finding = guards.unchecked_gain(2.5)
    assert finding is not None
    assert finding.consequence is Consequence.INCONCLUSIVE


def test_no_call_puts_its_work_off() -> None:
    """Tokens decoded eight at once, or two; a stalled call and a short run are no sign."""
    assert _invalid(guards.put_off_work([1e3] * 7 + [2e6]))
    assert _invalid(guards.put_off_work([1e3, 4e5] * 8))
    assert guards.put_off_work([2e5] * 15 + [2e7]) is None
    assert guards.put_off_work([1e3, 1e3, 2e6]) is None


_LISTED = {f"t{n}": math.log(share) for n, share in enumerate((0.5, 0.2, 0.1, 0.1))}


@pytest.mark.parametrize(
    ("other", "is_like"),
    [
        (_LISTED, True),
        ({token: value + 0.01 for token, value in _LISTED.items()}, True),
        ({**dict(list(_LISTED.items())[:3]), "another": math.log(0.09)}, True),
        (dict(list(_LISTED.items())[:2]), True),
        (dict.fromkeys(_LISTED, 0.0), False),
        ({"t0": 0.0}, False),
        ({"another": 0.0}, False),
        (dict.fromkeys(_LISTED, -103.0), False),
        (dict.fromkeys(_LISTED, math.log(0.225)), False),
        ({f"u{n}": value for n, value in enumerate(_LISTED.values())}, False),
    ],
)
def test_listed_tokens_have_a_divergence_that_no_list_makes_negative(
    other: dict[str, float], *, is_like: bool
) -> None:
    """Zeros, one certain token and equal ones are unlike; a shorter list is not."""
    found = guards.kld_of_listed(_LISTED, other)
    assert found >= -1e-9
    assert (found <= guards.MOST_UNLIKE_LISTED) is is_like
