"""A sequential test of paired costs: is the candidate slower, or within the tolerance?

A pair is baseline and candidate measured in processes of their own, in an order drawn by a fair
coin, and enters as ``ln(candidate / baseline)`` of their costs (lower is better). Bets are placed
on the sign of each difference before it is seen. A gambler who bets on a fair coin multiplies a
stake by 20 with a probability of at most 1/20, however long the game (Ville's inequality), so a
grown stake is valid evidence after every pair. Derivation, limits and error rates:
``docs/statistics.md``. Source of the bets: Waudby-Smith & Ramdas, arXiv 2010.09686.
"""

import math
from collections.abc import Sequence
from statistics import median
from typing import Final, Unpack

from pytest_asperf.analysis.outcome import Decision
from pytest_asperf.analysis.stats.estimate import Estimate, percent_text
from pytest_asperf.analysis.stats.sequential_frame import (
    ALPHA,
    BETA,
    MAX_PAIRS,
    ErrorOptions,
    SequentialTest,
    crossing,
    nothing_to_estimate,
)
from pytest_asperf.errors import MeasurementError

#: Weight and stake of each gambler. The bold one decides quiet machines in 5 pairs, the cautious
#: one survives outliers: 0.9 * 1.96^5 + 0.1 * 1.6^5 = 27.1.
_BETS: Final = ((0.9, 0.96), (0.1, 0.6))

#: Prior standard deviation of the differences, the number of pairs that it counts for, and its
#: minimum.
_PRIOR_SD: Final = 0.03
_PRIOR_WEIGHT: Final = 6
_LEAST_SD: Final = 0.0005
_NORMAL_MAD: Final = 1.4826
#: Differences count as at most so many robust standard deviations from their median.
_LARGEST_DEVIATION: Final = 2.5

#: The smallest slowdown that can FAIL is at most this much below the tolerance.
_FLOOR_DEPTH: Final = 0.05

#: A bet's score is as good as 1 where its argument is this large.
_SURE: Final = 20.0

#: Beyond the log ratio of any two floats: such a "difference" is no ratio of costs.
_LARGEST_LOG_RATIO: Final = 1500.0


def log_cost_ratio(*, candidate: float, baseline: float) -> float:
    """``ln(candidate / baseline)`` of two positive costs in the same unit, such as ns per token."""
    for name, cost in (("candidate", candidate), ("baseline", baseline)):
        if not (cost > 0 and math.isfinite(cost)):
            raise MeasurementError(
                f"the {name}'s cost is {cost!r}",
                why="a ratio of costs needs two positive, finite numbers",
                remedy="look at the engine's log of this pair and measure it again",
            )
    return math.log(candidate) - math.log(baseline)


def predicted_sd(earlier: Sequence[float]) -> float:
    """The standard deviation expected of the next difference, from the `earlier` ones alone.

    Outliers are cut, and it is shrunk in the logarithm towards 3 % as if by 6 pairs. It follows no
    shift and no sign of the differences, so that mirrored data give mirrored bets.
    """
    if len(earlier) < 2:
        return _PRIOR_SD
    middle, largest = median(earlier), _LARGEST_DEVIATION * robust_sd(earlier)
    squares = [min(abs(d - middle), largest) ** 2 for d in earlier]
    weight = len(earlier) - 1
    seen = max(math.sqrt(math.fsum(squares) / weight), _LEAST_SD)
    logs = _PRIOR_WEIGHT * math.log(_PRIOR_SD) + weight * math.log(seen)
    return math.exp(logs / (_PRIOR_WEIGHT + weight))


def robust_sd(differences: Sequence[float]) -> float:
    """1.4826 MAD: the standard deviation of normal noise, without its outliers."""
    middle = median(differences)
    return _NORMAL_MAD * median([abs(d - middle) for d in differences])


def evidence(differences: Sequence[float], steepness: Sequence[float], shift: float) -> float:
    """E-value against "the effect is at most `shift`", all in logs of ratios.

    The mean over the gamblers of ``prod(1 + stake * tanh(steepness_i * (d_i - shift)))``. It falls
    with `shift`. With all signs turned it is the e-value against "at least".
    """
    scores = [math.tanh(k * (d - shift)) for d, k in zip(differences, steepness, strict=True)]
    return sum(
        weight * math.prod([1 + stake * score for score in scores]) for weight, stake in _BETS
    )


class PairOptions(ErrorOptions, total=False):
    """Options of each test of pairs."""

    min_pairs: int  #: no verdict before this many pairs
    max_pairs: int  #: INCONCLUSIVE after this many


