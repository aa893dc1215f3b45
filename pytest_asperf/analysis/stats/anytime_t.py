"""Student's t-test that may be looked at after every value, of a finite number of values.

The values are drawn without replacement. The evidence against "their mean is at most m" is the
likelihood ratio of an effect of unknown size to none, on what a change of scale leaves as it is,
and so it needs no variance: Wang & Ramdas, arXiv 2310.03722, section 4, with the half of their
Gaussian mixture above 0. Derivation, and what it assumes: ``docs/statistics.md``.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

from scipy.special import stdtr  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.stats.sequential_frame import crossing

#: Precision of the effects mixed over, in units of the values' standard deviation: most are of one
#: standard deviation, which few values show.
_PRECISION: Final = 1.0


def log_evidence(n: int, total: int, correlation: float) -> float:
    """Log of the e-value that `n` of more values, `total`, give against a mean.

    The correlation is ``t / sqrt(t^2 + n - 1)`` of the t-statistic against that mean, at least 0.
    """
    share = _share(n, total)
    rest = 1 - share * correlation**2
    slope = correlation * math.sqrt(n * share / rest)
    return math.log(2 * math.sqrt(1 - share) * stdtr(n, slope)) - n / 2 * math.log(rest)


@cache
def half_width(n: int, total: int, error: float) -> float:
    """How far a mean must lie from the seen mean to be excluded, in roots of the sum of squares.

    Infinite if no `n` values of `total` could exclude any. The error is the probability that the
    mean of all values is ever excluded.
    """

    def missing(correlation: float) -> float:
        return -math.log(error) - log_evidence(n, total, correlation)

    if missing(1) >= 0:
        return math.inf
    correlation = crossing(missing, 0, 1)
    return correlation / math.sqrt((1 - correlation**2) * _independent(n, total))


def _independent(n: int, total: int) -> float:
    """Values of an endless supply that would show the mean as well as `n` of `total`."""
    return n * total / (total - n)


def _share(n: int, total: int) -> float:
    """The weight of the seen values compared with the mixture."""
    independent = _independent(n, total)
    return independent / (independent + _PRECISION)
