"""How often gates of many cells are wrong, and what three ways to share the error cost in pairs.

Run it as ``python benchmarks/bench_whole_gate.py --processes=2 --runs=400`` (minutes): seeded,
needs numpy alone, prints Markdown and exits with 1 where a bound of docs/statistics.md is broken.

Every cell has pairs of two runs. A run has noise of 2 %, and one run in 20 takes 20 % longer; all
cells share a drift of 0.3 % per run. With common noise, half of each run's variance and every slow
run hit all cells of a pair at once, and one coin decides the order in all of them.
Cells are independent tests of `PairedTest`, computed here for all at once; the first ones are
compared with the real test.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from simulated_gates import BATCH, print_row, simulations

from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.stats.sequential import PairedTest

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIRS: Final = 60
LEAST: Final = 5
ERROR: Final = 0.05
LIMIT: Final = math.log1p(0.05)
SHARINGS: Final = ("both shared", "FAIL, Bonferroni", "FAIL, closed testing")

Array = Any  # numpy's own types say nothing of a shape


@dataclass(frozen=True, slots=True)
class Condition:
    """Gates of one kind.

    Attributes:
        cells: of each gate.
        is_common: whether the cells have noise in common.
        regressed: cells in which the candidate is slower.
        effect: by how much.
    """

    cells: int
    is_common: bool
    regressed: int
    effect: float

    def label(self) -> str:
        """The condition as cells of a row."""
        noise = "common" if self.is_common else "own"
        slower = f"{self.regressed}, +{self.effect:.0%}" if self.regressed else "none"
        return f"{self.cells} | {noise} | {slower}"

    def differences(self, rng: np.random.Generator, gates: int) -> Array:
        """Log ratios by gate, cell and pair."""
        common = 0.5 if self.is_common else 0.0
        own, shared = (gates, self.cells, PAIRS, 2), (gates, 1, PAIRS, 2)
        cost = 0.02 * math.sqrt(1 - common) * rng.standard_normal(own)
        cost += 0.02 * math.sqrt(common) * rng.standard_normal(shared)
        slow = rng.random(shared if self.is_common else own) < 0.05
        cost += math.log(1.2) * slow
        cost += 0.003 * rng.standard_normal((gates, 1, 2 * PAIRS)).cumsum(axis=2).reshape(shared)
        coin = np.where(
            rng.random((gates, 1 if self.is_common else self.cells, PAIRS)) < 0.5, 1, -1
        )
        found = coin * (cost[..., 1] - cost[..., 0])
        found[:, : self.regressed] += math.log1p(self.effect)
        return found


@dataclass(frozen=True, slots=True)
class Traces:
    """E-values and log odds of each cell after each pair, as `PairedTest` has them."""

    slower: Array
    within: Array
    odds: Array

    @classmethod
    def of(cls, differences: Array) -> Traces:
        """Of log ratios whose last axis is the pairs."""
        scales = np.full(differences.shape, 0.03)
        for n in range(2, PAIRS):
            seen = differences[..., :n]
            spread = np.abs(seen - np.median(seen, axis=-1, keepdims=True))
            mad = np.maximum(1.4826 * np.median(spread, axis=-1), 0.0005)
            scales[..., n] = np.exp((3 * math.log(0.03) + (n - 1) * np.log(mad)) / (n + 2))
        steps = np.minimum(LIMIT / scales, 1.5)
        steps *= np.clip((differences - LIMIT / 2) / scales, -1, 1)
        return cls(
            _e_values(differences / scales),
            _e_values((LIMIT - differences) / scales),
            steps.cumsum(axis=-1),
        )


def _e_values(scores: Array) -> Array:
    score = np.clip(scores, -1, 1)
    return sum(
        weight * np.cumprod(1 + stake * score, axis=-1)
        for weight, stake in ((0.25, 0.45), (0.75, 0.9))
    )


def _decided(traces: Traces, sharing: str) -> tuple[Array, Array]:
    """The outcome of each cell, 1 for PASS, -1 for FAIL and 0 for neither, and its pairs."""
    n_cells = traces.odds.shape[1]
    fail_shares = n_cells if sharing != SHARINGS[2] else 1
    pass_shares = n_cells if sharing == SHARINGS[0] else 1
    outcome = np.zeros(traces.odds.shape[:2], int)
    pairs = np.full(outcome.shape, PAIRS)
    held = np.ones(outcome.shape)
    for n in range(PAIRS):
        held = np.where(outcome == 0, traces.slower[..., n], held)
        if n + 1 < LEAST:
            continue
        needed = _closed(held) if sharing == SHARINGS[2] else fail_shares / ERROR
        within, odds = traces.within[..., n], traces.odds[..., n]
        is_slower = _is_clear(held, needed, odds)
        is_within = within >= pass_shares / ERROR
        is_clear = is_slower | _is_clear(within, pass_shares / ERROR, -odds)
        passes = is_within & (is_clear | (n + 1 == PAIRS))
        fails = is_slower & ~is_within
        new = (outcome == 0) & (passes | fails)
        outcome[new], pairs[new] = np.where(passes, 1, -1)[new], n + 1
    return outcome, pairs


def _is_clear(seen: Array, needed: Array, odds: Array) -> Array:
    is_sure = odds >= np.log(5 * needed - 1)
    return (seen >= needed) & (odds > 0) & (is_sure | (seen >= 10 * needed))


def _closed(held: Array) -> Array:
    """What each cell's e-value has to be, so that every mean that includes it is 1 / ERROR.

    The smallest mean over a set of k + 1 cells has the k smallest of the others.
    """
    in_order = np.sort(held, axis=1)
    sums = np.concatenate([np.zeros((len(held), 1)), in_order.cumsum(axis=1)], axis=1)
    needed = np.full(held.shape, 1 / ERROR)
    for k in range(1, held.shape[1]):
        is_among = held <= in_order[:, k - 1 : k]
        others = np.where(is_among, sums[:, k + 1 : k + 2] - held, sums[:, k : k + 1])
        needed = np.maximum(needed, (k + 1) / ERROR - others)
    return needed


def _batch(condition: Condition, seed: tuple[int, ...], gates: int) -> list[tuple[Array, Array]]:
    differences = condition.differences(np.random.default_rng(seed), gates)
    traces = Traces.of(differences)
    found = [_decided(traces, sharing) for sharing in SHARINGS]
    _agree(differences[0], *found[1])
    return found


def _agree(differences: Array, outcomes: Array, pairs: Array) -> None:
    """Raise where the real test decides otherwise."""
    words = {Outcome.PASS: 1, Outcome.FAIL: -1, Outcome.INCONCLUSIVE: 0}
    for cell, outcome, n in zip(differences, outcomes[0], pairs[0], strict=True):
        test = PairedTest(0.05, max_pairs=PAIRS, comparisons=len(differences))
        real = next(filter(None, map(test.update, cell.tolist())))
        if (words[real], test.n) != (outcome, n):
            raise AssertionError(f"{real} after {test.n} pairs, and here {outcome} after {n}")


def _conditions() -> Iterator[Condition]:
    for cells, is_common in product((14, 40), (False, True)):
        yield Condition(cells, is_common, 0, 0.0)
        for regressed, effect in product((1, 3, cells), (0.05, 0.10)):
            yield Condition(cells, is_common, regressed, effect)


def _row(condition: Condition, outcome: Array, pairs: Array) -> tuple[list[str], bool]:
    slower, equal = np.split(np.arange(condition.cells), [condition.regressed])
    false_fail = float(np.mean((outcome[:, equal] == -1).any(axis=1))) if equal.size else 0.0
    passed = float(np.mean((outcome == 1).all(axis=1)))
    open_ = float(np.mean((outcome == 0).any(axis=1)))
    missed = float(np.mean(outcome[:, slower] == 1)) if slower.size else 0.0
    cells = [f"{100 * share:.1f}" for share in (false_fail, passed, missed, open_)]
    cells += [_quantiles(pairs[:, which]) for which in (equal, slower)]
    wrong = max(false_fail, passed if slower.size else 0.0, missed)
    return cells, wrong > ERROR + 3 * math.sqrt(ERROR * (1 - ERROR) / len(outcome))


def _quantiles(pairs: Array) -> str:
    return " / ".join(f"{q:.0f}" for q in np.quantile(pairs, [0.5, 0.9])) if pairs.size else ""


def main() -> None:
    """Print the table."""
    head = ("cells", "noise", "slower cells", "error", "FAIL of an equal cell %", "gate PASS %",
            "PASS of a slower cell %", "undecided %", "pairs, equal", "pairs, slower")  # fmt: skip
    broken = []
    with simulations(__doc__, head) as simulate:
        for number, condition in enumerate(_conditions()):
            batches = simulate(number, partial(_batch, condition, gates=BATCH))
            for sharing, parts in zip(SHARINGS, zip(*batches, strict=True), strict=True):
                cells, is_broken = _row(condition, *map(np.concatenate, zip(*parts, strict=True)))
                row = (condition.label(), sharing, *cells)
                print_row(*row)
                broken += [" | ".join(row)] * is_broken
    sys.exit("broken bounds:\n" + "\n".join(broken) if broken else 0)


if __name__ == "__main__":
    main()