class PairSequence(SequentialTest):
    """Log cost ratios of pairs in the order they ran, and the evidence in them.

    Each kind of test decides in `_decide`, which also gives the outcome of a stopped test.

    Args:
        alpha: as of `SequentialTest`.
        beta: as of `SequentialTest`.
        min_pairs: no verdict before this many pairs.
        max_pairs: INCONCLUSIVE after this many.
        comparisons: how many tests share `alpha`.
    """

    def __init__(
        self,
        *,
        alpha: float = ALPHA,
        beta: float = BETA,
        min_pairs: int = 5,
        max_pairs: int = MAX_PAIRS,
        comparisons: int = 1,
    ) -> None:
        super().__init__(alpha=alpha, beta=beta, comparisons=comparisons)
        if not 1 <= min_pairs <= max_pairs:
            raise ValueError(f"need 1 <= min_pairs={min_pairs} <= max_pairs={max_pairs}")
        self.min_pairs = min_pairs
        self.max_pairs = max_pairs
        self._steepness: list[float] = []

    def update(self, difference: float) -> Decision | None:
        """Add one pair's ``ln(candidate / baseline)`` and return the outcome once decided.

        Raises:
            MeasurementError: the difference is no finite log ratio; the state is unchanged.
            RuntimeError: the outcome has been returned already.
        """
        self.take(difference)
        return self.decide()

    def take(self, difference: float) -> None:
        """Add one pair's ``ln(candidate / baseline)``, for the next `decide`.

        Raises:
            MeasurementError: the difference is no finite log ratio; the state is unchanged.
            RuntimeError: the outcome has been returned already.
        """
        self._require_open()
        require_log_ratio(difference, self.n + 1)
        self._steepness.append(self._steepness_for(predicted_sd(self._values)))
        self._values.append(difference)

    def decide(self) -> Decision | None:
        """The outcome, once the pairs so far decide or the maximum is reached."""
        if self.n >= self.min_pairs:
            self._outcome = self._decided()
            if self._outcome is None and self.n >= self.max_pairs:
                self._outcome = Decision.INCONCLUSIVE
        return self._outcome

    @property
    def interval(self) -> tuple[float, float]:
        """The effects not excluded, as logs of cost ratios; valid at every n at once.

        Each bound is wrong with the probability of its verdict: a FAIL's lower bound is at least
        the smallest slowdown that can FAIL (for an assertion, its limit), a PASS's upper bound at
        most ``ln(1 + tolerance)``. A bound is infinite while the pairs are too few for it.
        """
        if not self._values:
            return -math.inf, math.inf
        return self._bounds(self.evidence_above, self.evidence_below, *self._bracket())

    @property
    def estimate(self) -> Estimate:
        """The change of cost with `interval`; its point has equal evidence in both directions."""
        return self._estimate("sequential bets on the signs of paired log ratios").change_of_log()

    def _estimate(self, method: str) -> Estimate:
        if not self._values:
            raise nothing_to_estimate("no pair was measured", "allow more time or pairs")
        low, high = self.interval
        point = crossing(
            lambda m: self.evidence_above(m) - self.evidence_below(m), *self._bracket()
        )
        return Estimate(
            point,
            low,
            high,
            self.n,
            method=method,
            unit="",
            counted="pairs",
            confidence=self.confidence,
        )

    @property
    def course(self) -> list[tuple[float, float]]:
        """Evidence for a FAIL and for a PASS after each pair, as multiples of the need."""
        return [self._evidence_shares(n) for n in range(1, self.n + 1)]

    def evidence_above(self, effect: float, n: int | None = None) -> float:
        """E-value of the first `n` pairs against "slower by `effect` at most", a log ratio."""
        return evidence(self._values[:n], self._steepness[:n], effect)

    def evidence_below(self, effect: float, n: int | None = None) -> float:
        """E-value of the first `n` pairs against "slower by `effect` or more"."""
        return evidence([-d for d in self._values[:n]], self._steepness[:n], -effect)

    def _bracket(self) -> tuple[float, float]:
        """Effects at which every difference has its full score, of either sign."""
        widest = _SURE / min(self._steepness)
        return min(self._values) - widest, max(self._values) + widest

    def _steepness_for(self, sd: float) -> float:
        """How steeply the next bet follows its difference, which is expected to vary by `sd`."""
        return 1 / sd

    def _evidence_shares(self, n: int) -> tuple[float, float]:
        raise NotImplementedError

    def _decided(self) -> Decision | None:
        raise NotImplementedError


