"""Error rates of assertions about ratios, differences, percentiles and spread.

Run it as ``python benchmarks/bench_claims.py --processes=2 --runs=400`` (a minute): seeded, needs
numpy and scipy alone, prints Markdown and exits with 1 where a bound of docs/statistics.md is
broken.
"""

from __future__ import annotations

import argparse
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.special import ndtri  # type: ignore[import-untyped]  # scipy ships no types
from scipy.stats import binom  # type: ignore[import-untyped]  # as above

from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.stats.percentiles import percentile_interval
from pytest_asperf.analysis.stats.ratio_test import DifferenceTest, RatioTest
from pytest_asperf.analysis.stats.spread import cv_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PAIRS: Final = 120
ERROR: Final = 0.05
#: Assertions computed at once, which keeps memory small.
BATCH: Final = 100
#: A share of wrong verdicts above 5 % by chance comes in one of so many tables.
ONE_IN: Final = 10_000

Array = Any  # numpy's own types do not describe a shape


@dataclass(frozen=True, slots=True)
class Sides:
    """Noise of the runs of two variants that do different work, in logs of the cost.

    Attributes:
        name: as printed.
        run: sd of a run of either variant.
        slow: share of runs that are 20 % slower, of either variant.
        walk: sd of a step of the drift, by its weight on either variant.
        position: slowdown of the second run of a pair.
        lasting: sd of a variant's offset for the whole assertion, as of one load.
        is_promised: True if the bounds are valid: noise of d that is symmetric about a constant
            ratio.
    """

    name: str
    run: tuple[float, float] = (0.02, 0.02)
    slow: tuple[float, float] = (0.05, 0.05)
    walk: tuple[float, float] = (0.003, 0.003)
    position: float = 0.0
    lasting: float = 0.0
    is_promised: bool = True

    def differences(self, rng: np.random.Generator, claims: int, effect: float) -> Array:
        """``ln(candidate / baseline)`` by assertion and pair."""
        shape = (claims, PAIRS)
        is_first = rng.random(shape) < 0.5
        drift = rng.standard_normal((claims, PAIRS, 2)).cumsum(axis=1)
        cost = []
        for side in (0, 1):
            own = self.run[side] * rng.standard_normal(shape)
            own += math.log(1.2) * (rng.random(shape) < self.slow[side])
            turn = np.where(is_first == bool(side), 0, 1)
            own += self.walk[side] * np.take_along_axis(drift, turn[..., None], axis=2)[..., 0]
            own += self.position * turn
            own += self.lasting * rng.standard_normal((claims, 1))
            cost.append(own)
        return cost[1] - cost[0] + effect


SIDES: Final = (
    Sides("alike"),
    Sides("one variant's runs vary twice as much", run=(0.02, 0.04)),
    Sides("second of a pair +2 %", position=0.02),
    Sides("quiet: a tenth", run=(0.002, 0.002), walk=(0.0003, 0.0003), slow=(0.0, 0.0)),
    Sides("drift weighs on one variant", slow=(0, 0), walk=(0.003, 0.001), is_promised=False),
    Sides("one variant stalls in 10 %", slow=(0.0, 0.1), is_promised=False),
    Sides("each variant keeps a load of 2 %", lasting=0.02, is_promised=False),
)
#: Limits of the log ratio and the true one, from the upper limit; and the verdict that is wrong
#: there, or both at the limit.
_5: Final = math.log(1.05)
_SECOND: Final = "second of two"
_DIFFERENCE: Final = "difference"
CLAIMS: Final = (
    ("one limit", -math.inf, 0.0, "wrong"),
    ("one limit", -math.inf, -0.02, "FAIL"),
    ("one limit", -math.inf, -0.05, "FAIL"),
    ("one limit", -math.inf, 0.05, "PASS"),
    ("two, 10 % apart", -2 * _5, 0.0, "PASS"),
    ("two, 10 % apart", -2 * _5, -_5, "FAIL"),
    ("two, 10 % apart", -2 * _5, 0.05, "PASS"),
    ("two, 2 % apart", -0.02, -0.01, "FAIL"),
    ("two, 2 % apart", -0.02, 0.0, "PASS"),
    (_SECOND, -2 * _5, 0.0, "wrong"),
    (_SECOND, -2 * _5, -_5, "FAIL"),
    (_SECOND, -2 * _5, 0.05, "PASS"),
    (_DIFFERENCE, -math.inf, 0.0, "wrong"),
    (_DIFFERENCE, -math.inf, -0.02, "FAIL"),
    (_DIFFERENCE, -math.inf, 0.05, "PASS"),
)


def _ratio_batch(
    sides: Sides, claim: tuple[str, float, float, str], seed: tuple[int, ...]
) -> list[tuple[str, int]]:
    """The outcome and the pairs of each assertion."""
    kind, low, effect, _ = claim
    decide = {_DIFFERENCE: _difference, _SECOND: _second}.get(kind, _ratio)
    rows = sides.differences(np.random.default_rng(seed), BATCH, 0.0).tolist()
    return [decide(row, low, effect) for row in rows]


