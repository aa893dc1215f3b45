import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad  # type: ignore[import-untyped]  # scipy ships no types
from scipy.stats import binom  # type: ignore[import-untyped]
from scipy.stats import t as student

from pytest_asperf.analysis.stats.ppl_sequential import half_width, log_evidence


@pytest.mark.parametrize(("n", "total"), [(3, 4), (5, 10), (9, 10), (20, 400)])
def test_evidence_averages_one_at_the_true_mean(n: int, total: int) -> None:
    """Under Student's distribution of t the e-value has a mean of 1: it is no free money."""

    def weighted(t: float) -> float:
        evidence = math.exp(log_evidence(n, total, t / math.sqrt(t * t + n - 1)))
        return float(student.pdf(t, n - 1)) * evidence

    average, _ = quad(weighted, -2000, 2000, limit=2000, points=[-10, 0, 10])
    assert average == pytest.approx(1, abs=1e-3)


@given(st.integers(4, 300), st.integers(1, 300), st.floats(0.001, 0.4))
def test_a_mean_at_the_half_width_is_just_excluded(n: int, more: int, error: float) -> None:
    """The half-width is where the e-value reaches 1 / error."""
    width = half_width(n, n + more, error)
    if width < math.inf:
        independent = n * (n + more) / more
        correlation = width * math.sqrt(independent / (1 + independent * width**2))
        assert log_evidence(n, n + more, correlation) == pytest.approx(-math.log(error), abs=1e-6)


@given(st.integers(5, 100), st.integers(1, 100), st.floats(0.001, 0.4), st.floats(1.01, 2))
def test_half_width_falls_with_error_and_with_what_is_seen(
    n: int, more: int, error: float, times: float
) -> None:
    """A larger error, or a smaller rest of the corpus, makes the interval no wider."""
    width = half_width(n, n + more, error)
    assert half_width(n, n + more, min(0.49, error * times)) <= width
    assert half_width(n, n + more + 1, error) >= width


def test_few_values_exclude_nothing() -> None:
    """No three values are evidence of 20, however alike."""
    assert half_width(3, 100, 0.05) == math.inf
    assert half_width(5, 100, 0.05) < math.inf


def test_the_mean_of_normal_values_is_rarely_ever_excluded() -> None:
    """Over all looks at 40 values drawn without replacement, at most 5 % of orders exclude it."""
    rng = np.random.default_rng(3)
    corpora, total = 2000, 40
    values = rng.normal(size=(corpora, total))
    values -= values.mean(axis=1, keepdims=True)
    ever = np.zeros(corpora, bool)
    for n in range(2, total):
        mean, deviation = values[:, :n].mean(axis=1), values[:, :n].std(axis=1)
        ever |= mean + half_width(n, total, 0.05) * deviation * math.sqrt(n) < 0
    assert ever.sum() <= binom.ppf(0.999, corpora, 0.05)
    assert ever.any()
