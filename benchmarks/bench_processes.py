"""How often whole gates are wrong where processes differ, and where one build disturbs the other.

Run it as ``python benchmarks/bench_processes.py --processes=2`` (seeded; minutes): it drives
`run_pairs`, and with it the order of runs, the processes and the tests of a real gate, on simulated
engines. Prints Markdown, and exits with 1 where a promise of docs/statistics.md is not kept.

A gate has seven timed checks in five groups, as the default one, which share their error with four
others, and at most 120 pairs of each. A run has noise of 2 %, and in named rows one run in 20 is 20
% slower. A process is slower or faster than the next for its whole life: by a normal offset, or by
one of two kinds. A build that disturbs leaves the caches cold: the other's first work after it is
slower. "Kept" processes are those of a model whose load is too slow: one of each build for a check,
and others to reproduce a FAIL.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from simulated_gates import BATCH, print_row, simulations

from pytest_asperf.analysis.outcome import Decision
from pytest_asperf.config.workload import Workload
from pytest_asperf.measure import ab_speed
from pytest_asperf.measure.ab_speed import Budget, SpeedExperiment, WorkloadPairs, run_pairs
from pytest_asperf.measure.running_arms import TimedArm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.measure.ab_speed import ABResult
    from pytest_asperf.measure.paired_runner import OpenArms

#: Timed checks of a gate that run in the same processes, and the checks that share their error.
GROUPS: Final = (2, 1, 1, 2, 1)
COMPARISONS: Final = 11
#: A run that has no parts, and of which a pair has four.
RUN_NS: Final = 25_000_000
RUN_NOISE: Final = 0.02
SLOW_BY: Final = math.log(1.2)
TOLERANCE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Condition:
    """Gates of one kind.

    Attributes:
        sd: standard deviation of a process's offset, in logs.
        two_kinds: by how much every second process is slower instead.
        disturbed: by how much the baseline, or the candidate, is slower after the other.
        left: share of that which is still there after a run's untimed beginning.
        slower: by how much the candidate is slower, in the first check.
        everywhere: whether in all checks.
        kept: whether processes are kept for all pairs.
        slow_runs: share of runs that are 20 % slower.
        tolerance: slowdown that is accepted.
    """

    sd: float = 0.0
    two_kinds: float = 0.0
    disturbed: tuple[float, float] = (0.0, 0.0)
    left: float = 0.0
    slower: float = 0.0
    everywhere: bool = False
    kept: bool = False
    slow_runs: float = 0.0
    tolerance: float = TOLERANCE

    def label(self) -> str:
        """The condition as columns of a row."""
        noise = [f"sd {self.sd:.0%}"] * (self.sd > 0)
        noise += [f"0 or +{self.two_kinds:.0%}"] * (self.two_kinds > 0)
        for name, by in zip(("baseline", "candidate"), self.disturbed, strict=True):
            noise += [f"{name} {by:.0%} slower after the other"] * (by > 0)
        noise += [f"{self.left:.0%} of it left"] * (self.left > 0)
        noise += ["kept"] * self.kept
        noise += [f"{self.slow_runs:.0%} of runs slow"] * (self.slow_runs > 0)
        where = "all" if self.everywhere else "one"
        truth = f"{where} +{self.slower:.0%}" if self.slower else "equal"
        return f"{', '.join(noise) or 'alike'} | {truth}"


@dataclass(eq=False)
class World:
    """One machine, and who did something on it last."""

    condition: Condition
    rng: np.random.Generator
    last: object = None
    is_settled: bool = True

    def process_offset(self) -> float:
        """A new process's own pace, in logs."""
        kinds = math.log1p(self.condition.two_kinds) * (self.rng.random() < 0.5)
        return self.condition.sd * self.rng.standard_normal() + kinds


class SimulatedArm(TimedArm):
    """A process whose runs have the condition's times."""

    def __init__(self, world: World, slower: dict[Workload, float], *, is_candidate: bool) -> None:
        self._world, self._is_candidate, self._slower = world, is_candidate, slower
        self._offset = world.process_offset()
        self.worker = cast("Any", SimpleNamespace(confine=lambda _: None))

    def close(self) -> None:
        """Nothing runs."""

    @property
    def loaded(self) -> Any:
        """The facts of a model that its process keeps."""
        return SimpleNamespace(
            served=None, layers_offloaded=0, threads=1, size_bytes=0, loads_each_run=False
        )

    @property
    def is_kept(self) -> bool:
        """True if its process runs all pairs."""
        return self._world.condition.kept

    def fed(self, workload: Workload) -> object:
        """Equal in both variants."""
        return workload

    def run(self, workload: Workload, turn: int, parts: int) -> Any:  # noqa: ARG002
        """The time of a run."""
        rng, condition = self._world.rng, self._world.condition
        log = self._offset + RUN_NOISE * rng.standard_normal()
        log += SLOW_BY * (rng.random() < condition.slow_runs)
        if self._is_candidate:
            log += self._slower.get(workload, 0.0)
        disturbed = math.log1p(condition.disturbed[self._is_candidate])
        if self._world.last is not self:
            log += disturbed
        elif not self._world.is_settled:
            log += condition.left * disturbed
        self._world.last, self._world.is_settled = self, True
        elapsed_ns = round(RUN_NS * math.exp(log))
        return SimpleNamespace(elapsed_ns=elapsed_ns, n_tokens=1, context=None)

    def warm_up(self, workload: Workload, turn: int, parts: int) -> None:
        """Run it."""
        self.run(workload, turn, parts)

    def settle(self, workload: Workload, turn: int, parts: int) -> None:  # noqa: ARG002
        """Do a piece of a run."""
        self._world.is_settled = self._world.last is self
        self._world.last = self

    def ran(self, context: object) -> Any:
        """It does nothing."""
        return context


