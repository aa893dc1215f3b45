"""How often Student's t over chunks is wrong, by their number and by the shape of their spread.

Run it as ``python benchmarks/bench_chunks.py``: seeded, 10 seconds on one core, prints
Markdown and exits with 1 where `LEAST_CHUNKS` is not the least number that keeps the errors of
symmetric shapes at 5 %, with 1 % to spare.

A bound errs where the true mean lies beyond it; at 90 % two-sided each may in 5 % of runs. That is
the probability of a wrong verdict where the truth lies at the limit, and less if it does not.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_asperf.analysis.stats.chunk_intervals import LEAST_CHUNKS
from pytest_asperf.analysis.stats.estimate import DECISION_CONFIDENCE
from pytest_asperf.analysis.stats.intervals import t_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Draw = Callable[[tuple[int, int]], Array]

FIXTURE: Final = Path(__file__).parents[1] / "fixtures" / "chunk_differences.json"
COUNTS: Final = (2, 3, 4, 5, 6, 8, 16, 40)
#: Nominal error of a bound in percent, and the worst symmetric shape's addition to it.
NOMINAL: Final = 5.0
SLACK: Final = 1.0


def two_kinds(rng: np.random.Generator, share: float, noise: float) -> Draw:
    """Return chunks of two kinds of text: a share of them costs more by 1, with noise in each."""
    return lambda shape: (rng.random(shape) < share) - share + rng.normal(0, noise, shape)


def drawn(rng: np.random.Generator, values: Array) -> Draw:
    """Return chunks drawn from some with replacement."""
    return lambda shape: values[rng.integers(len(values), size=shape)]


def symmetric(rng: np.random.Generator) -> dict[str, Draw]:
    """Return shapes without skew, some with heavy ends."""
    return {
        "normal": lambda shape: rng.normal(size=shape),
        "heavy tails: Student's t, 3 degrees": lambda shape: rng.standard_t(3, size=shape),
        "heavy tails: Laplace": lambda shape: rng.laplace(size=shape),
        **{
            f"two kinds of text in halves, noise {noise:g}": two_kinds(rng, 0.5, noise)
            for noise in (0.1, 0.2, 0.3)
        },
    }


def skewed(rng: np.random.Generator) -> dict[str, Draw]:
    """Return shapes with a long upper end."""
    return {
        "gamma, skew 1": lambda shape: rng.gamma(4, size=shape) - 4,
        "exponential, skew 2": lambda shape: rng.exponential(size=shape) - 1,
        "two kinds, 30 % worse, noise 0.3": two_kinds(rng, 0.3, 0.3),
        "one chunk in ten worse, noise 0.1": two_kinds(rng, 0.1, 0.1),
    }


def measured(rng: np.random.Generator) -> dict[str, Draw]:
    """Return the shipped target's own chunks, drawn with replacement."""
    found: dict[str, Any] = json.loads(FIXTURE.read_text("utf-8"))
    shapes: dict[str, Draw] = {}
    for key, name in (("nll_difference", "ΔPPL"), ("kld", "KLD")):
        for level, values in found[key].items():
            centred = np.array(values) - np.mean(values)
            shapes[f"{name} of {level}"] = drawn(rng, centred)
    return shapes


def errors(draw: Draw, n: int, runs: int) -> tuple[float, float]:
    """Return in which share of runs the upper and the lower bound are beyond the mean, percent."""
    values = draw((runs, n))
    mean = values.mean(axis=1)
    half = t_quantile(n - 1, DECISION_CONFIDENCE) * values.std(axis=1, ddof=1) / np.sqrt(n)
    return 100 * float(np.mean(mean + half < 0)), 100 * float(np.mean(mean - half > 0))


def table(title: str, shapes: dict[str, Draw], runs: int) -> dict[int, float]:
    """Print the errors of shapes, and return the largest by number of chunks."""
    print(f"\n{title}: upper / lower bound wrong, %\n")
    print(_row(["chunks", *map(str, COUNTS)]))
    print(_row(["---"] * (len(COUNTS) + 1)))
    largest = dict.fromkeys(COUNTS, 0.0)
    for name, draw in shapes.items():
        found = [errors(draw, n, runs) for n in COUNTS]
        print(_row([name, *(f"{upper:.1f} / {lower:.1f}" for upper, lower in found)]))
        largest |= {n: max(largest[n], *pair) for n, pair in zip(COUNTS, found, strict=True)}
    return largest


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40_000, help="simulated claims per cell")
    parser.add_argument("--seed", type=int, default=20261122)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    largest = table("Symmetric", symmetric(rng), options.runs)
    table("Skewed", skewed(rng), options.runs)
    table("Measured on the shipped target", measured(rng), options.runs)
    enough = [n for n in COUNTS if all(largest[m] <= NOMINAL + SLACK for m in COUNTS if m >= n)]
    if min(enough) != LEAST_CHUNKS:
        sys.exit(f"{min(enough)} chunks are the least, and LEAST_CHUNKS is {LEAST_CHUNKS}")


if __name__ == "__main__":
    main()
