import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.stats.noise import Noise, fail_rate_floor, noise_of
from pytest_asperf.errors import MeasurementError


def _simulated(
    *, pairs: int, run_sd: float, load_sd: float, second: float = 0.0, repeats: int = 8
) -> Noise:
    """Return the noise found in A/A pairs of the given noise, half of them in each order."""
    rng = random.Random(5)  # noqa: S311  # repeatable

    def side(shift: float) -> list[float]:
        load = shift + rng.gauss(0, load_sd)
        return [1e9 * math.exp(load + rng.gauss(0, run_sd)) for _ in range(repeats)]

    by_turn = [(side(0.0), side(second)) for _ in range(pairs)]
    by_side = [runs if number % 2 else runs[::-1] for number, runs in enumerate(by_turn)]
    log_ratios = [math.log(sum(b) / sum(a)) for a, b in by_side]
    return noise_of(log_ratios, by_side, by_turn, reloads=True)


def test_the_three_parts_of_the_noise_are_told_apart() -> None:
    """The spread, the position effect and the load's share are found in 400 simulated pairs."""
    noise = _simulated(pairs=400, run_sd=0.02, load_sd=0.03, second=0.01)
    assert noise.load_sd == pytest.approx(0.03, rel=0.1)
    assert noise.position.low < math.expm1(0.01) < noise.position.high
    assert noise.position.low > 0
    # The loads of both and the means of 8 runs, and the position effect with either sign.
    expected = math.sqrt(2 * (0.03**2 + 0.02**2 / 8) + 0.01**2)
    assert noise.spread == pytest.approx(expected, rel=0.15)


def test_loads_that_add_nothing_have_no_offset() -> None:
    """If the runs within a load explain all, next to nothing is left for the load."""
    noise = _simulated(pairs=400, run_sd=0.05, load_sd=0.0)
    assert noise.load_sd is not None
    assert noise.load_sd < 0.01


@pytest.mark.parametrize(("repeats", "reloads"), [(1, True), (3, False)])
def test_a_load_offset_that_cannot_be_told_is_none(repeats: int, *, reloads: bool) -> None:
    """One run for each load, or one load for all runs, shows nothing about loads."""
    runs = [([1.0 + 0.01 * n] * repeats, [1.0] * repeats) for n in range(5)]
    assert noise_of([0.0] * 5, runs, runs, reloads=reloads).load_sd is None


def test_one_pair_has_no_spread() -> None:
    """A spread of one pair is an error, and not 0."""
    with pytest.raises(MeasurementError, match="1 pairs"):
        noise_of([0.1], [([1.0], [2.0])], [([1.0], [2.0])], reloads=True)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n))))
def test_the_floor_is_the_rate_at_which_so_many_fails_are_rare(counts: tuple[int, int]) -> None:
    """At the limit, as many FAILs or more happen in exactly 0.5 % of cases."""
    fails, n = counts
    assert binom.sf(fails - 1, n, fail_rate_floor(fails, n)) == pytest.approx(0.005)


def test_no_fail_shows_no_rate() -> None:
    """Without a FAIL the rate may be 0; without a check there is no rate at all."""
    assert fail_rate_floor(0, 50) == 0
    with pytest.raises(ValueError, match="1 FAILs of 0"):
        fail_rate_floor(1, 0)
