"""A sequential test of ΔPPL: chunks in random order until one side of the limit is shown.

Both models score the same chunks, so there is no coin to bet on; what is random is which chunk
comes next. The question is about the whole corpus, a finite number of chunks. The test is Student's
t in a form that may be looked at after every chunk, of the chunks seen and of two bad ones that are
added. Derivation, error rates and what they rest on: ``docs/statistics.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_asperf.analysis.limit_verdict import parse_percent
from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.stats.anytime_t import half_width
from pytest_asperf.analysis.stats.chunk_intervals import LEAST_CHUNKS
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.stats.sequential_frame import (
    ALPHA,
    BETA,
    SequentialTest,
    nothing_to_estimate,
)
from pytest_asperf.errors import ConfigError, MeasurementError, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = float | NDArray[np.float64]

#: Bad chunks that are added to those seen. Text that harms a model is rare, and in many orders the
#: first chunks have none of it. With 2, exponential differences keep 5 %; see docs/statistics.md.
_BAD_CHUNKS: Final = 2
#: Least distance of a bad chunk from the mean, in multiples of the limit's logarithm: differences
#: that are all alike do not show that the next one is.
_LEAST_DISTANCE: Final = 0.8


#: The smallest limit, a fraction; rounding would decide what is below it.
_SMALLEST_LIMIT: Final = 1e-6
_LARGEST_LIMIT: Final = 1e6


def parse_ppl_limit(value: object, *, where: str) -> float:
    """A limit of ΔPPL that `PairedPplTest` can decide, as a fraction; see `parse_percent`."""
    limit = parse_percent(value, where=where)
    if limit < _SMALLEST_LIMIT:
        raise ConfigError(
            f"{where}: {shown(value)} is too small a limit",
            why="two scores of one model may differ by as much from rounding alone",
            remedy=f'write "{100 * _SMALLEST_LIMIT:.4f}%" or more',
        )
    return limit


@dataclass(frozen=True, slots=True)
class SeenChunks:
    """The basis of an interval; arrays hold one value for each of many corpora.

    Attributes:
        n: chunks seen.
        mean: of their differences.
        squares: sum of the squared distances from `mean`.
        above: the largest distance above `mean`.
        below: the largest distance below it.
    """

    n: int
    mean: Floats
    squares: Floats
    above: Floats
    below: Floats

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


class PairedPplTest(SequentialTest):
    """Takes the mean NLL difference of one chunk at a time until there is an outcome.

    PASS means that ΔPPL over the whole corpus is below `limit`, FAIL that it is not. After the last
    chunk it is known. Before, either verdict is wrong with a probability of at most `beta` or
    `alpha`, if the chunks come in random order and their differences are not strongly skewed.

    Args:
        limit: ΔPPL to stay below, as a fraction.
        n_chunks_total: chunks of the corpus, all of the same number of tokens.
        alpha: bound on a wrong FAIL.
        beta: bound on a wrong PASS.
        min_chunks: no verdict before this many; none at all where the corpus is shorter.
        comparisons: how many tests share `alpha` (Bonferroni).
    """

    def __init__(
        self,
        limit: float = 0.01,
        *,
        n_chunks_total: int,
        alpha: float = ALPHA,
        beta: float = BETA,
        min_chunks: int = LEAST_CHUNKS,
        comparisons: int = 1,
    ) -> None:
        if not _SMALLEST_LIMIT <= limit <= _LARGEST_LIMIT:
            raise ValueError(
                f"limit must lie between {_SMALLEST_LIMIT:g} and {_LARGEST_LIMIT:g}, not {limit}"
            )
        super().__init__(alpha=alpha, beta=beta, comparisons=comparisons)
        if min(n_chunks_total, min_chunks) < 1:
            raise ValueError(
                f"n_chunks_total={n_chunks_total} and min_chunks={min_chunks} must be at least 1"
            )
        self._limit = math.log1p(limit)
        self.limit = limit
        self.n_chunks_total = n_chunks_total
        self.min_chunks = min_chunks

    def update(self, difference: float) -> Outcome | None:
        """Take a chunk's mean ``NLL_candidate - NLL_baseline`` (nats) and return the outcome.

        Raises:
            MeasurementError: the difference is not finite; the state is unchanged.
            RuntimeError: the outcome has been returned already.
        """
        self._require_open()
        if not math.isfinite(difference):
            raise MeasurementError(
                f"the NLL difference of the chunk drawn as number {self.n + 1} is {difference!r}",
                why="a mean of NLL differences is a finite number",
                remedy="score this chunk again with both models and look at their logs",
            )
        self._values.append(difference)
        self._outcome = self._decide()
        return self._outcome

    @property
    def interval(self) -> tuple[float, float]:
        """Mean NLL differences of the whole corpus not excluded, in nats; valid at every n at once.

        Infinite while there are too few chunks to exclude any.
        """
        if self.n == self.n_chunks_total:
            mean = fmean(self._values)
            return mean, mean
        low, high = SeenChunks.of(self._values).interval(
            self.n_chunks_total, self._limit, alpha=self._alpha, beta=self._beta
        )
        return float(low), float(high)

    @property
    def estimate(self) -> Estimate:
        """ΔPPL with `interval`: of this corpus, not of text beyond it."""
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
            method=f"mean of paired NLL differences, {whole}",
            unit="",
            counted="chunks",
            confidence=1.0 if low == high else 1 - self._alpha - self._beta,
        ).change_of_log()

    def _decide(self) -> Outcome | None:
        if self.n < self.min_chunks:
            return None
        if self.n == self.n_chunks_total:
            return Outcome.PASS if fmean(self._values) < self._limit else Outcome.FAIL
        low, high = self.interval
        if low > self._limit:
            return Outcome.FAIL
        return Outcome.PASS if high < self._limit else None
