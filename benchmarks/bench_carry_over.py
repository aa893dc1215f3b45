"""The cost of a run after a run of the other build, and how many untimed tokens undo it.

Two processes of one build run the same workloads on one core, in random order, each run after so
many untimed tokens of its own work. The first table compares runs after the other process's with
runs after a run of their own. The second one has the spread of pairs of four run pairs, whose order
stays or alternates. The third one has pairs of 384 tokens of each process, timed in longer or
shorter parts. Exits with 1 if, after the tokens that a gate decodes, a run is slower after the
other process's by more than 1 % and three standard errors.
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

from pytest_asperf.analysis.stats.sequential import robust_sd
from pytest_asperf.analysis.stats.total_time import typical_log_ratio
from pytest_asperf.engine_process import Worker, usable_cores
from pytest_asperf.measure.running_arms import SETTLING_TOKENS
from pytest_asperf.modelfiles.hub_cache import shipped_corpus

if TYPE_CHECKING:
    from collections.abc import Sequence

_TURNS: Final = 4
_GENERATED: Final = 128
_TOKENS_OF_A_PAIR: Final = 3 * _GENERATED
_LARGEST: Final = 0.01


@dataclass(frozen=True, slots=True)
class Timed:
    """A workload: a prompt, or tokens decoded one at a time after so many others.

    Attributes:
        room: tokens of the context, if they are more than the workload's.
    """

    name: str
    depth: int
    n_tokens: int
    is_prompt: bool = False
    room: int = 0

    def run(self, arm: Worker, tokens: Sequence[int], untimed: int) -> int:
        """Time of a run in ns, after so many tokens of its own work."""
        end = self.depth + self.n_tokens
        if untimed:
            before = max(self.depth, untimed)
            arm.generate("model", tokens[:before], before - untimed, n_ctx=self.room or end)
        if self.is_prompt:
            return arm.prompt("model", tokens[:end], self.depth).elapsed_ns
        return arm.generate("model", tokens[:end], self.depth, n_ctx=self.room or end).elapsed_ns


_WORK: Final = (
    Timed("tg8@d1024", 1024, 8),
    Timed("tg8", 0, 8),
    Timed("tg128", 0, 128),
    Timed("pp512", 0, 512, is_prompt=True),
)


def main() -> bool:
    """Print the tables, and return whether the gate's untimed tokens suffice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="of each workload and table")
    seconds = parser.parse_args().seconds
    path = level_files(shipped_target(), ("Q4_K_M",))["Q4_K_M"]
    lengths: list[tuple[str, ...]] = []
    rows, spreads, suffices = [], [], True
    with ExitStack() as stack:
        arms = [stack.enter_context(Worker(BUILD)) for _ in range(2)]
        for arm in arms:
            arm.load("model", path, SETTINGS)
            arm.confine(usable_cores()[:1])
        tokens = arms[0].tokenize("model", shipped_corpus().read_text("utf-8")[:20_000])
        for work in _WORK:
            for untimed, (change, error) in _carried(arms, tokens, work, seconds).items():
                rows.append((work.name, str(untimed), f"{change:+.1%} ± {error:.1%}"))
                is_gates = untimed == SETTLING_TOKENS
                suffices &= not is_gates or change <= max(_LARGEST, 3 * error)
            spreads.append((work.name, *_spreads(arms, tokens, work, seconds)))
        for depth in (0, 1024):
            lengths += _by_length(arms, tokens, depth, 4 * seconds)
    print("### After a run of the other process, asperf-target at Q4_K_M\n")
    print(table(("workload", "untimed tokens before", "longer than after its own"), rows))
    head = ("workload", "spread of pairs, order stays", "order alternates")
    print(table(head, spreads))
    columns = ("workload", "tokens of a part", "spread of pairs", "ms per token", "s of a pair")
    print(table(columns, lengths))
    return suffices


def _carried(
    arms: list[Worker], tokens: Sequence[int], work: Timed, seconds: float
) -> dict[int, tuple[float, float]]:
    """By untimed tokens, the slowdown of a run after the other's, and the standard error."""
    coin = random.Random(0)  # noqa: S311  # repeatable
    runs: dict[tuple[int, bool], list[float]] = {}
    for arm in arms:
        work.run(arm, tokens, 0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        untimed = coin.choice((0, SETTLING_TOKENS))
        before, arm = coin.choice(arms), coin.choice(arms)
        work.run(before, tokens, untimed)
        log_ns = math.log(work.run(arm, tokens, untimed))
        runs.setdefault((untimed, arm is before), []).append(log_ns)
    found = {}
    for untimed in (0, SETTLING_TOKENS):
        own, other = runs[untimed, True], runs[untimed, False]
        change = math.expm1(statistics.median(other) - statistics.median(own))
        error = 1.25 * math.sqrt(sum(robust_sd(r) ** 2 / len(r) for r in (own, other)))
        found[untimed] = change, error
    return found


def _spreads(
    arms: list[Worker], tokens: Sequence[int], work: Timed, seconds: float
) -> tuple[str, str]:
    """Robust standard deviations of pairs whose order stays, and of those with alternation."""
    coin = random.Random(1)  # noqa: S311  # repeatable
    ratios: tuple[list[float], list[float]] = [], []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for alternates in coin.sample((0, 1), 2):
            order = coin.sample((0, 1), 2)
            costs: tuple[list[float], list[float]] = [], []
            for turn in range(_TURNS):
                for side in reversed(order) if alternates and turn % 2 else order:
                    costs[side].append(work.run(arms[side], tokens, SETTLING_TOKENS))
            ratios[alternates].append(typical_log_ratio(*costs))
    stays, turned = (f"{robust_sd(found):.2%} of {len(found)}" for found in ratios)
    return stays, turned


def _by_length(
    arms: list[Worker], tokens: Sequence[int], depth: int, seconds: float
) -> list[tuple[str, ...]]:
    """For each length of a part: the spread of pairs, the time of a token and that of a pair."""
    coin = random.Random(2)  # noqa: S311  # repeatable
    found: dict[int, list[tuple[float, float, float]]] = {n: [] for n in (8, 16, 32, _GENERATED)}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for n_tokens in coin.sample(list(found), len(found)):
            costs: tuple[list[float], list[float]] = [], []
            began, order = time.monotonic(), coin.sample((0, 1), 2)
            for turn in range(_TOKENS_OF_A_PAIR // n_tokens):
                first = depth + turn * n_tokens % _GENERATED
                part = Timed("", first, n_tokens, room=depth + _GENERATED)
                for side in reversed(order) if turn % 2 else order:
                    costs[side].append(part.run(arms[side], tokens, SETTLING_TOKENS))
            token_ns = statistics.median([*costs[0], *costs[1]]) / n_tokens
            took_s = time.monotonic() - began
            found[n_tokens].append((typical_log_ratio(*costs), token_ns, took_s))
    rows: list[tuple[str, ...]] = []
    for n_tokens, pairs in found.items():
        ratios, of_token_ns, of_pair_s = zip(*pairs, strict=True)
        spread = f"{statistics.stdev(ratios):.1%}, robust {robust_sd(ratios):.1%}, of {len(pairs)}"
        times = f"{statistics.median(of_token_ns) / 1e6:.3f}", f"{statistics.median(of_pair_s):.2f}"
        rows.append((f"tg128@d{depth}", str(n_tokens), spread, *times))
    return rows


if __name__ == "__main__":
    raise SystemExit(not main())
