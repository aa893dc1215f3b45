"""Error rates and duration of the sequential test of speed, compared with the usual rules.

Run it as ``python benchmarks/bench_sequential.py``: seeded, under 3 minutes on one core,
prints Markdown and exits with 1 where a promise of docs/statistics.md is not kept.

The noise model, in logs of a run's cost. Every run has normal noise of 2 % and a random walk of 0.3
% per run (drift), and one run in 20 is 20 % slower. A rule that compares two sessions gets one
session offset of 2 % for each build. Paired rules get both builds in one session, the order of each
pair by a fair coin. The walk's step is the one at which pytest-benchmark's rules have the false
alarm rates that were published for this model (7.6, 11.5 and 7.1 %).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pytest_benchmark.utils import PercentageRegressionCheck
from scipy.special import stdtrit  # type: ignore[import-untyped]  # scipy ships no types
from scipy.stats import binom, ttest_ind  # type: ignore[import-untyped]

from pytest_asperf.analysis.outcome import Decision
from pytest_asperf.analysis.stats.sequential import (
    PairedTest,
    detectable_tolerance,
    evidence,
    predicted_sd,
    robust_sd,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    #: Gives the share of "slower" in percent, from the costs of two builds.
    Rule = Callable[[Array, Array], float]

PAIRS: Final = 120
TOLERANCE: Final = 0.05
#: Standard deviation of normal pairs, tolerance, and pairs within which half and nine in ten of
#: the gates are decided.
FEW_PAIRS: Final = ((0.02, 0.02, (10, 18)), (0.03, 0.05, (5, 9)))
#: Larger tolerances, the true slowdown, and the verdict that it has to get.
ACCEPTED: Final = (
    (0.10, 0.0, Decision.PASS),
    (0.10, 0.03, Decision.PASS),
    (0.10, 0.10, Decision.FAIL),
    (0.40, 0.28, Decision.PASS),
    (0.40, 0.37, None),
    (0.40, 0.42, Decision.FAIL),
)
#: Tolerances at which the usual rules are compared, and the runs of each build that they read.
USUAL_TOLERANCES: Final = (0.01, 0.02, 0.05)
USUAL_RUNS: Final = 20


@dataclass(frozen=True, slots=True)
class Noise:
    """A machine; every figure is in logs of the cost.

    Attributes:
        run: sd of a run.
        walk: sd of a step of the random walk, per run.
        outliers: share of runs that are 20 % slower.
        correlation: of neighbouring runs' noise (AR(1)).
        ramp: slowdown that builds up evenly over the first 20 runs and stays.
        position: slowdown of a pair's second run.
        load: sd of the offset that each load brings, one load per run.
        session: sd of a session's offset, where each build has its own.
    """

    run: float = 0.02
    walk: float = 0.003
    outliers: float = 0.05
    correlation: float = 0.0
    ramp: float = 0.0
    position: float = 0.0
    load: float = 0.0
    session: float = 0.02

    def series(self, rng: np.random.Generator, gates: int, runs: int) -> Array:
        """Return log costs without an effect, one row per gate."""
        noise = rng.standard_normal((gates, runs))
        for earlier, later in pairwise(range(runs)):
            noise[:, later] *= math.sqrt(1 - self.correlation**2)
            noise[:, later] += self.correlation * noise[:, earlier]
        cost = self.run * noise
        cost += self.walk * rng.standard_normal((gates, runs)).cumsum(axis=1)
        cost += math.log(1.2) * (rng.random((gates, runs)) < self.outliers)
        cost += self.load * rng.standard_normal((gates, runs))
        cost += self.ramp * np.minimum(np.arange(runs) / 20, 1)
        cost[:, 1::2] += self.position
        return cost

    def pairs(self, rng: np.random.Generator, gates: int, effect: float) -> Array:
        """Return log cost ratios of `PAIRS` pairs per gate, candidate slower by `effect`."""
        cost = self.series(rng, gates, 2 * PAIRS)
        coin = np.where(rng.random((gates, PAIRS)) < 0.5, 1, -1)
        ratios: Array = coin * (cost[:, 1::2] - cost[:, 0::2]) + math.log1p(effect)
        return ratios

    def sessions(
        self, rng: np.random.Generator, gates: int, runs: int, effect: float
    ) -> tuple[Array, Array]:
        """Return costs of baseline and candidate, each measured in a session of its own."""
        base, other = (
            self.series(rng, gates, runs) + self.session * rng.standard_normal((gates, 1))
            for _ in range(2)
        )
        return np.exp(base), np.exp(other + math.log1p(effect))


PLAIN: Final = Noise()
MACHINES: Final = {
    "plain": PLAIN,
    "AR(1) 0.7": replace(PLAIN, correlation=0.7),
    "10 % thermal ramp": replace(PLAIN, ramp=0.10),
    "second of a pair +2 %": replace(PLAIN, position=0.02),
    "load to load 3 %, reloading": replace(PLAIN, load=0.03),
    "quiet: a tenth of the noise": Noise(run=0.002, walk=0.0003),
}


@dataclass(frozen=True, slots=True)
class Gates:
    """The results of many gates under one condition.

    Attributes:
        outcomes: how many gates had which.
        pairs: of each gate.
        covered: share of intervals that contained the truth; NaN without a look.
    """

    outcomes: Counter[Decision]
    pairs: Array
    covered: float

    def percent(self, outcome: Decision) -> float:
        """Return the share of gates with an outcome, in percent."""
        return 100 * self.outcomes[outcome] / self.outcomes.total()

    def cells(self) -> list[str]:
        """Return a table row: outcomes, pairs, coverage."""
        shares = [f"{self.percent(outcome):.2f}" for outcome in DECIDED]
        median, p90 = np.quantile(self.pairs, [0.5, 0.9])
        covered = "" if math.isnan(self.covered) else f"{100 * self.covered:.1f}"
        return [*shares, f"{median:.0f}", f"{p90:.0f}", covered]


DECIDED: Final = (Decision.FAIL, Decision.PASS, Decision.INCONCLUSIVE)


def judge(ratios: Array, tolerance: float, effect: float) -> Gates:
    """Return `PairedTest`'s outcome for each row; every eighth gate's interval is examined."""
    outcomes: Counter[Decision] = Counter()
    pairs = []
    covered = []
    for row in ratios.tolist():
        test = PairedTest(tolerance, max_pairs=PAIRS)
        outcome = next(filter(None, map(test.update, row)))
        outcomes[outcome] += 1
        pairs.append(test.n)
        if len(pairs) % 8 == 0:
            low, high = test.interval
            covered.append(low <= math.log1p(effect) <= high)
    return Gates(outcomes, np.array(pairs, dtype=float), float(np.mean(covered)))


def pytest_benchmark(field: str, tolerance: float) -> Rule:
    """Return pytest-benchmark's own check as a rule."""
    check: Any = PercentageRegressionCheck(field, 100 * tolerance)  # type: ignore[no-untyped-call]
    reduce: Any = {"min": np.min, "mean": np.mean}[field]

    def alarms(base: Array, other: Array) -> float:
        pairs = zip(reduce(base, axis=1), reduce(other, axis=1), strict=True)
        failed = [check.fails({field: float(b)}, {field: float(a)}) for a, b in pairs]
        return 100 * sum(map(bool, failed)) / len(failed)

    return alarms


