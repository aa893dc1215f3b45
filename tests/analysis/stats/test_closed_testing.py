"""Closed testing of e-values: one test's threshold, given the evidence of the others."""

import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.outcome import Decision
from pytest_asperf.analysis.stats.sequential import PairedTest
from pytest_asperf.analysis.stats.sequential_frame import needed_evidence
from pytest_asperf.analysis.stats.total_time import TotalTimeTest

ALPHA = 0.05
e_values = st.lists(st.floats(0, 1000), max_size=6)


@given(e_values, st.floats(0, 2000))
def test_it_is_the_mean_of_every_set_that_must_suffice(others: list[float], own: float) -> None:
    """Against the definition: all sets of tests that contain this one."""
    sets = [chosen for k in range(len(others) + 1) for chosen in combinations(others, k)]
    rejects = all((own + sum(chosen)) / (len(chosen) + 1) >= 1 / ALPHA for chosen in sets)
    needed = needed_evidence(others, ALPHA, len(others) + 1)
    assert own == pytest.approx(needed) or (own >= needed) == rejects


@given(e_values, st.integers(0, 5), st.randoms())
def test_bonferroni_is_the_most_and_no_sharing_the_least(
    others: list[float], unknown: int, shuffled: random.Random
) -> None:
    """In any order of the others, some of which are unknown."""
    tests = len(others) + 1 + unknown
    needed = needed_evidence(others, ALPHA, tests)
    assert 1 / ALPHA <= needed <= tests / ALPHA
    shuffled.shuffle(others)
    assert needed_evidence(others, ALPHA, tests) == pytest.approx(needed)


@given(e_values.filter(bool), st.data())
def test_more_evidence_elsewhere_never_asks_for_more(
    others: list[float], data: st.DataObject
) -> None:
    """Knowledge of another test never raises the threshold."""
    tests = len(others) + 1
    more = list(others)
    more[data.draw(st.integers(0, len(others) - 1))] += data.draw(st.floats(0, 100))
    needed = needed_evidence(others, ALPHA, tests)
    assert needed_evidence(more, ALPHA, tests) <= needed + 1e-9
    assert needed <= needed_evidence(others[1:], ALPHA, tests) + 1e-9


def test_more_e_values_than_tests_are_refused() -> None:
    """The count of tests shares the error."""
    with pytest.raises(ValueError, match="3 e-values of 2 other tests"):
        needed_evidence([1.0, 1.0, 1.0], ALPHA, 3)


def gate(effects: list[float], rng: np.random.Generator, *, is_closed: bool) -> list[PairedTest]:
    """Return the decided tests of a gate whose checks run in rotation."""
    cells: list[PairedTest] = [TotalTimeTest(comparisons=len(effects)) for _ in effects]
    while any(cell.outcome is None for cell in cells):
        for cell, effect in zip(cells, effects, strict=True):
            noise = float(0.028 * rng.standard_normal())
            if cell.outcome is not None:
                continue
            if is_closed:
                cell.share_with([c.evidence_for_fail() for c in cells if c is not cell])
            cell.update(effect + noise)
    return cells


def test_where_all_cells_regress_fewer_pairs_decide() -> None:
    """Each check's evidence counts for the others; every verdict is equal."""
    pairs = {}
    for is_closed in (False, True):
        rng = np.random.default_rng(6)
        gates = [gate([0.1] * 14, rng, is_closed=is_closed) for _ in range(6)]
        assert {cell.outcome for cells in gates for cell in cells} == {Decision.FAIL}
        pairs[is_closed] = np.mean([cell.n for cells in gates for cell in cells])
        for cell in (cell for cells in gates for cell in cells):
            assert cell.estimate.low >= 0
            assert cell.estimate.confidence == pytest.approx(0.9)
    assert pairs[True] < 0.85 * pairs[False]


def test_equal_cells_beside_slow_ones_seldom_fail() -> None:
    """Evidence in another check makes a FAIL cheaper, within the error of the whole gate."""
    rng = np.random.default_rng(7)
    gates = [gate([0.1, 0.1, 0.0, 0.0], rng, is_closed=True) for _ in range(60)]
    failed = sum(any(cell.outcome is Decision.FAIL for cell in cells[2:]) for cells in gates)
    assert failed <= binom.ppf(0.999, len(gates), 0.05)
