"""How often a bisection names the wrong build, by the real search and the real sequential test.

Run it as ``python benchmarks/bench_bisect.py``: seeded, 3 minutes on one core, prints Markdown and
exits with 1 if a wrong build is named, or one step counts as several, more often than
docs/statistics.md promises.

Every build has a cost; the noise of a pair is that of bench_sequential.py. In some histories an
effect also moves from gate to gate, as a machine's load moves that of a build that computes longer.
Nothing is measured.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from bench_sequential import MACHINES, PLAIN, table
from scipy.stats import binom  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.stats.sequential_frame import BETA
from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.bisect.search import (
    Answer,
    Ending,
    GateAnswer,
    GateStep,
    Probe,
    gates_at_most,
    gates_to_name,
    next_step,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_sequential import Noise

TOLERANCE: Final = 0.05
#: As the command has them: twice a gate's pairs, and the fewest of a gate that gives a size.
MOST_PAIRS: Final = 120
SIZED_PAIRS: Final = 20


@dataclass(frozen=True, slots=True)
class History:
    """Builds and the cost of each, in the baseline's cost.

    Attributes:
        name: its point.
        costs: of each build, the baseline's first.
        noise: of the machine.
        moves: sd of the factor, in logs, by which the log effect of each gate differs from that of
            the costs.
    """

    name: str
    costs: Sequence[float]
    noise: Noise = PLAIN
    moves: float = 0.0

    @property
    def culprits(self) -> set[int]:
        """The builds that cost more than the one before by the tolerance, or more."""
        steps = enumerate(pairwise(self.costs), start=1)
        return {at for at, (before, after) in steps if after / before - 1 >= TOLERANCE - 1e-9}

    @property
    def is_one_step(self) -> bool:
        """True if one build makes all later ones slower."""
        return len(set(self.costs)) == 2


@dataclass(slots=True)
class Run:
    """One bisection: its answer, gates and pairs."""

    answer: Answer
    gates: int
    pairs: int


def bisect(history: History, rng: np.random.Generator) -> Run:
    """Bisect a history to the end."""
    n = len(history.costs) - 1
    findings: dict[GateStep, GateAnswer] = {}
    pairs = 0
    while isinstance(step := next_step(n, findings), Probe):
        log_effect = math.log(history.costs[step.gate.candidate] / history.costs[step.gate.base])
        effect = math.expm1(log_effect * math.exp(history.moves * rng.standard_normal()))
        sized = step.purpose in {"candidate", "confirm"}
        test = TotalTimeTest(
            TOLERANCE,
            min_pairs=SIZED_PAIRS if sized else 5,
            max_pairs=MOST_PAIRS,
            beta=BETA / gates_at_most(n),
            comparisons=gates_at_most(n),
        )
        drawn = np.concatenate([history.noise.pairs(rng, 1, effect)[0] for _ in range(2)])
        outcome = next(filter(None, map(test.update, drawn.tolist())))
        estimate = test.total.estimate
        findings[step.gate] = GateAnswer(Outcome(outcome), estimate.low, estimate.high)
        pairs += test.n
    return Run(step, len(findings), pairs)


def one_step(n: int, at: int, effect: float) -> list[float]:
    """Return costs that step up once."""
    return [1 + effect * (build >= at) for build in range(n + 1)]


def histories(rng: np.random.Generator) -> list[History]:
    """Return the simulated builds; the place of the one step is drawn."""

    def step(n: int, effect: float) -> list[float]:
        return one_step(n, int(rng.integers(1, n + 1)), effect)

    loads, correlated = MACHINES["load to load 3 %, reloading"], MACHINES["AR(1) 0.7"]
    return [
        *(
            History(f"one step of +{effect:.0%}", step(n, effect))
            for n in (6, 64)
            for effect in (0.05, 0.10, 0.20)
        ),
        History("+10%, load to load 3 %", step(64, 0.10), loads),
        History("+10%, runs AR(1) 0.7", step(64, 0.10), correlated),
        *(
            History(f"one step of +60%, moves by {moves:.0%}", step(n, 0.60), moves=moves)
            for n in (6, 64)
            for moves in (0.05, 0.30)
        ),
        History("equal builds", [1.0] * 65),
        History("+2% in each of 12", [1.02**i for i in range(13)]),
        History("+20% at 20, and at 45", [1.2 ** ((i > 19) + (i > 44)) for i in range(65)]),
        History(
            "+20% from 9 to 50, +8% from 60",
            [1.2 if 9 <= i <= 50 else 1.08 if i >= 60 else 1.0 for i in range(65)],
        ),
    ]


def main() -> int:
    """Simulate, print, and return 1 where the promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="bisections of each history")
    runs = parser.parse_args().runs
    rng = np.random.default_rng(20)
    rows, broken = [], []
    for history in histories(rng):
        n = len(history.costs) - 1
        done = [bisect(history, rng) for _ in range(runs)]
        named = [run.answer.at for run in done if run.answer.ending is Ending.CULPRIT]
        right = sum(at in history.culprits for at in named)
        endings = Counter(run.answer.ending for run in done)
        others = (Ending.RANGE, Ending.MAP, Ending.NO_REGRESSION)
        shares = [right, len(named) - right, *(endings[ending] for ending in others)]
        gates, pairs = (np.median([getattr(run, of) for run in done]) for of in ("gates", "pairs"))
        rows.append(
            [
                str(n),
                history.name,
                *(f"{100 * share / runs:.1f}" for share in shares),
                f"{gates:.0f} ({gates_to_name(n)}, {gates_at_most(n)})",
                f"{pairs:.0f}",
            ]
        )
        most = binom.ppf(0.9999, runs, 0.05)
        if len(named) - right > most:
            broken.append(f"{history.name}: {len(named) - right} of {runs} name a wrong build")
        if history.is_one_step and endings[Ending.MAP] > most:
            broken.append(f"{history.name}: {endings[Ending.MAP]} of {runs} see several steps")
    head = ["builds", "history", "right %", "wrong %", "range %", "map %", "none %"]
    table("Bisections", [*head, "gates (to name, at most)", "pairs"], rows)
    sys.stdout.write("".join(f"BROKEN: {line}\n" for line in broken))
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