def welch(tolerance: float) -> Rule:
    """Return Welch's 90 % interval of the log ratio, wholly above the tolerance, as a rule."""

    def alarms(base: Array, other: Array) -> float:
        limit = math.log1p(tolerance)
        result = ttest_ind(np.log(other) - limit, np.log(base), axis=1, equal_var=False)
        return 100 * float(np.mean((result.pvalue < 0.10) & (result.statistic > 0)))

    return alarms


def peeking(ratios: Array, tolerance: float) -> float:
    """Return the share of alarms of a paired t test after every pair.

    An alarm is a difference shown at 5 %, one-sided, with a mean above the tolerance.
    """
    n = np.arange(1, PAIRS + 1)
    mean = ratios.cumsum(axis=1) / n
    squares = (ratios**2).cumsum(axis=1) - n * mean**2
    with np.errstate(divide="ignore", invalid="ignore"):
        t = mean / np.sqrt(squares / (n - 1) / n)
        alarm = (t > stdtrit(n - 1, 0.95)) & (mean > math.log1p(tolerance))
    return 100 * float(alarm[:, 1:].any(axis=1).mean())


def crossing_rate(ratios: Array) -> float:
    """Return how often the evidence for "slower" reaches 20 in a run that never stops (percent)."""
    crossed = 0
    for row in ratios.tolist():
        steepness = [TOLERANCE / predicted_sd(row[:i]) ** 2 for i in range(len(row))]
        stakes = (evidence(row[:n], steepness[:n], 0.0) for n in range(1, len(row) + 1))
        crossed += any(value >= 20 for value in stakes)
    return 100 * crossed / len(ratios)


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a Markdown table."""
    head = list(head)
    lines = [f"## {title}", "", _row(head), "|" + "---|" * len(head), *map(_row, rows), "", ""]
    sys.stdout.write("\n".join(lines))
    sys.stdout.flush()


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def usual_rules(rng: np.random.Generator, gates: int) -> None:
    """Print the share of "slower" of the usual rules on the same noise, at each tolerance."""
    of_sessions: dict[str, Callable[[float], Rule]] = {
        "pytest-benchmark `min`, two sessions": partial(pytest_benchmark, "min"),
        "pytest-benchmark `mean`, two sessions": partial(pytest_benchmark, "mean"),
        "Welch's 90 % interval, two sessions": welch,
    }
    rows: dict[str, list[str]] = {}
    for tolerance in USUAL_TOLERANCES:
        effects = (0.0, tolerance, 2 * tolerance)
        for name, rule in of_sessions.items():
            costs = [PLAIN.sessions(rng, gates, USUAL_RUNS, effect) for effect in effects]
            said = [rule(tolerance)(*of_both) for of_both in costs]
            rows.setdefault(name, []).append(_percents(said))
        paired = [PLAIN.pairs(rng, gates, effect) for effect in effects]
        said = [peeking(ratios, tolerance) for ratios in paired]
        rows.setdefault("paired t, looked at after every pair", []).append(_percents(said))
        found = [judge(ratios, tolerance, 0.0) for ratios in paired]
        runs = ", ".join(f"{2 * np.median(g.pairs):.0f}" for g in found)
        cell = f"{_percents([g.percent(Decision.FAIL) for g in found])}; {runs} runs"
        rows.setdefault("this test", []).append(cell)
    title = '"Slower" in %: equal builds / slower by the tolerance / by twice the tolerance'
    head = ["rule", *(f"{tolerance:.0%}" for tolerance in USUAL_TOLERANCES)]
    table(title, head, [[name, *cells] for name, cells in rows.items()])


def _percents(shares: Iterable[float]) -> str:
    return " / ".join(f"{percent:.1f}" for percent in shares)


def machines(rng: np.random.Generator, gates: int) -> list[str]:
    """Print the sequential test under every condition and return the promises broken."""
    rows, broken = [], []
    for tolerance in (0.05, 0.03):
        for name, noise in MACHINES.items():
            for effect in (0.0, tolerance):
                found = judge(noise.pairs(rng, gates, effect), tolerance, effect)
                label = f"+{effect:.0%}" if effect else "A/A"
                rows.append([f"{tolerance:.0%}", name, label, *found.cells()])
                broken += promises_broken(found, f"{tolerance:.0%}, {name}, {label}")
    for sd, tolerance, most in FEW_PAIRS:
        for effect in (0.0, tolerance):
            ratios = sd * rng.standard_normal((gates, PAIRS)) + math.log1p(effect)
            found = judge(ratios, tolerance, effect)
            name, label = f"normal pairs of {sd:.0%}", f"+{effect:.0%}" if effect else "A/A"
            rows.append([f"{tolerance:.0%}", name, label, *found.cells()])
            broken += promises_broken(found, f"{name}, {label}", most)
    for effect in (0.01, 0.02, 0.025, 0.03, 0.04, 0.10):
        found = judge(PLAIN.pairs(rng, gates, effect), 0.05, effect)
        rows.append(["5%", "plain", f"+{100 * effect:g}%", *found.cells()])
    for tolerance, effect, expected in ACCEPTED:
        found = judge(PLAIN.pairs(rng, gates, effect), tolerance, effect)
        rows.append([f"{tolerance:.0%}", "plain", f"+{effect:.0%}", *found.cells()])
        if expected and found.percent(expected) < 95:
            broken.append(f"{tolerance:.0%}, +{effect:.0%}: not {expected} >= 95 %")
    head = ["tolerance", "machine", "true", "FAIL %", "PASS %", "INCONCLUSIVE %"]
    table("The sequential test", [*head, "median pairs", "p90", "interval covers %"], rows)
    return broken


def promises_broken(found: Gates, label: str, most: tuple[int, ...] = ()) -> list[str]:
    """Return a condition's results against the error rates in docs/statistics.md."""
    wrong = Decision.FAIL if label.endswith("A/A") else Decision.PASS
    n = found.outcomes.total()
    allowed = 100 * float(binom.ppf(0.9999, n, 0.05)) / n
    broken = [f"{label}: {wrong} in more than 5 %"] * (found.percent(wrong) > allowed)
    slow = [n for n, q in zip(most, (0.5, 0.9), strict=False) if np.quantile(found.pairs, q) > n]
    return [*broken, *(f"{label}: not {n} pairs" for n in slow)]