def _ratio(noise: list[float], low: float, effect: float) -> tuple[str, int]:
    test = RatioTest(math.exp(low), 1.0, max_pairs=PAIRS)
    outcome = next(filter(None, (test.update(n + effect) for n in noise)))
    return outcome, test.n


def _second(noise: list[float], low: float, effect: float) -> tuple[str, int]:
    """An assertion about the upper limit, after one about the lower limit on the same pairs."""
    first, second = RatioTest(math.exp(low), max_pairs=PAIRS), RatioTest(at_most=1.0)
    for n in noise:
        if first.update(n + effect) is not None:
            break
    outcome = next(filter(None, (second.update(n + effect) for n in noise)))
    return outcome, max(first.n, second.n)


def _difference(noise: list[float], _low: float, effect: float) -> tuple[str, int]:
    """An assertion that two costs differ by nothing; the noise is shared out between them."""
    test = DifferenceTest(-math.inf, 0.0, unit="ms", max_pairs=PAIRS)
    for n in noise:
        costs = (math.exp(-n / 2), math.exp(effect + n / 2))
        test.take_figures(baseline=100 * costs[0], candidate=100 * costs[1])
        if (outcome := test.decide()) is not None:
            return outcome, test.n + 1
    return test.outcome_if_stopped, test.n + 1