class PairedTest(PairSequence):
    """Adds log cost ratios of pairs until there is an outcome.

    PASS: a slowdown of `tolerance` is excluded. FAIL: a slowdown above `fails_above` is shown, and
    the tolerance is not excluded. `fails_above`, the smallest slowdown that can FAIL, is 0 for
    tolerances up to 5 %, otherwise a cost ratio of ``(1 + tolerance) / 1.05``. INCONCLUSIVE: the
    budget ran out. If each pair has processes of its own and a fair coin draws its order, equal
    builds FAIL with a probability of at most `alpha`. With a constant effect, so does one below
    `fails_above`, and one of `tolerance` or more passes with at most `beta`. Between `fails_above`
    and `tolerance` either verdict is possible.

    Args:
        tolerance: the slowdown to be excluded, as a fraction of the baseline's cost.
        options: `alpha`, the bound on FAIL if the slowdown is below `fails_above`; `beta`, on PASS
            if the candidate is slower by `tolerance`; `min_pairs`, before which no verdict is
            given; `max_pairs`, after which it is INCONCLUSIVE; `comparisons`, how many tests share
            `alpha`.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(self, tolerance: float = 0.05, **options: Unpack[PairOptions]) -> None:
        if not 1e-6 <= tolerance <= 1e6:
            raise ValueError(f"a tolerance of {tolerance} is beyond what can be tested")
        super().__init__(**options)
        self.tolerance = tolerance
        self._limit = math.log1p(tolerance)
        self._floor = max(0.0, self._limit - math.log1p(_FLOOR_DEPTH))
        self.fails_above = math.expm1(self._floor)

    @property
    def evidence_slower(self) -> float:
        """E-value against "slower by `fails_above` at most"."""
        return self.evidence_above(self._floor)

    @property
    def evidence_within(self) -> float:
        """E-value against "slower by the tolerance or more"."""
        return self.evidence_below(self._limit)

    @property
    def is_within(self) -> bool:
        """True if a slowdown of the tolerance is excluded: the whole interval lies below it."""
        return self.evidence_within >= 1 / self._beta

    @property
    def wald_bound(self) -> int | None:
        """Wald's `least_pairs` at the spread seen so far, outliers aside; None below 3 pairs."""
        if self.n < 3:
            return None
        return least_pairs(robust_sd(self._values), self.tolerance, self._alpha, self._beta)

    @property
    def expected_pairs_left(self) -> int | None:
        """Pairs still needed if the evidence grows as it has; None if it does not grow.

        Not capped by the budget, so that an INCONCLUSIVE can name the number that would decide it.
        """
        if self._outcome in {Decision.PASS, Decision.FAIL}:
            return 0
        sides = (self.evidence_within, 1 / self._beta), (self.evidence_slower, 1 / self._alpha)
        left = min(pairs_left(self.n, math.log(max(e, 1.0)), math.log(need)) for e, need in sides)
        return math.ceil(max(left, self.min_pairs - self.n, 1)) if left < math.inf else None

    def _steepness_for(self, sd: float) -> float:
        # For normal differences about one bound of the zone: the likelihood ratio to the other
        # bound given their size, the bet whose stake grows fastest (Kelly).
        return (self._limit - self._floor) / sd**2

    def _decided(self) -> Decision | None:
        # An interval within the tolerance proves the assertion, independent of its other evidence.
        if self.is_within:
            return Decision.PASS
        return Decision.FAIL if self.evidence_for_fail() >= 1 / self._alpha else None

    def evidence_for_fail(self, effect: float | None = None, n: int | None = None) -> float:
        """The e-value behind a FAIL, against "slower by `effect` at most", or `fails_above`."""
        return self.evidence_above(self._floor if effect is None else effect, n)

    def _evidence_shares(self, n: int) -> tuple[float, float]:
        for_pass = self._beta * self.evidence_below(self._limit, n)
        return self._alpha * self.evidence_for_fail(n=n), for_pass


def require_log_ratio(difference: float, pair: int) -> None:
    """Raise MeasurementError for a number that is no log ratio of costs."""
    if not abs(difference) < _LARGEST_LOG_RATIO:
        raise MeasurementError(
            f"the log cost ratio of pair {pair} is {difference!r}",
            why="a ratio of two costs is a finite number",
            remedy="look at the engine's log of this pair and measure it again",
        )


def pairs_left(n: int, evidence_seen: float, needed: float) -> float:
    """Pairs still needed if the evidence grows as it did over the first `n`."""
    if evidence_seen >= needed:
        return 0.0
    return (needed / evidence_seen - 1) * n if evidence_seen > 0 else math.inf


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
    squared ratio at 5 % (Wald & Wolfowitz, Ann. Math. Statist. 19, 1948), and at least the number
    of tosses of a fair coin for a probability of `alpha`.
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
    # In logarithms: the spread in a damaged file may be too large for exp.
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
