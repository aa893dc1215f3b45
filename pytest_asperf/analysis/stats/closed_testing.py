"""Which evidence one of several tests needs, so that all of them together err with one alpha."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def needed_evidence(others: Sequence[float], alpha: float, tests: int) -> float:
    """The e-value with which a test may reject, given those of the others.

    Closed testing with the arithmetic mean (Vovk & Wang, Ann. Statist. 49, 2021): in every set of
    tests that includes this one, the mean e-value has to reach ``1 / alpha``. Of the sets of k + 1
    tests, the one with the k smallest others asks for most. At most ``tests / alpha``, which is
    Bonferroni's; less where other tests have evidence of their own.

    Args:
        others: e-values of other tests, each that of its last value where it has ended.
        alpha: bound on the probability that any true null hypothesis is rejected.
        tests: how many share it. Those whose e-value is not given count as 0.
    """
    unknown = tests - 1 - len(others)
    if unknown < 0:
        raise ValueError(f"{len(others)} e-values of {tests - 1} other tests")
    smallest = accumulate(sorted([0.0] * unknown + list(others)), initial=0.0)
    return max((k + 1) / alpha - evidence for k, evidence in enumerate(smallest))
