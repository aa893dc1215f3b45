"""The prompt length from which one of two models is the faster one, searched in comparisons.

The search assumes one crossing: the longer the prompt, the better the first does. It uses
comparisons at single lengths that share one error, so that each bound is wrong with at most that
probability.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.stats.estimate import Estimate

#: Comparisons of one search, at most; they share its error.
MOST_COMPARISONS: Final = 10
#: Bounds that are nearer than this factor are near enough: prompts have lengths within 2 %.
_NEAR_ENOUGH: Final = 1.1


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison at one length."""

    n_tokens: int
    outcome: Outcome  #: PASS if the first is shown to be faster, FAIL if the second is
    n_pairs: int = 1  #: number of pairs behind it
    text: str = ""  #: the ratio of their times, for a reader


@dataclass(slots=True)
class CrossoverSearch:
    """Chooses the lengths of comparisons, by bisection between the two ends.

    An undecided length is near the crossover; the search goes on in both directions from it.
    """

    shortest: int
    longest: int
    done: list[Compared] = field(default_factory=list)

    def next_length(self) -> int | None:
        """The length to compare at; None once the bounds are near or the comparisons are spent."""
        known = {compared.n_tokens: compared.outcome for compared in self.done}
        # If B already wins at the short end, the curves do not cross.
        for end, settles in ((self.longest, Outcome.FAIL), (self.shortest, Outcome.PASS)):
            if end not in known:
                return end
            if known[end] is settles:
                return None
        gaps = [(b / a, a, b) for a, b in self._gaps() if b > _NEAR_ENOUGH * a and b - a > 1]
        if not gaps or len(self.done) >= MOST_COMPARISONS:
            return None
        _, a, b = max(gaps)
        return round(math.sqrt(a * b))

    def _gaps(self) -> Iterator[tuple[int, int]]:
        """Neighbouring lengths, of which one at least was decided, around the crossover."""
        low, high = self._low or 0, self._high or math.inf
        points = sorted({c.n_tokens for c in self.done if low <= c.n_tokens <= high})
        return (pair for pair in pairwise(points) if {low, high} & {*pair})

    @property
    def _low(self) -> int | None:
        """The longest prompt for which the second is shown to be faster."""
        return max((c.n_tokens for c in self.done if c.outcome is Outcome.FAIL), default=None)

    @property
    def _high(self) -> int | None:
        """The shortest prompt for which the first is shown to be faster."""
        return min((c.n_tokens for c in self.done if c.outcome is Outcome.PASS), default=None)

    @property
    def estimate(self) -> Estimate:
        """The length from which the first is faster, between the nearest decided lengths."""
        low, high = self._low, self._high
        point = math.sqrt((low or self.shortest) * (high or self.longest))
        if (low is None) != (high is None):  # only one bound is known
            point = float(high or (low or 0) + 1)
        return Estimate(
            max(point, low + 1 if low else 0),
            float(low + 1 if low else 0),
            float(high or math.inf),
            max(1, sum(compared.n_pairs for compared in self.done)),
            method="the nearest lengths at which pairs decided",
            unit="tokens",
            counted="pairs",
        )
