"""Live gates on the shipped target: equal builds, and candidates slowed by known shares.

On a busy machine a candidate is slower than its share, as load delays a step that computes longer
by more: run it on a quiet one.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from models import BUILD, shipped_target
from timing import table

from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.config.build_sources import Interpreter
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.spec import Build, ModelRef
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.hardware.machine_lock import machine_lock_path
from pytest_asperf.measure.ab_speed import Budget, SpeedExperiment
from pytest_asperf.measure.plan import MeasurementPlan
from pytest_asperf.measure.runner import MeasurementRunner
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.shipped import shipped_corpus

if TYPE_CHECKING:
    from pytest_asperf.measure.ab_speed import WorkloadPairs

_MAX_SECONDS: Final = 60.0

_HEADER: Final = (
    *("tolerance", "candidate", "gates", "PASS", "FAIL", "INCONCLUSIVE", "ratio", "pairs"),
    *("seconds", "spread"),
)


class _Case(NamedTuple):
    """A tolerance, a share by which the candidate is slowed, and what the gates have to say.

    Attributes:
        expected: the verdict.
        n_gates: how many.
        most_others: the most of them that may say something else.
    """

    tolerance: float
    slow_by: float
    expected: Outcome
    n_gates: int
    most_others: int

    @property
    def candidate(self) -> str:
        return f"+{self.slow_by:.0%}" if self.slow_by else "equal"


_CASES: Final = (
    _Case(0.05, 0.0, Outcome.PASS, 60, 2),
    _Case(0.05, 0.07, Outcome.FAIL, 20, 1),
    _Case(0.05, 0.10, Outcome.FAIL, 20, 1),
    _Case(0.40, 0.28, Outcome.PASS, 20, 1),
    _Case(0.40, 0.45, Outcome.FAIL, 20, 1),
)


class _Silent:
    """Takes no notice: what is benchmarked is not watched."""

    def progress(self, label: str, done: int, total: int) -> None:
        """Say nothing."""

    def done(self) -> None:
        """Say nothing."""

    def wait(self, reason: str) -> None:
        """Say what is waited for: it is not measured, but it takes time."""
        print(f"waiting: {reason}", file=sys.stderr)

    def say(self, text: str) -> None:
        """Say nothing."""


def main() -> bool:
    """Print the table, and return whether the promised rates hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gates", type=float, default=1.0, help="share of the gates to run")
    parser.add_argument("--tolerance", type=float, help="run the cases of this one alone, as 0.4")
    options = parser.parse_args()
    cases = [case for case in _CASES if options.tolerance in {None, case.tolerance}]
    gates = [case for case in cases for _ in range(round(case.n_gates * options.gates))]
    random.Random(0).shuffle(gates)  # noqa: S311  # repeatable, not unguessable
    timed: dict[_Case, list[WorkloadPairs]] = {}
    began = time.monotonic()
    with suppress(KeyboardInterrupt):  # the table is of the gates that are finished
        for seed, case in enumerate(gates):
            timed.setdefault(case, []).append(_gate(case, seed))
            elapsed_s = time.monotonic() - began
            print(f"{seed + 1}/{len(gates)} gates, {elapsed_s:.0f} s", file=sys.stderr)
    print("### Live gates, tg128 of asperf-target\n")
    print(table(_HEADER, [_row(case, timed[case]) for case in cases if case in timed]))
    others = {case: len(done) - _outcomes(done)[case.expected] for case, done in timed.items()}
    return all(n <= case.most_others for case, n in others.items())


def _gate(case: _Case, seed: int) -> WorkloadPairs:
    plan = MeasurementPlan(seed=seed)
    with MeasurementRunner(
        BUILD,
        cache=cache_root(os.environ),
        corpus=shipped_corpus(),
        plan=plan,
        lock_path=machine_lock_path(),
        notify=_Silent(),
    ) as runner:
        builds = (
            Build("current", Interpreter(Path(sys.executable))),
            Build(
                "slowed",
                Interpreter(Path(sys.executable)),
                EngineSettings(slow_by=case.slow_by or None),
            ),
        )
        budget = Budget(case.tolerance, 60, _MAX_SECONDS, seed)
        workloads = (parse_workload("tg128", where="here"),)
        sides = runner.under((ModelRef(shipped_target(), "F16"),), builds)
        result = runner.compare(sides, SpeedExperiment(workloads, budget))
    if result.interrupted:  # a gate keeps its pairs; the benchmark ends
        raise KeyboardInterrupt
    return result.by_workload[0]


def _outcomes(timed: list[WorkloadPairs]) -> Counter[Outcome]:
    return Counter(workload_pairs.test.outcome or Outcome.INCONCLUSIVE for workload_pairs in timed)


def _row(case: _Case, timed: list[WorkloadPairs]) -> tuple[str, ...]:
    outcomes = _outcomes(timed)
    pairs = sorted(len(workload_pairs.pairs) for workload_pairs in timed)
    seconds = sorted(workload_pairs.elapsed_s for workload_pairs in timed)
    spread = statistics.median(
        statistics.stdev([pair.log_ratio for pair in workload_pairs.pairs])
        for workload_pairs in timed
    )
    ratio = statistics.median(
        workload_pairs.test.estimate.as_ratio().point for workload_pairs in timed
    )
    return (
        f"{case.tolerance:.0%}",
        case.candidate,
        str(len(timed)),
        *(str(outcomes[o]) for o in (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE)),
        f"{ratio:.2f}",
        f"{statistics.median(pairs):g} (90 %: {pairs[int(0.9 * len(pairs))]})",
        f"{statistics.median(seconds):.0f} (90 %: {seconds[int(0.9 * len(seconds))]:.0f})",
        f"{spread:.1%}",
    )


if __name__ == "__main__":
    raise SystemExit(not main())