def ratios(pool: ProcessPoolExecutor, runs: int, seed: int) -> list[str]:
    """Print the ratio test's outcomes, and return the bounds that are broken."""
    head = ("noise", "claim", "truth from the upper limit", "PASS %", "FAIL %", "pairs")
    _print_row(head)
    _print_row(["---"] * len(head))
    broken = []
    for number, (sides, claim) in enumerate(product(SIDES, CLAIMS)):
        seeds = [(seed, number, batch) for batch in range(-(-runs // BATCH))]
        batches = pool.map(partial(_ratio_batch, sides, claim), seeds)
        outcomes, pairs = zip(*chain(*batches), strict=True)
        counts = {str(wrong): outcomes.count(wrong) for wrong in (Outcome.PASS, Outcome.FAIL)}
        shares = [f"{100 * count / len(outcomes):.1f}" for count in counts.values()]
        spent = "{:.0f} / {:.0f}".format(*np.quantile(pairs, [0.5, 0.9]))
        name, _, effect, wrong = claim
        truth = f"{100 * math.expm1(effect):+.1f} %" if effect else "at it"
        row = [sides.name, name, truth, *shares, spent]
        _print_row(row)
        errors = counts.values() if wrong == "wrong" else [counts[wrong]]
        if sides.is_promised and max(errors) > _most(len(outcomes), ERROR):
            broken.append(" | ".join(row))
    return broken


def _most(n: int, error: float) -> float:
    return float(binom.ppf(1 - 1 / ONE_IN, n, error))


@dataclass(frozen=True, slots=True)
class Tokens:
    """Times of tokens in runs.

    Attributes:
        n_runs: runs.
        n_tokens: of each; 1 where a run is one time.
        shift: sd of a run's offset, in sds of a token.
        correlation: of neighbouring tokens (AR(1)).
        percentile: that is judged.
    """

    n_runs: int
    n_tokens: int
    shift: float = 0.0
    correlation: float = 0.0
    percentile: float = 95.0

    def groups(self, rng: np.random.Generator) -> Array:
        """Times by run and token."""
        noise = rng.standard_normal((self.n_runs, self.n_tokens))
        for i in range(1, self.n_tokens if self.correlation else 0):
            noise[:, i] *= math.sqrt(1 - self.correlation**2)
            noise[:, i] += self.correlation * noise[:, i - 1]
        return noise + self.shift * rng.standard_normal((self.n_runs, 1))

    @property
    def truth(self) -> float:
        """The true percentile."""
        return float(ndtri(self.percentile / 100) * math.hypot(1, self.shift))

    def cells(self) -> list[str]:
        """The condition as columns of a row."""
        runs = f"{self.n_runs} x {self.n_tokens}" if self.n_tokens > 1 else f"{self.n_runs}"
        return [f"p{self.percentile:g}", runs, f"{self.shift:g}", f"{self.correlation:g}"]


_SINGLES: Final = tuple(Tokens(n, 1) for n in (20, 59, 100, 300))
_GROUPED: Final = tuple(
    Tokens(n, 128, shift, correlation)
    for n, (shift, correlation) in product((6, 10, 30), ((0, 0), (0, 0.5), (0.5, 0), (1, 0.5)))
)
TOKENS: Final = (
    *_SINGLES,
    replace(_SINGLES[2], percentile=50.0),
    *_GROUPED,
    *(replace(tokens, percentile=50.0) for tokens in _GROUPED[4:8]),
)


def _percentile_errors(tokens: Tokens, seed: tuple[int, ...], runs: int) -> tuple[int, int, int]:
    """Assertions with too high a lower bound, with too low an upper one, and without an upper."""
    rng = np.random.default_rng(seed)
    too_high = too_low = unbounded = 0
    for _ in range(runs):
        estimate = percentile_interval(
            tokens.groups(rng).tolist(), tokens.percentile, unit="ms", counted="tokens"
        )
        too_high += estimate.low > tokens.truth
        too_low += estimate.high < tokens.truth
        unbounded += math.isinf(estimate.high)
    return too_high, too_low, unbounded


def _normal(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal(n)


def _uniform(rng: np.random.Generator, n: int) -> Array:
    return math.sqrt(12) * (rng.random(n) - 0.5)


def _two_speeds(rng: np.random.Generator, n: int) -> Array:
    return (0.3 * rng.standard_normal(n) + 2 * (rng.random(n) < 0.5) - 1) / math.sqrt(1.09)


def _skewed(rng: np.random.Generator, n: int) -> Array:
    return (rng.gamma(4, size=n) - 4) / 2


def _heavy(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_t(5, size=n) / math.sqrt(5 / 3)


def _stalls(rng: np.random.Generator, n: int) -> Array:
    mixed = rng.standard_normal(n) + 9 * (rng.random(n) < 0.05) - 0.45
    return mixed / math.sqrt(1 + 81 * 0.05 * 0.95)


#: Shapes of runs, of mean 0 and variance 1; the share that either bound may be wrong in.
SHAPES: Final[dict[str, tuple[Callable[[np.random.Generator, int], Array], float]]] = {
    "normal": (_normal, 0.055),
    "uniform": (_uniform, 0.08),
    "two speeds, half of the runs each": (_two_speeds, 0.08),
    "gamma, skew 1": (_skewed, 0.10),
    "heavy tails (t, 5 degrees)": (_heavy, 0.13),
    "one run in 20 stalls by nine sd": (_stalls, 1.0),
}
SIZES: Final = (5, 10, 20, 40, 100)
CV: Final = 0.02


def _spread_errors(shape: str, n: int, seed: tuple[int, ...], runs: int) -> tuple[int, int]:
    """Assertions whose lower bound is above the true CV, and whose upper one is below."""
    draw, _ = SHAPES[shape]
    rng = np.random.default_rng(seed)
    found = [cv_interval(1 + CV * draw(rng, n)) for _ in range(runs)]
    return sum(e.low > CV for e in found), sum(e.high < CV for e in found)


def percentiles(pool: ProcessPoolExecutor, runs: int, seed: int) -> list[str]:
    """Print how often a bound of a percentile is wrong, and return the bounds that are broken."""
    head = ("percentile", "runs", "shift of a run, sd", "AR(1) of tokens", "lower bound wrong %",
            "upper bound wrong %", "no upper bound %")  # fmt: skip
    _print_row(head)
    _print_row(["---"] * len(head))
    broken = []
    seeds = [(seed, 1, number) for number in range(len(TOKENS))]
    rows = pool.map(partial(_percentile_errors, runs=runs), TOKENS, seeds)
    for tokens, errors in zip(TOKENS, rows, strict=True):
        row = [*tokens.cells(), *(f"{100 * error / runs:.1f}" for error in errors)]
        _print_row(row)
        # Exact for one time a run; otherwise the design effect of few runs is itself uncertain.
        allowed = ERROR if tokens.n_tokens == 1 else 2 * ERROR
        if max(errors[:2]) > _most(runs, allowed):
            broken.append(" | ".join(row))
    return broken


def spreads(pool: ProcessPoolExecutor, runs: int, seed: int) -> list[str]:
    """Print how often a bound of a CV is wrong, and return the bounds that are broken."""
    _print_row(("runs are", *(f"{n} runs" for n in SIZES)))
    _print_row(["---"] * (1 + len(SIZES)))
    broken = []
    for number, (shape, (_, allowed)) in enumerate(SHAPES.items()):
        seeds = [(seed, 2, number, n) for n in SIZES]
        found = list(pool.map(partial(_spread_errors, shape, runs=runs), SIZES, seeds))
        _print_row([shape, *(" / ".join(f"{100 * e / runs:.1f}" for e in es) for es in found)])
        if max(map(max, found)) > _most(runs, allowed):
            broken.append(shape)
    return broken


def _print_row(cells: Iterable[str]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400, help="claims of each condition")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=20261122)
    options = parser.parse_args()
    broken = []
    with ProcessPoolExecutor(options.processes) as pool:
        for title, table in (
            ("ratios", ratios),
            ("percentiles", percentiles),
            ("spread: lower / upper bound wrong %", spreads),
        ):
            sys.stdout.write(f"\n{title}, {options.runs} claims a row\n\n")
            broken += table(pool, options.runs, options.seed)
    sys.exit("broken bounds:\n" + "\n".join(broken) if broken else 0)


if __name__ == "__main__":
    main()
