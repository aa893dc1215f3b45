"""A sequential test of paired costs: is the candidate slower, or within the tolerance?

A pair is baseline and candidate measured back to back in an order drawn by a fair coin, and enters
as ``ln(candidate / baseline)`` of their costs (lower is better). Bets are placed on the sign of
each difference before it is seen. Whoever bets on a fair coin multiplies a stake by 20 with a
probability of at most 1/20, however long the game (Ville's inequality), so a grown stake is
evidence that may be looked at after every pair. Derivation, limits and error rates:
``docs/statistics.md``. Sources: Waudby-Smith & Ramdas, arXiv 2010.09686, for the bets; Huber,
Ann. Math. Statist. 36 (1965), for the censored likelihood ratio.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.stats.pairs_needed import least_pairs
from pytest_asperf.analysis.stats.sequential_frame import (
    ALPHA,
    BETA,
    SequentialTest,
    crossing,
    nothing_to_estimate,
)
from pytest_asperf.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Weight and stake of each bet. The low stake survives noise, the high one decides quiet machines
#: in 5 pairs: 0.25 * 1.45^5 + 0.75 * 1.9^5 = 20.2.
_BETS: Final = ((0.25, 0.45), (0.75, 0.9))

#: Scale of the differences before any is known, how many pairs it counts for, and the least scale.
_PRIOR_SCALE: Final = 0.03
_PRIOR_WEIGHT: Final = 3
_LEAST_SCALE: Final = 0.0005
_NORMAL_MAD: Final = 1.4826

#: FAIL is shown against a floor, which lies at most this slowdown below the tolerance.
_FLOOR_DEPTH: Final = 0.05

#: The odds for the nearer side of the middle of floor and limit are asked this many times higher
#: than the evidence,
_ODDS_FACTOR: Final = 5
#: and not at all where the evidence is this many times what is needed.
_AMPLE: Final = 10
#: Most log odds that one pair can add: one outlier in five pairs must not decide.
_LARGEST_STEP: Final = 1.5

#: Beyond the log ratio of any two floats: such a "difference" is no ratio of costs.
_LARGEST_LOG_RATIO: Final = 1500.0


def log_cost_ratio(*, candidate: float, baseline: float) -> float:
    """``ln(candidate / baseline)`` of two costs in the same unit, such as ns per token.

    Raises:
        MeasurementError: a cost is not positive and finite.
    """
    for name, cost in (("candidate", candidate), ("baseline", baseline)):
        if not (cost > 0 and math.isfinite(cost)):
            raise MeasurementError(
                f"the {name}'s cost is {cost!r}",
                why="a ratio of costs needs two positive, finite numbers",
                remedy="look at the engine's log of this pair and measure it again",
            )
    return math.log(candidate) - math.log(baseline)


def predicted_scale(earlier: Sequence[float]) -> float:
    """The scale for the next difference, from the `earlier` ones alone.

    1.4826 MAD about the median, shrunk in the logarithm towards 3 % as if by 3 pairs. It follows
    no shift and no sign of the differences, so that mirrored data give mirrored bets.
    """
    if len(earlier) < 2:
        return _PRIOR_SCALE
    weight = len(earlier) - 1
    logs = _PRIOR_WEIGHT * math.log(_PRIOR_SCALE) + weight * math.log(
        max(robust_sd(earlier), _LEAST_SCALE)
    )
    return math.exp(logs / (_PRIOR_WEIGHT + weight))


def robust_sd(differences: Sequence[float]) -> float:
    """1.4826 MAD: the standard deviation of normal noise, without its outliers."""
    middle = median(differences)
    return _NORMAL_MAD * median([abs(d - middle) for d in differences])


def evidence(differences: Sequence[float], scales: Sequence[float], shift: float) -> float:
    """E-value against "the effect is at most `shift`", all in logs of ratios.

    The mean over the bets of ``prod(1 + stake * clip((d_i - shift) / scale_i, -1, 1))``. It falls
    with `shift`. With all signs turned it is the e-value against "at least".
    """
    scores = [
        max(-1.0, min(1.0, (d - shift) / s)) for d, s in zip(differences, scales, strict=True)
    ]
    return sum(
        weight * math.prod([1 + stake * score for score in scores]) for weight, stake in _BETS
    )


class PairSequence(SequentialTest):
    """Log cost ratios of pairs in the order they ran, and the evidence in them.

    A kind of test says when they decide, in `_decide`, and what they show when they are stopped.
    """

    def __init__(
        self,
        *,
        alpha: float,
        beta: float,
        min_pairs: int,
        max_pairs: int,
        comparisons: int,
    ) -> None:
        super().__init__(alpha=alpha, beta=beta, comparisons=comparisons)
        if not 1 <= min_pairs <= max_pairs:
            raise ValueError(f"need 1 <= min_pairs={min_pairs} <= max_pairs={max_pairs}")
        self.min_pairs = min_pairs
        self.max_pairs = max_pairs
        self._scales: list[float] = []

    @property
    def outcome_if_stopped(self) -> Outcome:
        """The verdict without further pairs, by the interval where nothing was decided."""
        if self._outcome is not None:
            return self._outcome
        return self._by_interval() if self.n >= self.min_pairs else Outcome.INCONCLUSIVE

    def update(self, difference: float) -> Outcome | None:
        """Take one pair's ``ln(candidate / baseline)`` and return the outcome once decided.

        Raises:
            MeasurementError: the difference is no finite log ratio; the state is unchanged.
            RuntimeError: the outcome has been returned already.
        """
        self._require_open()
        require_log_ratio(difference, self.n + 1)
        scale = predicted_scale(self._values)
        self._values.append(difference)
        self._scales.append(scale)
        self._outcome = self._decide()
        return self._outcome

    @property
    def interval(self) -> tuple[float, float]:
        """The effects not excluded, as logs of cost ratios; valid at every n at once.

        Each bound errs with the probability of the verdict that rests on it: a FAIL's lower bound
        is at least the floor (of a claim, its limit), a PASS's upper bound at most
        ``ln(1 + tolerance)``. Infinite on a side where the pairs do not suffice yet.
        """
        if not self._values:
            return -math.inf, math.inf
        return self._bounds(
            self.evidence_above, self.evidence_below, *_bracket(self._values, self._scales)
        )

    @property
    def estimate(self) -> Estimate:
        """The relative change of cost with `interval`; its point has equal evidence on both sides.

        Raises:
            MeasurementError: there are no pairs.
        """
        if not self._values:
            raise nothing_to_estimate("no pair was measured", "allow more time or pairs")
        low, high = self.interval
        point = crossing(
            lambda m: self.evidence_above(m) - self.evidence_below(m),
            *_bracket(self._values, self._scales),
        )
        return Estimate.change_from_logs(
            point,
            low,
            high,
            self.n,
            method="sequential bets on the signs of paired log ratios",
            counted="pairs",
            confidence=self.confidence,
        )

    def evidence_above(self, effect: float) -> float:
        """E-value against "slower by `effect` at most", in logs of ratios."""
        return evidence(self._values, self._scales, effect)

    def evidence_below(self, effect: float) -> float:
        """E-value against "slower by `effect` or more", in logs of ratios."""
        return evidence([-d for d in self._values], self._scales, -effect)

    def _decide(self) -> Outcome | None:
        raise NotImplementedError

    def _by_interval(self) -> Outcome:
        raise NotImplementedError


class PairedTest(PairSequence):
    """Takes log cost ratios of pairs until there is an outcome.

    PASS: a slowdown of `tolerance` is excluded. FAIL: a slowdown above the floor is shown, and the
    tolerance is not excluded. The floor is 0 for tolerances up to 5 %, else a cost ratio of
    ``(1 + tolerance) / 1.05``. INCONCLUSIVE: the budget ran out. With the order of each pair drawn
    by a fair coin, equal builds FAIL with a probability of at most `alpha`. With a constant effect,
    so does one below the floor, and one of `tolerance` or more passes with at most `beta`.
    Between floor and `tolerance` either verdict may come.

    Args:
        tolerance: the slowdown to be excluded, as a fraction of the baseline's cost.
        alpha: bound on FAIL where the slowdown is below the floor.
        beta: bound on PASS where the candidate is slower by `tolerance`.
        min_pairs: no verdict before this many pairs.
        max_pairs: INCONCLUSIVE after this many.
        comparisons: how many tests share `alpha`.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        tolerance: float = 0.05,
        *,
        alpha: float = ALPHA,
        beta: float = BETA,
        min_pairs: int = 5,
        max_pairs: int = 60,
        comparisons: int = 1,
    ) -> None:
        if not 1e-6 <= tolerance <= 1e6:
            raise ValueError(f"a tolerance of {tolerance} is beyond what can be tested")
        super().__init__(
            alpha=alpha,
            beta=beta,
            min_pairs=min_pairs,
            max_pairs=max_pairs,
            comparisons=comparisons,
        )
        self.tolerance = tolerance
        self._limit = math.log1p(tolerance)
        self._floor = max(0.0, self._limit - math.log1p(_FLOOR_DEPTH))
        self.floor = math.expm1(self._floor)
        self._log_odds = 0.0

    @property
    def evidence_slower(self) -> float:
        """E-value against "slower by the floor at most"."""
        return self.evidence_above(self._floor)

    @property
    def evidence_within(self) -> float:
        """E-value against "slower by the tolerance or more"."""
        return self.evidence_below(self._limit)

    @property
    def is_within(self) -> bool:
        """Whether a slowdown of the tolerance is excluded: the whole interval lies below it."""
        return self.evidence_within >= 1 / self._beta

    @property
    def wald_bound(self) -> int | None:
        """Wald's `least_pairs` at the spread seen so far, outliers aside; None below 3 pairs."""
        if self.n < 3:
            return None
        return least_pairs(robust_sd(self._values), self.tolerance, self._alpha, self._beta)

    @property
    def expected_pairs_left(self) -> int | None:
        """Pairs still needed if the evidence grows as it has; None where it does not grow.

        Not capped by the budget, so that an INCONCLUSIVE can say what would decide it.
        """
        if self._outcome in {Outcome.PASS, Outcome.FAIL}:
            return 0
        seen, error = self.evidence_within, self._beta
        if self._log_odds > 0:
            seen, error = self.evidence_slower, self._alpha
        needed = 1 / error
        if seen <= 1:
            return None
        for_evidence = pairs_left(self.n, math.log(seen), math.log(needed))
        for_odds = min(
            pairs_left(self.n, abs(self._log_odds), _odds_needed(error)),
            pairs_left(self.n, math.log(seen), math.log(_AMPLE * needed)),
        )
        return math.ceil(max(for_evidence, for_odds, self.min_pairs - self.n, 1))

    def _decide(self) -> Outcome | None:
        self._log_odds += _odds_step(self._values[-1], self._scales[-1], self._floor, self._limit)
        if self.n < self.min_pairs:
            return None
        if self.n >= self.max_pairs:
            return self._by_odds() or self._by_interval()
        return self._by_odds()

    def _by_odds(self) -> Outcome | None:
        """The verdict for which both the evidence and the odds suffice."""
        is_slower = self.is_clearly_slower(self.evidence_slower)
        if self.is_within:
            # An interval within the tolerance proves the claim, whatever else it shows.
            within = self.evidence_within
            is_clear = is_slower or _is_clear(-self._log_odds, within, self._beta)
            return Outcome.PASS if is_clear else None
        return Outcome.FAIL if is_slower else None

    def is_clearly_slower(self, seen: float) -> bool:
        """Whether evidence of this size against the floor suffices, with the odds seen here."""
        return seen >= 1 / self._alpha and _is_clear(self._log_odds, seen, self._alpha)

    def _by_interval(self) -> Outcome:
        if self._is_accepted():
            return Outcome.PASS
        is_above = self.evidence_for_fail(self._limit) >= 1 / self._alpha
        return Outcome.FAIL if is_above else Outcome.INCONCLUSIVE

    def _is_accepted(self) -> bool:
        return self.is_within

    def evidence_for_fail(self, effect: float | None = None) -> float:
        """The e-value that a FAIL rests on, against "slower by `effect` at most", or the floor."""
        return self.evidence_above(self._floor if effect is None else effect)


