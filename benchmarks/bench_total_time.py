"""A gate's verdicts on slow runs among fast ones, on loads that differ, and on lasting noise.

Run it as ``python benchmarks/bench_total_time.py --processes=2``: seeded, prints Markdown and exits
with 1 where a promise of docs/statistics.md is not kept.

A run has noise of 2 %, and one run in 20 is 20 % slower, in both builds. Pairs have as many run
pairs as `PairLength` gives them: at first 8 (short runs), 4 (parts of a long generation) or 1 (long
runs that have no parts). On top, a share of the candidate's runs is slower; or the noise of a build
lasts from run pair to run pair (AR(1)), which no random order can undo. Processes that differ from
pair to pair are in bench_processes.py.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from simulated_gates import BATCH, print_row, simulations

from pytest_asperf.analysis.outcome import Decision
from pytest_asperf.analysis.stats.sequential_frame import GATE_ALPHA
from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.measure.paired_runner import Pair, PairLength

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIRS: Final = 120
TOLERANCE: Final = 0.05
TURNS_FOR_PASS: Final = 12
LONGEST: Final = 5  # the longest pair, as a multiple of the first
DECIDED: Final = (Decision.FAIL, Decision.PASS, Decision.INCONCLUSIVE)

Array = Any  # numpy's own types do not describe a shape


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate on a machine.

    Attributes:
        effect: slowdown of all of its runs.
        share: of its runs that are slow.
        slow_by: slowdown of those runs.
        outlier: slowdown of one run in 20 of either build.
        lasting: correlation of a build's noise from one run pair to the next.
    """

    effect: float = 0.0
    share: float = 0.0
    slow_by: float = 0.0
    outlier: float = 0.20
    lasting: float = 0.0

    @property
    def mean_slowdown(self) -> float:
        """The mean slowdown of its runs."""
        return (1 + self.effect) * (1 + self.share * self.slow_by) - 1

    def label(self) -> str:
        """The candidate in words."""
        words = [f"slower by {self.effect:.0%}" if self.effect else "equally fast"]
        if self.share:
            words = [f"{self.share:.0%} of the runs slower by {self.slow_by:.0%}"]
        if self.outlier != 0.20:
            words.append(f"one run in 20 takes {1 + self.outlier:g} times as long")
        if self.lasting:
            words.append(f"noise of a side AR(1) {self.lasting:g}")
        return ", ".join(words)

    def sides(self, rng: np.random.Generator, n: int) -> list[Array]:
        """Costs of so many runs of baseline and candidate in one gate, ns, by run pair."""
        return [self.costs(rng, n, is_candidate=side) for side in (False, True)]

    def costs(self, rng: np.random.Generator, n: int, *, is_candidate: bool) -> Array:
        """Costs of so many runs of one build in one gate, ns, by run pair."""
        noise = rng.standard_normal(n)
        for turn in range(1, n) if self.lasting else ():
            noise[turn] *= math.sqrt(1 - self.lasting**2)
            noise[turn] += self.lasting * noise[turn - 1]
        cost = 0.02 * noise + math.log1p(self.outlier) * (rng.random(n) < 0.05)
        if is_candidate:
            cost += math.log1p(self.effect)
            cost += math.log1p(self.slow_by) * (rng.random(n) < self.share)
        return np.rint(1e9 * np.exp(cost)).astype(int)


def _candidates() -> Iterator[Candidate]:
    yield from (Candidate(effect) for effect in (0.0, 0.05, 0.10))
    yield Candidate(outlier=2.0)
    yield from (
        Candidate(share=s, slow_by=by) for s in (0.10, 0.25, 0.50) for by in (0.1, 0.2, 0.3, 0.5)
    )
    yield from (Candidate(e, lasting=rho) for rho, e in product((0.5, 0.9), (0, 0.05, 0.1)))


Gate = tuple[Decision, int]


def _gates(candidate: Candidate, turns: int, seed: tuple[int, ...]) -> list[Gate]:
    """The outcomes of some gates, and the run pairs of each."""
    rng = np.random.default_rng(seed)
    most = LONGEST * turns if turns > 1 else 1
    length = PairLength(turns if turns > 3 else 1, turns, most)  # a few are whole runs
    return [_gate(candidate.sides(rng, PAIRS * most), length) for _ in range(BATCH)]


def _gate(sides: list[Array], length: PairLength) -> Gate:
    test = TotalTimeTest(
        TOLERANCE,
        alpha=GATE_ALPHA,
        max_pairs=PAIRS,
        pairs_for_pass=math.ceil(TURNS_FOR_PASS / length.turns),
    )
    end = 0
    pairs: list[Pair] = []
    while test.outcome is None:
        begin, end = end, end + length.turns_after(pairs, TOLERANCE)
        base, other = (tuple(side[begin:end].tolist()) for side in sides)
        pairs.append(Pair(base, other, candidate_first=False))
        test.update(pairs[-1].log_ratio, pairs[-1].total_log_ratio)
    return test.outcome, end


def _cells(gates: list[Gate]) -> tuple[str, str]:
    outcomes = Counter(outcome for outcome, _ in gates)
    percent = " / ".join(f"{100 * outcomes[o] / len(gates):.1f}" for o in DECIDED)
    return percent, " / ".join(f"{q:.0f}" for q in np.quantile([n for _, n in gates], [0.5, 0.9]))


def _broken(candidate: Candidate, outcomes: Counter[Decision], turns: int) -> list[str]:
    """The promises that a candidate shows to be broken."""
    n = outcomes.total()
    allowed = 0.05 * n + 3 * math.sqrt(0.05 * 0.95 * n)
    label = f"{candidate.label()}, {turns} turns"
    if candidate.lasting > 0.5:
        return []  # nothing is promised of it
    if candidate.mean_slowdown == 0:
        return [f"{label}: false FAILs"] * (outcomes[Decision.FAIL] > allowed)
    slow_is_seen = candidate.share >= 0.25 and (turns > 1 or candidate.slow_by >= 0.5)
    is_excluded = candidate.mean_slowdown > TOLERANCE and slow_is_seen
    at_tolerance = candidate.effect >= TOLERANCE
    wrong = outcomes[Decision.PASS] > allowed
    return [f"{label}: wrong PASSes"] * ((is_excluded or at_tolerance) and wrong)


def main() -> None:
    """Print the table."""
    head = ("turns", "candidate", "on average", "FAIL / PASS / INCONCLUSIVE %", "turns of a side")
    missed: list[str] = []
    with simulations(__doc__, head) as simulate:
        for number, (turns, candidate) in enumerate(product((8, 3, 1), _candidates())):
            gates = list(chain(*simulate(number, partial(_gates, candidate, turns))))
            slowdown = f"{candidate.mean_slowdown:+.1%}"
            print_row(str(turns), candidate.label(), slowdown, *_cells(gates))
            missed += _broken(candidate, Counter(outcome for outcome, _ in gates), turns)
    sys.exit("\n".join(missed) if missed else 0)


if __name__ == "__main__":
    main()
