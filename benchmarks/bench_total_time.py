"""What a gate makes of arms with slow runs among fast ones, and what judging total time costs.

Run it as ``python benchmarks/bench_total_time.py``: seeded, prints Markdown and exits with 1
where a promise of docs/statistics.md is not kept.

The noise of a run is that of `bench_sequential`: 2 %, and one run in 20 takes 20 % longer, on both
sides. A pair has 25 turns (short runs) or one (runs of 0.3 s and more). On top a share of the
candidate's runs takes longer by a fixed amount. Beside it what the test of the typical turn alone
decides.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_asperf.analysis.stats.sequential import PairedTest
from pytest_asperf.analysis.stats.total_time import (
    TotalTimeTest,
    total_log_ratio,
    typical_log_ratio,
)
from pytest_asperf.analysis.verdict import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

PAIRS: Final = 60
TOLERANCE: Final = 0.05
DECIDED: Final = (Outcome.FAIL, Outcome.PASS, Outcome.INCONCLUSIVE)


@dataclass(frozen=True, slots=True)
class Arm:
    """A candidate on a machine.

    Attributes:
        share: of its runs that are slow.
        slow_by: by how much they take longer.
        outliers: share of the runs of either side that the machine disturbs.
        outlier: by how much those take longer.
    """

    share: float = 0.0
    slow_by: float = 0.0
    outliers: float = 0.05
    outlier: float = 0.20

    @property
    def mean_slowdown(self) -> float:
        """By how much its runs take longer on average."""
        return self.share * self.slow_by

    def label(self) -> str:
        """Return it in words."""
        machine = f"{self.outliers:.0%} outliers of +{self.outlier:.0%}"
        if not self.share:
            return f"equal builds, {machine}"
        return f"{self.share:.0%} of the runs slower by {self.slow_by:.0%}, {machine}"

    def costs(self, rng: np.random.Generator, turns: int, *, is_candidate: bool) -> Array:
        """Return the costs of one gate's runs, one row per pair."""
        shape = (PAIRS, turns)
        cost = 0.02 * rng.standard_normal(shape)
        cost += math.log1p(self.outlier) * (rng.random(shape) < self.outliers)
        if is_candidate:
            cost += math.log1p(self.slow_by) * (rng.random(shape) < self.share)
        runs: Array = np.exp(cost)
        return runs


ARMS: Final = (
    Arm(),
    Arm(outlier=2.0),
    *(Arm(share, slow) for share in (0.10, 0.25, 0.50) for slow in (0.10, 0.20, 0.30, 0.50)),
)


def gate(arm: Arm, rng: np.random.Generator, turns: int) -> tuple[TotalTimeTest, PairedTest]:
    """Return both tests of one gate, decided."""
    base, candidate = (arm.costs(rng, turns, is_candidate=side) for side in (False, True))
    rows = list(zip(base.tolist(), candidate.tolist(), strict=True))
    typical = [typical_log_ratio(*row) for row in rows]
    total = [total_log_ratio(*row) for row in rows]
    both, alone = TotalTimeTest(TOLERANCE, max_pairs=PAIRS), PairedTest(TOLERANCE, max_pairs=PAIRS)
    next(filter(None, map(both.update, typical, total)))
    next(filter(None, map(alone.update, typical)))
    return both, alone


def shares(tests: list[PairedTest]) -> str:
    """Return FAIL, PASS and INCONCLUSIVE in percent, and pairs."""
    found = Counter(test.outcome for test in tests)
    percent = " / ".join(f"{100 * found[outcome] / len(tests):.1f}" for outcome in DECIDED)
    median, p90 = np.quantile([test.n for test in tests], [0.5, 0.9])
    return f"{percent}; {median:.0f}, {p90:.0f}"


def broken(arm: Arm, tests: list[PairedTest], turns: int) -> list[str]:
    """Return the promises that an arm shows to be broken."""
    found = Counter(test.outcome for test in tests)
    allowed = 0.05 * len(tests) + 3 * math.sqrt(0.05 * 0.95 * len(tests))
    label = f"{arm.label()}, {turns} turns"
    if not arm.share:
        return [f"{label}: false FAILs"] * (found[Outcome.FAIL] > allowed)
    excluded = turns > 1 and arm.mean_slowdown > TOLERANCE
    return [f"{label}: wrong PASSes"] * (excluded and found[Outcome.PASS] > allowed)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gates", type=int, default=400, help="gates per condition")
    parser.add_argument("--seed", type=int, default=20261122)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    missed: list[str] = []
    head = ("turns", "candidate", "mean slowdown", "with total time", "typical turn alone")
    sys.stdout.write(
        f"FAIL / PASS / INCONCLUSIVE in %; pairs (median, p90)\n\n| {' | '.join(head)} |\n"
    )
    sys.stdout.write("|" + "---|" * len(head) + "\n")
    for turns in (25, 1):
        for arm in ARMS:
            gates = [gate(arm, rng, turns) for _ in range(options.gates)]
            both, alone = (list(side) for side in zip(*gates, strict=True))
            mean = f"{arm.mean_slowdown:+.1%}"
            cells = (str(turns), arm.label(), mean, shares(both), shares(alone))
            sys.stdout.write(f"| {' | '.join(cells)} |\n")
            sys.stdout.flush()
            missed += broken(arm, both, turns)
    sys.exit("\n".join(missed) if missed else 0)


if __name__ == "__main__":
    main()
