"""A sequential test of ΔPPL: chunks in random order until one side of the limit is shown.

Both models score the same chunks, so there is no coin to bet on; what is random is which chunk
comes next. The question is about the whole corpus, a finite number of chunks, and what has been
scored of it is known exactly. Source: Waudby-Smith & Ramdas, arXiv 2010.09686, section 5 (betting
without replacement). Derivation, and what rests on `bound`: ``docs/statistics.md``.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.limit_verdict import parse_percent
from pytest_asperf.analysis.outcome import Outcome
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

#: Weight and stake of each bet, the stake as a fraction of the most that cannot be lost in one
#: chunk. Chunks mostly differ by far less than the bound, so nearly all may be staked.
_BETS: Final = ((0.25, 0.5), (0.75, 0.99))

#: The default bound on one chunk's NLL difference, in multiples of the limit's logarithm.
_BOUND_IN_LIMITS: Final = 5


#: The smallest limit, a fraction; rounding would decide what is below it.
_SMALLEST_LIMIT: Final = 1e-6
_LARGEST_LIMIT: Final = 1e6


def parse_ppl_limit(value: object, *, where: str) -> float:
    """A limit of ΔPPL that `PairedPplTest` can decide, as a fraction; see `parse_percent`.

    Raises:
        ConfigError: it is not a percentage or a fraction, or too small.
    """
    limit = parse_percent(value, where=where)
    if limit < _SMALLEST_LIMIT:
        raise ConfigError(
            f"{where}: {shown(value)} is too small a limit",
            why="two scores of one model may differ by as much from rounding alone",
            remedy=f'write "{100 * _SMALLEST_LIMIT:.4f}%" or more',
        )
    return limit


def evidence_below(values: Sequence[float], total: int, mean: float, bound: float) -> float:
    """E-value against "all `total` values have a mean of at least `mean`".

    With m_i the mean that the values not yet seen must then have at least, the mean over the bets
    of ``prod(1 + stake * (m_i - max(x_i, -bound)) / (bound - m_i))``. It grows with `mean`.

    Args:
        values: what was seen, drawn without replacement in random order.
        total: how many values there are.
        mean: the mean tested.
        bound: no value exceeds it; 0 is returned where one that was seen does.
    """
    if any(value > bound for value in values):
        return 0.0
    odds = []
    unseen_sum = total * mean
    for seen, value in enumerate(values):
        room = bound - unseen_sum / (total - seen)
        if room < 0:
            return math.inf
        clipped = max(value, -bound)
        odds.append((bound - clipped) / room - 1 if room else 0.0)
        unseen_sum -= clipped
    if unseen_sum > (total - len(values)) * bound:
        return math.inf
    return sum(weight * math.prod([1 + stake * o for o in odds]) for weight, stake in _BETS)


class PairedPplTest(SequentialTest):
    """Takes the mean NLL difference of one chunk at a time until there is an outcome.

    PASS means that ΔPPL over the whole corpus is below `limit`, FAIL that it is not. After the last
    chunk it is known. Before, either verdict is wrong with a probability of at most `beta` or
    `alpha`, if the chunks come in random order and none that is still unseen differs by more than
    `bound`: upwards for PASS, downwards for FAIL. A chunk beyond it that was seen ends that side's
    early verdict.

    Args:
        limit: ΔPPL to stay below, as a fraction.
        n_chunks_total: chunks of the corpus, all of the same number of tokens.
        alpha: bound on a wrong FAIL.
        beta: bound on a wrong PASS.
        bound: assumed limit of the mean NLL difference of any one chunk, in nats per token;
            ``5 ln(1 + limit)`` by default.
        min_chunks: no verdict before this many; none at all where the corpus is shorter.
        comparisons: how many tests share `alpha` and `beta` (Bonferroni).

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        limit: float = 0.01,
        *,
        n_chunks_total: int,
        alpha: float = ALPHA,
        beta: float = BETA,
        bound: float | None = None,
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
        self.bound = _BOUND_IN_LIMITS * self._limit if bound is None else bound
        if not self._limit < self.bound < math.inf:
            raise ValueError(f"bound must exceed ln(1 + limit) = {self._limit:.4g}, not {bound}")
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

        Infinite on a side where nothing is shown yet, or where a chunk beyond `bound` was seen.
        """
        if self.n == self.n_chunks_total:
            mean = fmean(self._values)
            return mean, mean
        return self._bounds(self._against_less, self._against_more, -self.bound, self.bound)

    @property
    def estimate(self) -> Estimate:
        """ΔPPL with `interval`: of this corpus, not of text beyond it.

        Raises:
            MeasurementError: there are no chunks.
        """
        if not self._values:
            raise nothing_to_estimate("no chunk was scored", "allow more time, or a longer corpus")
        low, high = self.interval
        point = min(max(fmean(self._values), low), high)
        whole = "the whole corpus" if low == high else f"bets on {self.n_chunks_total} chunks"
        return Estimate.change_from_logs(
            point,
            low,
            high,
            self.n,
            method=f"mean of paired NLL differences, {whole}",
            counted="chunks",
            confidence=1.0 if low == high else 1 - self._alpha - self._beta,
        )

    def _decide(self) -> Outcome | None:
        if self.n < self.min_chunks:
            return None
        if self.n == self.n_chunks_total:
            return Outcome.PASS if fmean(self._values) < self._limit else Outcome.FAIL
        if self._against_less(self._limit) >= 1 / self._alpha:
            return Outcome.FAIL
        if self._against_more(self._limit) >= 1 / self._beta:
            return Outcome.PASS
        return None

    def _against_more(self, mean: float) -> float:
        """E-value against "the corpus has a mean of at least `mean`"."""
        return evidence_below(self._values, self.n_chunks_total, mean, self.bound)

    def _against_less(self, mean: float) -> float:
        """E-value against "the corpus has a mean of at most `mean`"."""
        mirrored = [-value for value in self._values]
        return evidence_below(mirrored, self.n_chunks_total, -mean, self.bound)
