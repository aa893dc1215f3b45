"""How many pairs a test of two costs needs, and which slowdown a number of pairs can exclude."""

from __future__ import annotations

import math
from typing import Final

from pytest_asperf.analysis.stats.estimate import percent_text

#: Times (spread / ln(1 + tolerance))^2: the pairs that decide 85 % of A/A runs or more, by
#: simulation.
_PAIRS_AT_UNIT_EFFECT: Final = 20

#: A machine is fit for gates where this many pairs, a quarter of a gate's default, can decide this
#: tolerance: five times the default one. In a third of its pairs, equal builds would differ by more
#: than that: other work on the machine, which comes and goes, and not its own noise.
_BUDGET_PAIRS: Final = 30
_LARGEST_TOLERANCE: Final = 0.25


def least_pairs(sd: float, tolerance: float, alpha: float = 0.05, beta: float = 0.05) -> int:
    """Wald's bound: the mean pairs that any sequential test needs at these error rates.

    ``2 kl(alpha, 1 - beta) (sd / ln(1 + tolerance))^2`` for normal differences, 5.3 times the
    squared ratio at 5 % (Wald & Wolfowitz, Ann. Math. Statist. 19, 1948), and not less than the
    tosses of a fair coin that a probability of `alpha` takes.
    """
    kl = (1 - beta) * math.log((1 - beta) / alpha) + beta * math.log(beta / (1 - alpha))
    tosses = math.log2(1 / alpha)
    return math.ceil(max(2 * kl * (sd / math.log1p(tolerance)) ** 2, tosses))


def detectable_tolerance(sd: float, pairs: int) -> float:
    """The tolerance that `PairedTest` decides within `pairs` in 85 % of A/A runs or more.

    `sd` is the `robust_sd` of log cost ratios of equal builds on this machine.
    """
    return math.expm1(sd * math.sqrt(_PAIRS_AT_UNIT_EFFECT / pairs))


def pairs_deciding(sd: float, tolerance: float) -> int:
    """The pairs within which `PairedTest` decides a tolerance in 85 % of A/A runs or more.

    The inverse of `detectable_tolerance`.
    """
    return math.ceil(_PAIRS_AT_UNIT_EFFECT * (sd / math.log1p(tolerance)) ** 2)


def is_fit(sd: float) -> bool:
    """True if a machine of this noise can decide anything that a gate is used for."""
    # In logarithms: the spread of a file that something else wrote may be too large for exp.
    log_tolerance = sd * math.sqrt(_PAIRS_AT_UNIT_EFFECT / _BUDGET_PAIRS)
    return log_tolerance <= math.log1p(_LARGEST_TOLERANCE)


def unfit_text(sd: float) -> str:
    """The condition of `is_fit`, with the tolerance that this spread allows."""
    detectable = percent_text(detectable_tolerance(sd, _BUDGET_PAIRS))
    largest = percent_text(_LARGEST_TOLERANCE)
    return (
        f"{_BUDGET_PAIRS} pairs can decide a tolerance of {detectable} here; "
        f"a gate needs {largest} or less"
    )