def never_stopping(rng: np.random.Generator, gates: int) -> list[str]:
    """Print how often evidence reaches 20 between equal builds if nothing stops the run."""
    worst = {
        **MACHINES,
        "a third of the runs 20 % slow": replace(PLAIN, outliers=0.33),
        "AR(1) 0.95, ramp and position": Noise(correlation=0.95, ramp=0.1, position=0.02),
    }
    rates = {name: crossing_rate(noise.pairs(rng, gates, 0.0)) for name, noise in worst.items()}
    table(
        f'Equal builds, {PAIRS} pairs without stopping: evidence for "slower" ever at 20',
        ["machine", "% of runs (proven: at most 5)"],
        ([name, f"{rate:.1f}"] for name, rate in rates.items()),
    )
    allowed = 100 * float(binom.ppf(0.9999, gates, 0.05)) / gates
    return [f"{name}: evidence reaches 20 in {r} %" for name, r in rates.items() if r > allowed]


def budgets(rng: np.random.Generator, gates: int) -> None:
    """Print the share of A/A gates decided at the tolerance that a budget is stated to detect."""
    rows = []
    for noise in (PLAIN, MACHINES["load to load 3 %, reloading"]):
        ratios = noise.pairs(rng, gates, 0.0)
        spread = robust_sd(ratios[:50].ravel().tolist())
        for pairs in (10, 20, 40, 120):
            tolerance = detectable_tolerance(spread, pairs)
            decided = float(np.mean(judge(ratios, tolerance, 0.0).pairs <= pairs))
            rows.append([f"{spread:.2%}", f"{pairs}", f"{tolerance:.1%}", f"{100 * decided:.0f}"])
    head = ["spread of a pair", "budget in pairs", "detectable tolerance", "decided %"]
    table("Detectable tolerance", head, rows)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gates", type=int, default=3000, help="gates per condition")
    parser.add_argument("--seed", type=int, default=20261121)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    usual_rules(rng, options.gates)
    broken = machines(rng, options.gates)
    broken += never_stopping(rng, options.gates // 4)
    budgets(rng, options.gates // 8)
    sys.exit("\n".join(broken) if broken else 0)


if __name__ == "__main__":
    main()
