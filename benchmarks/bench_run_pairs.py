"""How many run pairs a pair needs, so that a gate of equal builds is decided soonest.

Each pair is a new process of each variant with twenty-four run pairs (twelve of prompts), as in a
gate. The table has, for the first so many of them, the spread of pairs, and what a gate of 5 %
would need: over random orders of the measured pairs, median and 90 %. The last row of a workload
has a gate's pairs.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from models import BUILD, SETTINGS, level_files, shipped_target
from timing import table

from pytest_asperf.analysis.stats.sequential_frame import GATE_ALPHA
from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import RawRun, Worker, usable_cores
from pytest_asperf.measure.paired_runner import Pair, PairLength
from pytest_asperf.measure.running_arms import SETTLING_TOKENS, most_parts
from pytest_asperf.modelfiles.hub_cache import shipped_corpus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_WORKLOADS: Final = (Workload("pp", 512), Workload("tg", 128, 1024))
_KV: Final = EngineSettings(type_k="q8_0", type_v="q8_0")
_COUNTS: Final = (1, 3, 6, 12, 24)
_TURNS_FOR_PASS: Final = 12
_ORDERS: Final = 400
_TOLERANCE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    """One pair: the start of its processes in s, and its runs' times in ns, of each variant."""

    opening_s: float
    costs: tuple[list[int], list[int]]

    def pair(self, turns: int, *, is_turned: bool = False) -> Pair:
        """The first run pairs; with the variants in each other's place, if they are turned."""
        base, other = (tuple(costs[:turns]) for costs in self.costs)
        pair = Pair(base, other, candidate_first=False)
        return pair.swapped() if is_turned else pair

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
    for workload, settings in product(_WORKLOADS, (SETTINGS, SETTINGS.merged(_KV))):
        pairs = [_pair(path, text, workload, settings, coin) for _ in range(n_pairs)]
        name = f"{workload.name}{' KV q8_0' * (settings.type_k is not None)}"
        counts = [n for n in _COUNTS if n <= len(pairs[0].costs[0])]
        rows += [(name, str(n), _spreads(pairs, n), *_until(pairs, workload, n)) for n in counts]
        rows.append((name, "as in a gate", "", *_until(pairs, workload, None)))
    head = ("workload", "run pairs", "spread: median, total", "pairs until PASS", "seconds")
    print(table(head, rows))


def _pair(
    path: Path, text: str, workload: Workload, settings: EngineSettings, coin: random.Random
) -> Measured:
    parts = most_parts(workload)
    n_tokens = workload.n_tokens // parts
    began = time.monotonic()
    with ExitStack() as stack:
        arms = [stack.enter_context(Worker(BUILD)) for _ in range(2)]
        core = coin.sample(usable_cores(), 1)
        for arm in arms:
            arm.load("model", path, settings)
            arm.confine(core)
            tokens = arm.tokenize("model", text)[: workload.n_ctx]
            _run(arm, workload, tokens[: workload.depth + n_tokens], workload.depth)
        opening_s = time.monotonic() - began
        costs: tuple[list[int], list[int]] = [], []
        order = coin.sample((0, 1), 2)
        for turn in range(_COUNTS[-1] // (2 if parts == 1 else 1)):
            first = workload.depth + turn % parts * n_tokens
            before = max(first, SETTLING_TOKENS)
            for side in reversed(order) if turn % 2 else order:
                _run(arms[side], workload, tokens[:before], before - SETTLING_TOKENS)
                run = _run(arms[side], workload, tokens[: first + n_tokens], first)
                costs[side].append(run.elapsed_ns)
    return Measured(opening_s, costs)


def _run(arm: Worker, workload: Workload, tokens: Sequence[int], first: int) -> RawRun:
    decode = arm.prompt if workload.is_prompt else arm.generate
    return decode("model", tokens, first, n_ctx=workload.room)


def _spreads(pairs: list[Measured], turns: int) -> str:
    of_pairs = [measured.pair(turns) for measured in pairs]
    typical = statistics.stdev(pair.log_ratio for pair in of_pairs)
    return f"{typical:.1%}, {statistics.stdev(pair.total_log_ratio for pair in of_pairs):.1%}"


def _until(pairs: list[Measured], workload: Workload, turns: int | None) -> tuple[str, str]:
    """Pairs and seconds until a PASS; without a number of run pairs, of a gate's pairs."""
    coin = random.Random(1)  # noqa: S311  # repeatable
    if turns is None:
        parts = most_parts(workload)
        run_ns = parts * statistics.median(cost for one in pairs for cost in one.costs[0])
        length = PairLength.of(run_ns, parts)
    else:
        length = PairLength(1, turns)
    gates = [_gate(pairs, length, coin) for _ in range(_ORDERS)]
    n, seconds = (sorted(found) for found in zip(*gates, strict=True))
    half, most = _ORDERS // 2, 9 * _ORDERS // 10
    return f"{n[half]} / {n[most]}", f"{seconds[half]:.0f} / {seconds[most]:.0f}"


def _gate(measured: list[Measured], length: PairLength, coin: random.Random) -> tuple[int, float]:
    """Pairs, drawn with replacement and either way round, and their seconds, until a PASS."""
    for_pass = math.ceil(_TURNS_FOR_PASS / length.turns)
    test = TotalTimeTest(_TOLERANCE, alpha=GATE_ALPHA, max_pairs=120, pairs_for_pass=for_pass)
    seconds = 0.0
    pairs: list[Pair] = []
    while test.outcome is None:
        one, n = coin.choice(measured), length.turns_after(pairs, _TOLERANCE)
        pairs.append(one.pair(n, is_turned=coin.random() < 0.5))
        seconds += one.seconds(n)
        test.update(pairs[-1].log_ratio, pairs[-1].total_log_ratio)
    return test.n, seconds


if __name__ == "__main__":
    main()
