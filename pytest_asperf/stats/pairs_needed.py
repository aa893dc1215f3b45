"""How many pairs a test of two costs needs, and which slowdown a number of pairs can exclude."""

from __future__ import annotations

import math
from typing import Final

#: Times (spread / ln(1 + tolerance))^2: the pairs that decide 85 % of A/A runs or more, by
#: simulation.
_PAIRS_AT_UNIT_EFFECT: Final = 40


def least_pairs(sd: float, tolerance: float, alpha: float = 0.05, beta: float = 0.05) -> int:
    """Return Wald's bound: the mean pairs that any sequential test needs at these error rates.

    ``2 kl(alpha, 1 - beta) (sd / ln(1 + tolerance))^2`` for normal differences, 5.3 times the
    squared ratio at 5 % (Wald & Wolfowitz, Ann. Math. Statist. 19, 1948), and not less than the
    tosses of a fair coin that a probability of `alpha` takes.
    """
    kl = (1 - beta) * math.log((1 - beta) / alpha) + beta * math.log(beta / (1 - alpha))
    tosses = math.log2(1 / alpha)
    return math.ceil(max(2 * kl * (sd / math.log1p(tolerance)) ** 2, tosses))


def detectable_tolerance(sd: float, pairs: int) -> float:
    """Return the tolerance that `PairedTest` decides within `pairs` in 85 % of A/A runs or more.

    Args:
        sd: `robust_sd` of the log cost ratios of equal builds on this machine.
        pairs: the budget.
    """
    return math.expm1(sd * math.sqrt(_PAIRS_AT_UNIT_EFFECT / pairs))
