"""A sequential test of two costs of each pair: its median run pair, and its total time.

The median over a pair's run pairs removes disturbances of a few of them, and also the slow runs of
a build that has two speeds. The total is the time that a user waits for. Derivation:
``docs/statistics.md``.
"""

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev
from typing import Final, Unpack

from pytest_asperf.analysis.outcome import Decision
from pytest_asperf.analysis.stats.intervals import t_half_width
from pytest_asperf.analysis.stats.sequential import PairedTest, PairOptions, require_log_ratio

#: Weight of the total time in the evidence for a slowdown. If run pairs are alike both agree, and
#: sharing costs nothing.
_WEIGHT: Final = 0.25

#: Limit of a run pair's ratio in the total, in multiples of the median ratio: one stall of the
#: machine must not outweigh all other runs.
_LARGEST_STALL: Final = 2.0
#: The limit of a pair's ratio in the mean over all pairs.
_LARGEST_STALLED_PAIR: Final = 1.5


def typical_log_ratio(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """The median over the run pairs of ``ln(candidate / baseline)``."""
    turns = zip(baseline, candidate, strict=True)
    return median(math.log(other / base) for base, other in turns)


def total_log_ratio(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """``ln(total candidate / total baseline)`` over the run pairs, stalls cut to twice.

    Swapping baseline and candidate changes its sign, and a constant factor of one's costs shifts it
    by the factor's logarithm. `PairedTest` needs nothing more of a difference.
    """
    factor = math.exp(typical_log_ratio(baseline, candidate))
    turns = [(base * factor, other) for base, other in zip(baseline, candidate, strict=True)]
    base_total = math.fsum(min(base, _LARGEST_STALL * other) for base, other in turns)
    other_total = math.fsum(min(other, _LARGEST_STALL * base) for base, other in turns)
    return math.log(other_total / base_total) + math.log(factor)


class TotalTimeTest(PairedTest):
    """PASS if median run pair and total time are both within the tolerance; FAIL if one is not.

    Each has its own `PairedTest`. A PASS needs both, so a slowdown by the tolerance, of either,
    passes with a probability of at most `beta`. The evidence for a FAIL is a weighted mean of both:
    one fair coin decides the order of both costs, so with equal builds the mean is a martingale
    too, and reaches ``1 / alpha`` with a probability of at most `alpha`. In addition, a PASS needs
    Student's upper bound of the mean over all pairs within the tolerance: if a pair has one run
    pair, only this bound sees slow pairs.

    Args:
        tolerance: as of `PairedTest`.
        pairs_for_pass: no PASS before this many pairs, unless the budget is smaller.
        options: the others of `PairedTest`.
    """

    def __init__(
        self, tolerance: float = 0.05, *, pairs_for_pass: int = 1, **options: Unpack[PairOptions]
    ) -> None:
        super().__init__(tolerance, **options)
        self._pairs_for_pass = min(pairs_for_pass, self.max_pairs)
        #: has the pairs' totals; its own outcome is not used
        self.total = PairedTest(tolerance, **options)

    def update(self, difference: float, total: float | None = None) -> Decision | None:
        """Add a pair as `take` does, and return the outcome once decided."""
        self.take(difference, total)
        return self.decide()

    def take(self, difference: float, total: float | None = None) -> None:
        """Add a pair's median and total ``ln(candidate / baseline)``.

        Args:
            difference: of the median run pair.
            total: of the sums over the run pairs; equal to the difference if there is one run pair.

        Raises:
            MeasurementError: one is no finite log ratio; the state is unchanged.
            RuntimeError: the outcome has been returned already.
        """
        self._require_open()
        require_log_ratio(difference, self.n + 1)
        self.total.take(difference if total is None else total)
        super().take(difference)

    def share_with(self, others: Sequence[float]) -> None:
        """Use the threshold of closed testing for a FAIL; see `PairedTest`."""
        super().share_with(others)
        self.total.share_with(others)

    @property
    def mean(self) -> tuple[float, float]:
        """The mean log ratio of the totals, stalls cut, and the way to its upper bound."""
        middle, stall = median(self.total.values), math.log(_LARGEST_STALLED_PAIR)
        totals = [max(middle - stall, min(middle + stall, total)) for total in self.total.values]
        n = len(totals)
        error = stdev(totals) / math.sqrt(n) if n > 1 else math.inf
        return fmean(totals), t_half_width(error, n - 1, 1 - 2 * self._beta)

    @property
    def is_held_up(self) -> bool:
        """True if only the mean over all pairs keeps it from a PASS."""
        return self.is_within and self.total.is_within and sum(self.mean) > self._limit

    @property
    def decisive(self) -> PairedTest:
        """The test whose interval decides the verdict."""
        if self.outcome is Decision.FAIL:
            return self._slower
        return self.total if self.is_within and not self.total.is_within else self

    @property
    def parts(self) -> bool:
        """True if median run pair and total time differ: neither interval has the other's point."""
        low, high = self.interval
        total_low, total_high = self.total.interval
        typical, total = (math.log1p(test.estimate.point) for test in (self, self.total))
        return not (low <= total <= high or total_low <= typical <= total_high)

    @property
    def expected_pairs_left(self) -> int | None:
        """As for `PairedTest`; for a PASS also the pairs that the total time needs."""
        both = [super().expected_pairs_left, self.total.expected_pairs_left]
        known = [left for left in both if left is not None]
        if self.is_held_up:
            return self._until_the_mean_is_known()
        if len(known) < len(both) or self._outcome is not None:
            return both[0]
        return max(*known, self._pairs_for_pass - self.n)

    def _until_the_mean_is_known(self) -> int | None:
        mean, half = self.mean
        room = self._limit - mean
        return math.ceil(((half / room) ** 2 - 1) * self.n) if room > 0 else None

    @property
    def _slower(self) -> PairedTest:
        return max((self, self.total), key=lambda test: test.evidence_slower)

    def _decided(self) -> Decision | None:
        if self.evidence_for_fail() >= 1 / self._alpha and not self._slower.is_within:
            return Decision.FAIL
        if self.n < self._pairs_for_pass or not (self.is_within and self.total.is_within):
            return None
        return None if self.is_held_up else Decision.PASS

    def evidence_for_fail(self, effect: float | None = None, n: int | None = None) -> float:
        """The e-value of a FAIL: the weighted mean of both costs'."""
        typical = super().evidence_for_fail(effect, n)
        return (1 - _WEIGHT) * typical + _WEIGHT * self.total.evidence_for_fail(effect, n)

    def _evidence_shares(self, n: int) -> tuple[float, float]:
        for_fail, for_pass = super()._evidence_shares(n)
        return for_fail, min(for_pass, self._beta * self.total.evidence_below(self._limit, n))


class SuiteTest(PairedTest):
    """The total times of a suite, until each limit of the change is decided.

    Its interval is valid at any time; its outcome says only that enough was measured.

    Args:
        limits: of the change, fractions; without one all pairs are used.
        max_pairs: pairs after which it gives up.
    """

    def __init__(self, limits: Sequence[float], max_pairs: int) -> None:
        super().__init__(min_pairs=1, max_pairs=max_pairs)
        self._limits = limits

    @property
    def expected_pairs_left(self) -> None:
        """No forecast: the limits are not those of a slowdown."""

    def _decided(self) -> Decision | None:
        seen = self.estimate
        decided = [seen.shown_above(limit) or seen.shown_at_most(limit) for limit in self._limits]
        return Decision.PASS if decided and all(decided) else None
