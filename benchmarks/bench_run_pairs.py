"""How many run pairs of a prompt a pair needs, so that a gate of equal builds is decided soonest.

Each pair is a new process of each variant with twelve run pairs, as in a gate. The table has, for
the first so many of them, the spread of pairs, and what a gate of 5 % would need: over random
orders of the measured pairs, median and 90 %. The last row of a workload has a gate's pairs.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from models import BUILD, SETTINGS, level_files, shipped_target
from timing import table

from pytest_asperf.analysis.stats.sequential_frame import GATE_ALPHA
from pytest_asperf.analysis.stats.total_time import (
    TotalTimeTest,
    total_log_ratio,
    typical_log_ratio,
)
from pytest_asperf.engine_process import Worker, usable_cores
from pytest_asperf.measure.paired_runner import PairLength
from pytest_asperf.measure.running_arms import SETTLING_TOKENS
from pytest_asperf.modelfiles.hub_cache import shipped_corpus

if TYPE_CHECKING:
    from pathlib import Path

_MOST: Final = 12
_COUNTS: Final = (1, 3, 6, _MOST)
_TURNS_FOR_PASS: Final = 12
_ORDERS: Final = 400
_LENGTH: Final = PairLength.of(1.1e8, 1, 1.7e8)


@dataclass(frozen=True, slots=True)
class Measured:
    """One pair: the start of its processes in s, and its runs' times in ns, of each variant."""

    opening_s: float
    costs: tuple[list[float], list[float]]

    def ratios(self, turns: int) -> tuple[float, float]:
        """The median run pair's log ratio, and that of the total."""
        base, other = (costs[:turns] for costs in self.costs)
        return typical_log_ratio(base, other), total_log_ratio(base, other)

    def seconds(self, turns: int) -> float:
        """The duration with so many run pairs."""
        return self.opening_s + sum(sum(costs[:turns]) for costs in self.costs) / 1e9


def main() -> None:
    """Print the table of each prompt's length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=24)
    n_pairs = parser.parse_args().pairs
    path = level_files(shipped_target(), ("Q4_K_M",))["Q4_K_M"]
    text = shipped_corpus().read_text("utf-8")[:20_000]
    coin = random.Random(0)  # noqa: S311  # repeatable
    rows = []
    for n_tokens in (512, 1024):
        pairs = [_pair(path, text, n_tokens, coin) for _ in range(n_pairs)]
        rows += [(f"pp{n_tokens}", str(n), _spreads(pairs, n), *_until(pairs, n)) for n in _COUNTS]
        rows.append((f"pp{n_tokens}", "as in a gate", "", *_until(pairs, None)))
    head = ("workload", "run pairs", "spread: median, total", "pairs until PASS", "seconds")
    print(table(head, rows))


def _pair(path: Path, text: str, n_tokens: int, coin: random.Random) -> Measured:
    began = time.monotonic()
    with ExitStack() as stack:
        arms = [stack.enter_context(Worker(BUILD)) for _ in range(2)]
        core = coin.sample(usable_cores(), 1)
        for arm in arms:
            arm.load("model", path, SETTINGS)
            arm.confine(core)
            tokens = arm.tokenize("model", text)[:n_tokens]
            arm.prompt("model", tokens, 0)
        opening_s = time.monotonic() - began
        costs: tuple[list[float], list[float]] = [], []
        order = coin.sample((0, 1), 2)
        for turn in range(_MOST):
            for side in reversed(order) if turn % 2 else order:
                arms[side].prompt("model", tokens[:SETTLING_TOKENS], 0)
                costs[side].append(arms[side].prompt("model", tokens, 0).elapsed_ns)
    return Measured(opening_s, costs)


def _spreads(pairs: list[Measured], turns: int) -> str:
    typical, total = zip(*(pair.ratios(turns) for pair in pairs), strict=True)
    return f"{statistics.stdev(typical):.1%}, {statistics.stdev(total):.1%}"


def _until(pairs: list[Measured], turns: int | None) -> tuple[str, str]:
    """Pairs and seconds until a PASS; without a number of run pairs, of a gate's pairs."""
    coin = random.Random(1)  # noqa: S311  # repeatable
    gates = [_gate(pairs, turns, coin) for _ in range(_ORDERS)]
    n, seconds = (sorted(found) for found in zip(*gates, strict=True))
    half, most = _ORDERS // 2, 9 * _ORDERS // 10
    return f"{n[half]} / {n[most]}", f"{seconds[half]:.0f} / {seconds[most]:.0f}"


def _gate(pairs: list[Measured], turns: int | None, coin: random.Random) -> tuple[int, float]:
    """Pairs, drawn with replacement and either way round, and their seconds, until a PASS."""
    first = turns or _LENGTH.turns_of(0)
    for_pass = math.ceil(_TURNS_FOR_PASS / first)
    test = TotalTimeTest(0.05, alpha=GATE_ALPHA, max_pairs=120, pairs_for_pass=for_pass)
    seconds = 0.0
    while test.outcome is None:
        pair, n = coin.choice(pairs), turns or min(_MOST, _LENGTH.turns_of(test.n))
        typical, total = pair.ratios(n)
        seconds += pair.seconds(n)
        way = coin.choice((-1, 1))
        test.update(way * typical, way * total)
    return test.n, seconds


if __name__ == "__main__":
    main()
