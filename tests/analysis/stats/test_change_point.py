"""Change points: the place of a planted step, and series without one."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_asperf.analysis.stats.change_point import alarm_threshold, as_series, find_steps

STEP = math.log(1.05)
ONE_SERIES = alarm_threshold()


def _nights(seed: int, n: int = 60, sd: float = 0.0063, correlation: float = 0.0) -> list[float]:
    """Values of runs without a step, AR(1)."""
    noise = np.random.default_rng(seed).standard_normal(n)
    for night in range(1, n):
        noise[night] = correlation * noise[night - 1] + noise[night] * math.sqrt(1 - correlation**2)
    return [sd * float(value) for value in noise]


def _slower(values: list[float], since: int, by: float = STEP) -> list[float]:
    """These runs, slower from one on."""
    return [value + by * (night >= since) for night, value in enumerate(values)]


def test_a_step_is_found_within_two_nights_and_located() -> None:
    """Its size is within its interval, and the interval of runs contains the first one."""
    for seed in range(10):
        (step,) = find_steps(as_series(_slower(_nights(seed), 40)), ONE_SERIES)
        assert step.seen in {41, 42}
        assert step.first <= 40 <= step.last
        assert step.low < step.log_ratio < step.high
        assert step.log_ratio == pytest.approx(STEP, abs=0.01)


def test_a_later_night_changes_no_alarm() -> None:
    """A result shown by some runs is also shown by these runs with more behind them."""
    values = _slower(_nights(3), 40)
    assert not find_steps(as_series(values[:41]), ONE_SERIES)
    seen = {find_steps(as_series(values[:n]), ONE_SERIES)[0].seen for n in range(43, 60, 4)}
    assert len(seen) == 1


def test_two_steps_are_two() -> None:
    """After a step, runs are compared with the new mean."""
    values = _slower(_slower(_nights(5), 20), 40, by=-STEP)
    first, second = find_steps(as_series(values), ONE_SERIES)
    assert (first.index, second.index) == (20, 40)
    assert second.log_ratio < 0 < first.log_ratio


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 1), (0.4, 1), (0.6, 1), (0.8, 2)])
def test_equal_nights_rarely_alarm(correlation: float, most: int) -> None:
    """In 60 runs at most 2 % of series have a false alarm, strongly correlated ones 4 %."""
    alarms = [
        bool(find_steps(as_series(_nights(seed, correlation=correlation)), ONE_SERIES))
        for seed in range(50)
    ]
    assert sum(alarms) <= most


def test_one_bad_night_is_no_step() -> None:
    """A run that is slower by a third, and followed by usual ones, raises no alarm."""
    for bad in (0, 3, 30, 59):
        values = [v + 0.3 * (night == bad) for night, v in enumerate(_nights(7))]
        assert not find_steps(as_series(values), ONE_SERIES)


def test_two_bad_nights_are_no_step_and_a_third_is() -> None:
    """A large step is shown by three runs in a row; one of 5 % by two."""
    for seed in range(5):
        usual = _nights(seed)
        bad = [v + 0.2 * (night in {30, 31}) for night, v in enumerate(usual)]
        assert not find_steps(as_series(bad), ONE_SERIES)
        (step,) = find_steps(as_series(_slower(usual, 40, by=0.2)), ONE_SERIES)
        assert (step.index, step.seen) == (40, 42)


def test_a_bad_night_hides_no_step() -> None:
    """Nor does it widen the spread so far that a step is missed."""
    values = [v + 0.3 * (night in {2, 20}) for night, v in enumerate(_nights(8))]
    (step,) = find_steps(as_series(_slower(values, 40)), ONE_SERIES)
    assert step.index == 40


def test_missing_nights_are_longer_gaps() -> None:
    """A step is found by the runs that exist."""
    numbers = [night for night in range(60) if night % 3]
    values = [_slower(_nights(9), 40)[night] for night in numbers]
    (step,) = find_steps(as_series(values, nights=numbers), ONE_SERIES)
    assert numbers[step.index] == 40


def test_a_noisy_night_counts_for_less() -> None:
    """Two outliers are no step if their own error explains them."""
    values = [v + 0.04 * (night >= 38) for night, v in enumerate(_nights(2, 40))]
    assert find_steps(as_series(values, errors=[0.0063] * 40), ONE_SERIES)
    errors = [0.0063] * 38 + [0.04] * 2
    assert not find_steps(as_series(values, errors=errors), ONE_SERIES)


def test_more_series_need_more_evidence() -> None:
    """The bound is a project's: its series share it."""
    assert alarm_threshold(10) == 10 * alarm_threshold(1)
    assert alarm_threshold(1, alarms_per_year=2) == alarm_threshold(1) / 2
    values = _slower(_nights(3, 20), 18, by=0.06)
    assert find_steps(as_series(values), 50.0)
    assert not find_steps(as_series(values), 1e9)


@pytest.mark.parametrize("n", range(6))
def test_few_nights_show_nothing(n: int) -> None:
    """For any of them."""
    assert not find_steps(as_series([0.0, 0.0, 0.5, 0.0, 0.5][:n]), ONE_SERIES)


def test_identical_nights_are_steady_and_their_step_is_found() -> None:
    """A spread of 0 is no infinite evidence: changes below a tenth of a percent are none."""
    assert not find_steps(as_series([0.1] * 30), ONE_SERIES)
    assert not find_steps(as_series([0.1] * 20 + [0.1005] * 20), ONE_SERIES)
    (step,) = find_steps(as_series([0.1] * 20 + [0.15] * 20), ONE_SERIES)
    assert step.index == step.first == step.last == 20


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(-50, 50, allow_nan=False), max_size=25),
    st.floats(0.5, 20),
)
@example([0, 0, 1, 1, 0, 0, 0, 2, 0, 0, 0], 0.5)
def test_any_values_give_steps_in_order(values: list[float], threshold: float) -> None:
    """Each begins before it is seen, within its interval, and after the step before it."""
    steps = find_steps(as_series(values), threshold)
    for step in steps:
        assert step.first <= step.index <= step.last < len(values)
        assert all(map(math.isfinite, (step.low, step.high)))
    assert [step.index for step in steps] == sorted({step.index for step in steps})
