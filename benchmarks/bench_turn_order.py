"""What a run costs after one of another process and a wait, and what order of turns is quieter.

Two processes of one build decode parts of 8 tokens at a depth of 1,024, on one core. In a pair the
order alternates from turn to turn, or stays as the first turn's; pairs of both kinds take turns.
Then a run of one process begins some milliseconds after one of the other ended. Exits with 1 if
pairs whose order stays do not differ less.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from models import BUILD, SETTINGS, level_files, shipped_target
from timing import table

from pytest_asperf.analysis.stats.sequential import robust_sd
from pytest_asperf.analysis.stats.total_time import typical_log_ratio
from pytest_asperf.engine_process import Worker, usable_cores
from pytest_asperf.modelfiles.shipped import shipped_corpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    Runs = list[tuple[int, Sequence[int]]]

_DEPTH: Final = 1024
_PART: Final = 8
_TURNS: Final = 4
#: Steps at the beginning of a part, which `measure.running_arms` decodes again, untimed.
_SETTLING: Final = 4

_ALTERNATES: Final = "alternates"
_STAYS: Final = "stays"

_WAITS_MS: Final = (0, 6, 30)


def main() -> bool:
    """Print the tables, and return whether the order that stays is the quieter one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40, help="pairs of each order")
    n_pairs = parser.parse_args().pairs
    coin = random.Random(0)  # noqa: S311  # repeatable
    path = level_files(shipped_target(), ("Q4_K_M",))["Q4_K_M"]
    pairs: dict[str, list[Runs]] = {_ALTERNATES: [], _STAYS: []}
    with ExitStack() as stack:
        arms = [stack.enter_context(Worker(BUILD)) for _ in range(2)]
        for arm in arms:
            arm.load("model", path, SETTINGS)
            arm.confine(usable_cores()[:1])
        text = shipped_corpus().read_text("utf-8")[: 12 * _DEPTH]
        tokens = arms[0].tokenize("model", text)[: _DEPTH + _PART * _TURNS]
        for _ in range(n_pairs):
            for kind, done in pairs.items():
                first, second = coin.sample((0, 1), 2)
                turned = (second, first) if kind == _ALTERNATES else (first, second)
                done.append(_pair(arms, tokens, ((first, second), turned)))
        waited = _waited(arms, tokens, coin, n_pairs)
    print("### Order of turns: decoding at depth 1,024, asperf-target at Q4_K_M\n")
    _print_steps(_by_run_before([runs for done in pairs.values() for runs in done]))
    _print_steps(waited)
    print(table(("order of a pair's turns", "spread of pairs", "from step 5 on"), _rows(pairs)))
    return _spread(pairs[_STAYS], 0) < _spread(pairs[_ALTERNATES], 0)


def _pair(
    arms: list[Worker], tokens: Sequence[int], orders: tuple[tuple[int, int], tuple[int, int]]
) -> Runs:
    """The arm and the steps of each run, after a warm-up of each; orders of even and odd turns."""
    runs: Runs = []
    for part in (0, *range(_TURNS)):
        first = _DEPTH + _PART * part
        for arm in orders[part % 2]:
            run = arms[arm].generate("model", tokens[: first + _PART], first, n_ctx=len(tokens))
            runs.append((arm, run.step_ns))
    return runs


def _rows(pairs: dict[str, list[Runs]]) -> list[tuple[str, str, str]]:
    return [
        (kind, f"{_spread(done, 0):.1%}", f"{_spread(done, _SETTLING):.1%}")
        for kind, done in pairs.items()
    ]


def _spread(pairs: list[Runs], skipped: int) -> float:
    """Robust standard deviation of the pairs' typical log ratios."""
    found = []
    for runs in pairs:
        timed = runs[2:]
        base, other = ([sum(ns[skipped:]) for arm, ns in timed if arm == n] for n in range(2))
        found.append(typical_log_ratio(base, other))
    return robust_sd(found)


def _waited(
    arms: list[Worker], tokens: Sequence[int], coin: random.Random, n_runs: int
) -> dict[str, list[Sequence[int]]]:
    """The steps of one process's runs, by how long after a run of the other they began."""
    steps: dict[str, list[Sequence[int]]] = {f"after a wait of {ms} ms": [] for ms in _WAITS_MS}
    for _ in range(n_runs):
        for found, ms in coin.sample([*zip(steps.values(), _WAITS_MS, strict=True)], len(steps)):
            for arm, wait_ms in zip(arms, (0, ms), strict=True):
                time.sleep(wait_ms / 1e3)
                run = arm.generate("model", tokens[: _DEPTH + _PART], _DEPTH, n_ctx=len(tokens))
            found.append(run.step_ns)
    return steps


def _by_run_before(pairs: list[Runs]) -> dict[str, list[Sequence[int]]]:
    """The steps of each run, by whose run came before."""
    after: dict[bool, list[Sequence[int]]] = {False: [], True: []}
    for runs in pairs:
        for (arm, _), (next_arm, steps_ns) in pairwise(runs[1:]):
            after[arm == next_arm].append(steps_ns)
    return {"after a run of the other process": after[False], "after a run of its own": after[True]}


def _print_steps(found: dict[str, list[Sequence[int]]]) -> None:
    """Print the typical time of each step, by what was before its part."""
    rows = [(label, *map(_ms, zip(*steps, strict=True))) for label, steps in found.items()]
    print(table(("part", *(f"step {n + 1}, ms" for n in range(_PART))), rows))


def _ms(times_ns: Sequence[int]) -> str:
    return f"{statistics.median(times_ns) / 1e6:.2f}"


if __name__ == "__main__":
    raise SystemExit(not main())