def require_log_ratio(difference: float, pair: int) -> None:
    """Refuse a number that is no log ratio of costs.

    Raises:
        MeasurementError: it names the pair.
    """
    if not abs(difference) < _LARGEST_LOG_RATIO:
        raise MeasurementError(
            f"the log cost ratio of pair {pair} is {difference!r}",
            why="a ratio of two costs is a finite number",
            remedy="look at the engine's log of this pair and measure it again",
        )


def _bracket(differences: Sequence[float], scales: Sequence[float]) -> tuple[float, float]:
    """Effects at which every difference has its full score, of either sign."""
    widest = max(scales)
    return min(differences) - widest, max(differences) + widest


def _is_clear(odds: float, seen: float, error: float) -> bool:
    """Whether the log odds for a side are clear enough, or the evidence for it is ample."""
    return odds > 0 and (odds >= _odds_needed(error) or seen >= _AMPLE / error)


def _odds_needed(error: float) -> float:
    return math.log(_ODDS_FACTOR / error - 1)


def _odds_step(difference: float, scale: float, floor: float, limit: float) -> float:
    """Censored log likelihood ratio of the tolerance to the floor (Huber 1965)."""
    steepness = min((limit - floor) / scale, _LARGEST_STEP)
    middle = (limit + floor) / 2
    return steepness * max(-1.0, min(1.0, (difference - middle) / scale))


def pairs_left(n: int, evidence_seen: float, needed: float) -> float:
    """Pairs still needed if the evidence grows as it did over the first `n`."""
    if evidence_seen >= needed:
        return 0.0
    return (needed / evidence_seen - 1) * n if evidence_seen > 0 else math.inf
