"""Sequential tests that a ratio, or a difference, of two costs is within limits."""

import math
from collections.abc import Iterator
from statistics import median
from typing import Final, Unpack

from pytest_asperf.analysis.outcome import Decision
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.stats.sequential import PairOptions, PairSequence, pairs_left

#: Pairs that the first guess of the ratio's distance from a limit counts for.
_PRIOR_WEIGHT: Final = 3

#: A limit that is further from 1 is no ratio of costs.
_LARGEST: Final = 1e6


class RatioTest(PairSequence):
    """Adds log cost ratios of pairs until a ratio is shown to be within limits, or not to be.

    PASS if the whole of `interval` is within the limits, FAIL if none of it is. With a constant
    ratio the interval is valid at every n at once, so either verdict is wrong with a probability of
    at most `alpha` or `beta`, whenever it is returned.

    Args:
        at_least: lower limit of candidate / baseline; 0 for none.
        at_most: upper limit; infinite for none.
        options: as of `PairedTest`; `alpha` is the bound on a verdict by the lower bound of the
            ratio, `beta` on one by the upper bound.

    Raises:
        ValueError: there is no limit, no room between the two, or one is out of range.
    """

    def __init__(
        self, at_least: float = 0.0, at_most: float = math.inf, **options: Unpack[PairOptions]
    ) -> None:
        super().__init__(**options)
        given = [limit for limit in (at_least, at_most) if 0 < limit < math.inf]
        in_range = all(1 / _LARGEST <= limit <= _LARGEST for limit in given)
        if not (given and in_range and 0 <= at_least < at_most):
            raise ValueError(f"a ratio from {at_least} to {at_most} cannot be tested")
        self._low = math.log(at_least) if at_least else -math.inf
        self._high = math.log(at_most) if at_most < math.inf else math.inf

    @property
    def expected_pairs_left(self) -> int | None:
        """Pairs still needed if the evidence grows as it has; None if it does not grow."""
        if self._outcome in {Decision.PASS, Decision.FAIL}:
            return 0
        to_pass = max(self._left(seen, error) for seen, error in self._within())
        left = min(to_pass, *(self._left(seen, error) for seen, error in self._beyond()))
        return math.ceil(max(left, self.min_pairs - self.n, 1)) if left < _LARGEST else None

    def evidence_for_fail(self) -> float:
        """The e-value of a FAIL for too high a ratio; 0 if that is not a FAIL."""
        return self.evidence_above(self._high) if self._high < math.inf else 0.0

    def _steepness_for(self, sd: float) -> float:
        # As in a zone that is as wide as the ratio's distance from the nearest limit, which is one
        # standard deviation before it is known.
        limits = [limit for limit in (self._low, self._high) if math.isfinite(limit)]
        distances = [abs(median(self._values) - limit) for limit in limits] if self.n else [sd]
        distance = (self.n * min(distances) + _PRIOR_WEIGHT * sd) / (self.n + _PRIOR_WEIGHT)
        return distance / sd**2

    def _decided(self) -> Decision | None:
        if all(seen >= 1 / error for seen, error in self._within()):
            return Decision.PASS
        is_beyond = any(seen >= 1 / error for seen, error in self._beyond())
        return Decision.FAIL if is_beyond else None

    def _evidence_shares(self, n: int) -> tuple[float, float]:
        for_fail = max(seen * error for seen, error in self._beyond(n))
        return for_fail, min(seen * error for seen, error in self._within(n))

    def _within(self, n: int | None = None) -> Iterator[tuple[float, float]]:
        """The evidence that the ratio keeps each limit, with the error that it may have."""
        if self._low > -math.inf:
            yield self.evidence_above(self._low, n), self._alpha
        if self._high < math.inf:
            yield self.evidence_below(self._high, n), self._beta

    def _beyond(self, n: int | None = None) -> Iterator[tuple[float, float]]:
        """The evidence that the ratio is beyond each limit, of all pairs so far."""
        if self._low > -math.inf:
            yield self.evidence_below(self._low, n), self._beta
        if self._high < math.inf:
            yield self.evidence_above(self._high, n), self._alpha

    def _left(self, seen: float, error: float) -> float:
        return pairs_left(self.n, math.log(max(seen, 1.0)), math.log(1 / error))


class DifferenceTest(RatioTest):
    """Adds pairs of figures until their difference is shown to be within limits, or not to be.

    It bets as a `RatioTest` does, on ``(candidate - baseline) / scale``. The scale is the first
    pair's baseline; that pair is not among the evidence, because the limits depend on it.

    Args:
        at_least: lower limit of candidate - baseline, in their unit; -infinity for none.
        at_most: upper limit; infinite for none.
        unit: of both figures.
        budget: the other arguments of a `RatioTest`.

    Raises:
        ValueError: there is no limit, or no room between the two.
    """

    def __init__(
        self, at_least: float, at_most: float, *, unit: str, **budget: Unpack[PairOptions]
    ) -> None:
        super().__init__(**budget, at_most=1.0)
        if not at_least < at_most or not (math.isfinite(at_least) or math.isfinite(at_most)):
            raise ValueError(f"a difference from {at_least} to {at_most} cannot be tested")
        self._given = at_least, at_most
        self._unit = unit
        self._scale = math.nan

    def take_figures(self, *, baseline: float, candidate: float) -> None:
        """Add one pair's figures, for the next `decide`."""
        if math.isnan(self._scale):
            self._scale = baseline
            self._low, self._high = (limit / baseline for limit in self._given)
        else:
            self.take((candidate - baseline) / self._scale)

    @property
    def estimate(self) -> Estimate:
        """The difference in its unit, with `interval`."""
        found = self._estimate("sequential bets on the signs of paired differences")
        return found.scaled(self._scale, self._unit)

    @property
    def course(self) -> list[tuple[float, float]]:
        """The evidence after each pair, as of `PairSequence`; none after the first."""
        return [(0.0, 0.0), *super().course]