def gate(condition: Condition, seed: int, rng: np.random.Generator) -> list[WorkloadPairs]:
    """Each check of a gate, as it was judged."""
    budget = Budget(condition.tolerance, 120, math.inf, seed)
    world = World(condition, rng)
    judged: list[WorkloadPairs] = []
    names = iter(range(sum(GROUPS)))
    for size in GROUPS:
        # Prompts of different lengths: of a generation, parts would be timed.
        workloads = tuple(Workload("pp", 64 + next(names)) for _ in range(size))
        slow = workloads if condition.everywhere else workloads[:1] if not judged else ()
        slower = dict.fromkeys(slow, math.log1p(condition.slower))
        sides = (partial(SimulatedArm, world, slower, is_candidate=side) for side in (False, True))
        elsewhere = tuple(pairs.test.evidence_for_fail() for pairs in judged)
        experiment = SpeedExperiment(workloads, budget, COMPARISONS, evidence_elsewhere=elsewhere)
        judged += experiment.decide(cast("Any", None), tuple(sides)).by_workload
    return judged


def timed(_lease: object, opening: OpenArms, experiment: SpeedExperiment) -> ABResult:
    """The pairs without the machine that they would run on."""
    return run_pairs(opening, experiment, lambda *_: None)


Found = list[tuple[Decision | None, int]]


def _batch(condition: Condition, seed: tuple[int, ...]) -> list[Found]:
    ab_speed.time_pairs = cast("Any", timed)
    rng = np.random.default_rng(seed)
    seeds = random.Random(repr(seed))  # noqa: S311  # repeatable
    gates = (gate(condition, seeds.randrange(2**32), rng) for _ in range(BATCH))
    return [[(pairs.test.outcome, len(pairs.pairs)) for pairs in gate] for gate in gates]


def _conditions() -> Iterator[Condition]:
    truths: tuple[dict[str, Any], ...] = (
        {},
        {"slower": 0.05},
        {"slower": 0.08},
        {"slower": 0.05, "everywhere": True},
    )
    noises: tuple[dict[str, Any], ...] = (
        {},
        {"sd": 0.01},
        {"sd": 0.02},
        {"sd": 0.03},
        {"sd": 0.03, "slow_runs": 0.05},
        {"two_kinds": 0.06},
        *({"disturbed": by} for by in ((0.03, 0.0), (0.05, 0.0), (0.0, 0.03), (0.0, 0.05))),
        {"disturbed": (0.05, 0.0), "left": 0.1},
        {"disturbed": (0.0, 0.05), "left": 0.1},
    )
    for noise in noises:
        for truth in truths[: 4 if "sd" in noise or not noise else 3]:
            yield Condition(**noise, **truth)
    yield Condition(sd=0.01, tolerance=0.02)
    yield Condition(sd=0.01, slower=0.02, tolerance=0.02)
    for sd in (0.01, 0.03):
        for truth in truths[:3]:
            yield Condition(sd=sd, kept=True, **truth)


def _row(condition: Condition, gates: list[Found]) -> tuple[tuple[str, ...], list[str]]:
    n_slow = (sum(GROUPS) if condition.everywhere else 1) if condition.slower else 0
    slow = [check for gate in gates for check in gate[:n_slow]]
    equal = [check for gate in gates for check in gate[n_slow:]]
    fails = sum(any(o is Decision.FAIL for o, _ in gate[n_slow:]) for gate in gates) / len(gates)
    passes = Counter(outcome for outcome, _ in slow)[Decision.PASS] / len(slow) if slow else 0.0
    exits = Counter(_exit(gate) for gate in gates)
    shares = " / ".join(f"{100 * exits[kind] / len(gates):.1f}" for kind in _EXITS)
    missed = []
    if not condition.kept:
        bound = 0.005 if condition.slower > condition.tolerance else 0.05
        missed += ["an equal check FAILs"] * _exceeds(fails, 0.01, len(gates))
        missed += ["a slower check PASSes"] * _exceeds(passes, bound, len(gates))
    passing = f"{100 * passes:.2f}" if slow else ""
    cells = condition.label(), f"{condition.tolerance:.0%}", f"{100 * fails:.1f}", passing
    return (*cells, shares, _pairs(equal), _pairs(slow)), missed


def _exceeds(share: float, bound: float, n: int) -> bool:
    """True if a share of n is above a bound by more than chance."""
    return share > bound + 3 * math.sqrt(bound * (1 - bound) / n)


_EXITS: Final = (Decision.PASS, Decision.FAIL, Decision.INCONCLUSIVE)


def _exit(gate: Found) -> Decision:
    outcomes = {outcome for outcome, _ in gate}
    if Decision.FAIL in outcomes:
        return Decision.FAIL
    return Decision.PASS if outcomes == {Decision.PASS} else Decision.INCONCLUSIVE


def _pairs(checks: Found) -> str:
    counts = [n for _, n in checks]
    return " / ".join(f"{q:.0f}" for q in np.quantile(counts, [0.5, 0.9])) if counts else ""


def main() -> None:
    """Print the table."""
    head = ("processes", "candidate", "tolerance", "FAIL of an equal check %",
            "PASS of a slower check %", "gates PASS / FAIL / INCONCLUSIVE %", "pairs, equal checks",
            "pairs, slower")  # fmt: skip
    broken: list[str] = []
    with simulations(__doc__, head) as simulate:
        for number, condition in enumerate(_conditions()):
            gates = list(chain(*simulate(number, partial(_batch, condition))))
            cells, missed = _row(condition, gates)
            print_row(*cells)
            broken += [f"{condition.label()}: {what}" for what in missed]
    sys.exit("\n".join(broken) if broken else 0)


if __name__ == "__main__":
    main()
