"""Sequential tests of ΔPPL and KLD: chunks in random order until the limit is decided.

Both models score the same chunks, so there is no random order of runs to bet on; the order of the
chunks is random. The question is about the whole corpus, a finite number of chunks. The test is
Student's t in a form that is valid after every chunk, of the chunks seen and of two bad ones that
are added: the likelihood ratio of an effect of unknown size to none, for statistics that a change
of scale leaves unchanged, so that it needs no variance (Wang & Ramdas, arXiv 2310.03722, section 4,
with the half of their Gaussian mixture above 0). Derivation, error rates and assumptions:
``docs/statistics.md``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Final, Required, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.limit_verdict import LEAST_LIMIT
from pytest_asperf.analysis.metrics import ChunkScore
from pytest_asperf.analysis.outcome import Decision, Outcome
from pytest_asperf.analysis.stats.chunk_intervals import LEAST_CHUNKS
from pytest_asperf.analysis.stats.estimate import SHARE, Estimate
from pytest_asperf.analysis.stats.sequential_frame import (
    ALPHA,
    BETA,
    GATE_ALPHA,
    ErrorOptions,
    SequentialTest,
    crossing,
    nothing_to_estimate,
)
from pytest_asperf.errors import MeasurementError

Floats = float | NDArray[np.float64]

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


#: Bad chunks that are added to those seen. Text that harms a model is rare, and in many orders the
#: first chunks have none of it. With 2, exponential differences keep 5 %; see docs/statistics.md.
_BAD_CHUNKS: Final = 2
#: Least distance of a bad chunk from the mean, in multiples of the limit's logarithm: differences
#: that are all alike do not show that the next one is.
_LEAST_DISTANCE: Final = 0.8


_LARGEST_LIMIT: Final = 1e6


@dataclass(frozen=True, slots=True)
class SeenChunks:
    """The basis of an interval; arrays have one value for each of many corpora."""

    n: int  #: chunks seen
    mean: Floats  #: of their differences
    squares: Floats  #: sum of the squared distances from `mean`
    above: Floats  #: the largest distance above `mean`
    below: Floats  #: the largest distance below it

    @classmethod
    def of(cls, differences: Sequence[float]) -> SeenChunks:
        """The figures of one corpus."""
        mean = fmean(differences)
        squares = sum((difference - mean) ** 2 for difference in differences)
        return cls(
            len(differences), mean, squares, max(differences) - mean, mean - min(differences)
        )

    def interval(
        self, total: int, log_limit: float, *, alpha: float, beta: float
    ) -> tuple[Floats, Floats]:
        """Means of all `total` chunks that are not excluded; valid at every n at once.

        Args:
            total: more than were seen.
            log_limit: log of the PPL ratio at the limit, which scales the least distance.
            alpha: probability that the mean is ever below the interval.
            beta: probability that it is ever above.
        """
        least = _LEAST_DISTANCE * log_limit
        swapped = replace(self, mean=-self.mean, above=self.below, below=self.above)
        return -_upper(swapped, total, least, alpha), _upper(self, total, least, beta)


def _upper(seen: SeenChunks, total: int, least: float, error: float) -> Floats:
    """The upper bound, with the mean and the sum of squares of the seen and the bad chunks."""
    above, below = np.maximum(seen.above, least), np.maximum(seen.below, least)
    distance = above * np.maximum(1, above / below)
    share = _BAD_CHUNKS / (seen.n + _BAD_CHUNKS)
    spread = np.sqrt(seen.squares + seen.n * share * distance**2)
    bound: Floats = seen.mean + share * distance + half_width(seen.n, total, error) * spread
    return bound


class ChunkOptions(ErrorOptions, total=False):
    """Options of each test of chunks."""

    n_chunks_total: Required[int]  #: chunks of the corpus, all of the same number of tokens
    min_chunks: int  #: no verdict before this many


class ChunksTest(SequentialTest):
    """Adds one chunk's value at a time until their mean is shown to be below a limit, or not.

    PASS means that the mean over the whole corpus is below `limit`, FAIL that it is not. After the
    last chunk it is known. Before, either verdict is wrong with a probability of at most `beta` or
    `alpha`, if the chunks come in random order and their values are not strongly skewed.

    Args:
        limit: upper limit of the mean.
        n_chunks_total: chunks of the corpus, all of the same number of tokens.
        alpha: bound on a wrong FAIL.
        beta: bound on a wrong PASS.
        min_chunks: no verdict before this many; none at all where the corpus is shorter.
        comparisons: how many tests share `alpha` (Bonferroni).
        unit: of the values, which are then at least 0; empty for differences.
        named: a value's name, for a reader.
    """

    def __init__(
        self,
        limit: float,
        *,
        n_chunks_total: int,
        alpha: float = ALPHA,
        beta: float = BETA,
        min_chunks: int = LEAST_CHUNKS,
        comparisons: int = 1,
        unit: str = "",
        named: str,
    ) -> None:
        super().__init__(alpha=alpha, beta=beta, comparisons=comparisons)
        if min(n_chunks_total, min_chunks) < 1:
            raise ValueError(
                f"n_chunks_total={n_chunks_total} and min_chunks={min_chunks} must be at least 1"
            )
        self._limit = self.limit = limit
        self.unit = unit
        self._named = named
        self.n_chunks_total = n_chunks_total
        self.min_chunks = min_chunks

    def update(self, value: float) -> Decision | None:
        """Add a chunk's value and return the outcome.

        Raises:
            MeasurementError: the value is not finite; the state is unchanged.
            RuntimeError: the outcome has been returned already.
        """
        self._require_open()
        if not math.isfinite(value):
            raise MeasurementError(
                f"the {self._named} of the chunk drawn as number {self.n + 1} is {value!r}",
                why=f"the {self._named} of a chunk is a finite number",
                remedy="score this chunk again with both models and look at their logs",
            )
        # Rounding puts the KLD of two builds of one arithmetic at -1e-10.
        self._values.append(max(value, 0.0) if self.unit else value)
        self._outcome = self._decide()
        return self._outcome

    @property
    def interval(self) -> tuple[float, float]:
        """Means of the whole corpus not excluded; valid at every n at once.

        Infinite while there are too few chunks to exclude any.
        """
        return self._interval_of(self.n)

    @property
    def expected_chunks_left(self) -> int:
        """Chunks that decide it if they are like those seen; 0 once it is decided."""
        if self._outcome is not None:
            return 0
        if not self._values:
            return min(self.min_chunks, self.n_chunks_total)
        numbers = range(max(self.n + 1, self.min_chunks), self.n_chunks_total)

        def decides(n: int) -> bool:
            return self._decided_by(*self._interval_of(n)) is not None

        # More chunks like these narrow the interval: once they decide, further ones do too.
        needed = numbers.start + bisect_left(numbers, x=True, key=decides)
        return min(needed, self.n_chunks_total) - self.n

    def _interval_of(self, n: int) -> tuple[float, float]:
        """The interval of so many chunks that are like those seen."""
        seen = SeenChunks.of(self._values)
        if n >= self.n_chunks_total:
            return float(seen.mean), float(seen.mean)
        seen = replace(seen, n=n, squares=seen.squares * n / seen.n)
        low, high = seen.interval(
            self.n_chunks_total, self._limit, alpha=self._alpha, beta=self._beta
        )
        # A KLD and a share are sizes; a difference has no unit.
        return max(float(low), 0.0 if self.unit else -math.inf), float(high)

    def _decided_by(self, low: float, high: float) -> Decision | None:
        if low > self._limit:
            return Decision.FAIL
        return Decision.PASS if high < self._limit else None

    @property
    def estimate(self) -> Estimate:
        """The mean with `interval`: of this corpus, not of text beyond it."""
        if not self._values:
            raise nothing_to_estimate("no chunk was scored", "allow more time, or a longer corpus")
        low, high = self.interval
        whole = (
            "the whole corpus"
            if low == high
            else f"anytime-valid t on {self.n_chunks_total} chunks"
        )
        return Estimate(
            fmean(self._values),
            low,
            high,
            self.n,
            method=f"mean of each chunk's {self._named}, {whole}",
            unit=self.unit,
            counted="chunks",
            confidence=1.0 if low == high else 1 - self._alpha - self._beta,
        )

    def _decide(self) -> Decision | None:
        if self.n < self.min_chunks:
            return None
        if self.n == self.n_chunks_total:
            return Decision.PASS if fmean(self._values) < self._limit else Decision.FAIL
        return self._decided_by(*self.interval)


class PairedPplTest(ChunksTest):
    """Adds a chunk's mean ``NLL_candidate - NLL_baseline`` (nats) until ΔPPL is decided.

    Args:
        limit: ΔPPL to stay below, as a fraction.
        options: the others of `ChunksTest`.
    """

    def __init__(self, limit: float = 0.01, **options: Unpack[ChunkOptions]) -> None:
        if not LEAST_LIMIT <= limit <= _LARGEST_LIMIT:
            raise ValueError(
                f"limit must lie between {LEAST_LIMIT:g} and {_LARGEST_LIMIT:g}, not {limit}"
            )
        super().__init__(math.log1p(limit), named="NLL difference", **options)
        self.limit = limit

    @property
    def estimate(self) -> Estimate:
        """ΔPPL with `interval`: of this corpus, not of text beyond it."""
        return super().estimate.change_of_log()


class DriftTest:
    """Adds a chunk's KLD and changed top tokens until both are shown to be small, or one is not.

    Args:
        max_kld: mean KLD to stay below, nats.
        max_changed: share of changed top tokens to stay below.
        own_kld: the baseline's own mean KLD, nats, if the limits were derived from it.
        options: as of `ChunksTest`; both tests share `alpha`.
    """

    def __init__(
        self,
        max_kld: float,
        max_changed: float,
        *,
        own_kld: float | None = None,
        **options: Unpack[ChunkOptions],
    ) -> None:
        self._options: ChunkOptions = {"alpha": GATE_ALPHA, **options, "comparisons": 2}
        #: the test of the mean KLD
        self.kld = ChunksTest(max_kld, unit="nats", named="mean KLD", **self._options)
        named = "share of changed top tokens"
        #: the test of the share of positions with another likeliest token
        self.changed = ChunksTest(max_changed, unit=SHARE, named=named, **self._options)
        self.largest = 0.0  #: KLD of the position where it is largest so far, nats
        self.min_chunks = self.kld.min_chunks
        self.n_chunks_total = self.kld.n_chunks_total
        self.own_kld = own_kld
        self._scores: list[ChunkScore] = []

    @property
    def n(self) -> int:
        """The chunks so far."""
        return len(self._scores)

    @property
    def expected_chunks_left(self) -> int:
        """Chunks that decide it if they are like those seen; 0 once it is decided."""
        if self.outcome is not None:
            return 0
        return max(test.expected_chunks_left for test in (self.kld, self.changed))

    @property
    def is_near(self) -> bool:
        """True if there are chunks for a verdict, and a mean is above half of its limit."""
        halves = (test.estimate.point > test.limit / 2 for test in (self.kld, self.changed))
        return self.n >= self.min_chunks and any(halves)

    def within(self, max_kld: float, max_changed: float, own_kld: float) -> DriftTest:
        """The test of the same chunks with other limits, derived from the baseline's own KLD."""
        test = DriftTest(max_kld, max_changed, own_kld=own_kld, **self._options)
        for score in self._scores:
            test.update(score)
        return test

    def update(self, score: ChunkScore) -> Decision | None:
        """Add a chunk's score, which was compared with the baseline, and return the outcome."""
        self._scores.append(score)
        self.largest = max(self.largest, *score.kld)
        values = fmean(score.kld), 1 - fmean(score.same_top)
        for test, value in zip((self.kld, self.changed), values, strict=True):
            if test.outcome is None:
                test.update(value)
        return self.outcome

    @property
    def outcome(self) -> Decision | None:
        """FAIL if either is, PASS if both are, or None while more chunks are needed."""
        outcomes = {self.kld.outcome, self.changed.outcome}
        if Decision.FAIL in outcomes:
            return Decision.FAIL
        return None if None in outcomes else Decision.PASS

    @property
    def outcome_if_stopped(self) -> Outcome:
        """The verdict without further chunks."""
        return Outcome(self.outcome or Outcome.INCONCLUSIVE)
