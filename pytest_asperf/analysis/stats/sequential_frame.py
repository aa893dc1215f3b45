"""The common part of sequential tests: values are added until an outcome is reached."""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, TypedDict

from pytest_asperf.analysis.outcome import Decision, Outcome
from pytest_asperf.errors import MeasurementError

#: Bound on a wrong FAIL, and on a wrong PASS, unless another is given.
ALPHA: Final = 0.05
BETA: Final = 0.05
#: Bound on a FAIL of equal builds in any timed check of a gate: its reader will look for a cause.
GATE_ALPHA: Final = 0.01
#: Pairs after which a test gives up, unless another number is given.
MAX_PAIRS: Final = 120
_EXACT: Final = 1e-13


class ErrorOptions(TypedDict, total=False):
    """The error rates of a test, each of which has a default."""

    alpha: float  #: bound on a wrong FAIL
    beta: float  #: bound on a wrong PASS
    comparisons: int  #: how many tests share `alpha`


class SequentialTest:
    """The values seen so far, the error rates, and the outcome once decided.

    A gate of several tests passes only if each passes, so a wrong PASS of the gate needs one
    particular test to err, and `beta` is not shared (Berger, Technometrics 24, 1982). It fails if
    any test fails: `alpha` is shared by all.

    Args:
        alpha: bound on a wrong FAIL of any of the tests.
        beta: bound on a wrong PASS of this test.
        comparisons: the number of tests that share `alpha`: as by Bonferroni, unless `share_with`
            allows more.
    """

    def __init__(self, *, alpha: float, beta: float, comparisons: int) -> None:
        if not (0 < alpha < 0.5 and 0 < beta < 0.5):
            raise ValueError(f"alpha={alpha} and beta={beta} must lie between 0 and 0.5")
        if comparisons < 1:
            raise ValueError(f"comparisons must be at least 1, not {comparisons}")
        self.confidence = 1 - 2 * max(alpha, beta)  #: of the interval, at least
        self._shared_alpha = alpha
        self._comparisons = comparisons
        self._alpha = alpha / comparisons
        self._beta = beta
        self._values: list[float] = []
        self._outcome: Decision | None = None

    @property
    def n(self) -> int:
        """The number of values so far."""
        return len(self._values)

    @property
    def values(self) -> tuple[float, ...]:
        """The values so far, in their order."""
        return tuple(self._values)

    @property
    def outcome(self) -> Decision | None:
        """The decision, or None while more values are needed."""
        return self._outcome

    @property
    def outcome_if_stopped(self) -> Outcome:
        """The verdict without further values."""
        return Outcome(self.outcome or Outcome.INCONCLUSIVE)

    def share_with(self, others: Sequence[float]) -> None:
        """Use the threshold of closed testing for a FAIL, from the next value on.

        Its arguments are the known e-values for a FAIL of the other tests that share the error.
        """
        self._alpha = 1 / needed_evidence(others, self._shared_alpha, self._comparisons)

    def _require_open(self) -> None:
        if self._outcome is not None:
            raise RuntimeError(f"already decided after {self.n} values: {self._outcome}")

    def _bounds(
        self,
        above: Callable[[float], float],
        below: Callable[[float], float],
        lowest: float,
        highest: float,
    ) -> tuple[float, float]:
        """The effects that neither e-value excludes; infinite in a direction without evidence.

        Args:
            above: the e-value against "at most this effect"; it falls with the effect.
            below: the e-value against "at least this effect"; it rises with it.
            lowest: where the lower bound is searched from.
            highest: where the upper bound is searched to.
        """
        low, high = -math.inf, math.inf
        if above(lowest) >= 1 / self._alpha:
            low = crossing(lambda m: above(m) - 1 / self._alpha, lowest, highest)
        if below(highest) >= 1 / self._beta:
            high = crossing(lambda m: 1 / self._beta - below(m), lowest, highest)
        return low, high


def nothing_to_estimate(what: str, remedy: str) -> MeasurementError:
    """The error for an estimate from no values."""
    return MeasurementError(what, why="there is nothing to estimate from", remedy=remedy)


def crossing(falling: Callable[[float], float], low: float, high: float) -> float:
    """The root of a falling function, to 1e-13; one of its ends if it has none.

    Chandrupatla's method (Advances in Engineering Software 28, 1997): the inverse parabola through
    three points if they are nearly monotone, otherwise bisection. It needs a quarter of bisection's
    evaluations, and a gate searches for crossings after each pair.
    """
    a, at_a, b, at_b = high, falling(high), low, falling(low)
    if at_b <= 0 or at_a > 0:
        return low if at_b <= 0 else high
    share = 0.5
    while True:
        x = a + share * (b - a)
        at_x = falling(x)
        # The sign changes between a, the newest point, and b; c is the point that was left.
        if (at_x > 0) == (at_a > 0):
            c, at_c = a, at_a
        else:
            c, at_c, b, at_b = b, at_b, a, at_a
        a, at_a = x, at_x
        if abs(b - a) <= _EXACT:
            return a
        share = _next_share((a, b, c), (at_a, at_b, at_c))


def _next_share(at: tuple[float, float, float], values: tuple[float, float, float]) -> float:
    """The distance from the newest point to the next one, across the crossing."""
    (a, b, c), (at_a, at_b, at_c) = at, values
    if at_c not in (at_a, at_b):
        place, value = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
        if value**2 < place and (1 - value) ** 2 < 1 - place:
            near = at_a / (at_b - at_a) * at_c / (at_b - at_c)
            far = (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
            least = _EXACT / abs(b - a) / 2
            return min(1 - least, max(least, near + far))
    return 0.5


def needed_evidence(others: Sequence[float], alpha: float, tests: int) -> float:
    """The e-value with which a test may reject, given those of the others.

    Closed testing with the arithmetic mean (Vovk & Wang, Ann. Statist. 49, 2021): in every set of
    tests that includes this one, the mean e-value has to reach ``1 / alpha``. Among sets of k + 1
    tests, the one with the k smallest others has the highest threshold. At most ``tests / alpha``,
    which is Bonferroni's; less if other tests have evidence of their own.

    Args:
        others: e-values of other tests, each that of its last value if it has ended.
        alpha: bound on the probability that any true null hypothesis is rejected.
        tests: the number of tests that share it. Those whose e-value is not given count as 0.
    """
    unknown = tests - 1 - len(others)
    if unknown < 0:
        raise ValueError(f"{len(others)} e-values of {tests - 1} other tests")
    smallest = accumulate(sorted([0.0] * unknown + list(others)), initial=0.0)
    return max((k + 1) / alpha - evidence for k, evidence in enumerate(smallest))
