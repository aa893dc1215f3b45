"""Live gates on the shipped target: equal builds, and a candidate slowed by a known share."""

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
from typing import TYPE_CHECKING, Final

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

_TOLERANCE: Final = 0.05
_MAX_SECONDS: Final = 60.0

#: Share by which the candidate is slowed, gates of each, and what the issue of gating promises:
#: at most so many FAIL of equal builds, at least so many of a slowed one.
_CASES: Final = ((0.0, 60), (0.07, 20), (0.10, 20))
_MOST_FALSE: Final = 2
_LEAST_FOUND: Final = 19


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
    share = parser.parse_args().gates
    cases = [slow_by for slow_by, n_gates in _CASES for _ in range(round(n_gates * share))]
    random.Random(0).shuffle(cases)  # noqa: S311  # repeatable, not unguessable
    timed: dict[float, list[WorkloadPairs]] = {slow_by: [] for slow_by, _ in _CASES}
    began = time.monotonic()
    with suppress(KeyboardInterrupt):  # the table is of the gates that are finished
        for seed, slow_by in enumerate(cases):
            timed[slow_by].append(_gate(slow_by, seed))
            elapsed_s = time.monotonic() - began
            print(f"{seed + 1}/{len(cases)} gates, {elapsed_s:.0f} s", file=sys.stderr)
    print(f"### Live gates, tg128 of asperf-target at tolerance {_TOLERANCE:.0%}\n")
    header = ("candidate", "gates", "PASS", "FAIL", "INCONCLUSIVE", "pairs", "seconds", "spread")
    print(table(header, [_row(slow_by, done) for slow_by, done in timed.items()]))
    fails = {slow_by: _outcomes(done)[Outcome.FAIL] for slow_by, done in timed.items()}
    found = all(fails[s] >= len(timed[s]) - 20 + _LEAST_FOUND for s in timed if s)
    return fails[0.0] <= _MOST_FALSE and found


def _gate(slow_by: float, seed: int) -> WorkloadPairs:
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
                "slowed", Interpreter(Path(sys.executable)), EngineSettings(slow_by=slow_by or None)
            ),
        )
        budget = Budget(_TOLERANCE, 60, _MAX_SECONDS, seed)
        workloads = (parse_workload("tg128", where="here"),)
        sides = runner.under((ModelRef(shipped_target(), "F16"),), builds)
        result = runner.compare(sides, SpeedExperiment(workloads, budget))
    if result.interrupted:  # a gate keeps its pairs; the benchmark ends
        raise KeyboardInterrupt
    return result.by_workload[0]


def _outcomes(timed: list[WorkloadPairs]) -> Counter[Outcome]:
    return Counter(workload_pairs.test.outcome or Outcome.INCONCLUSIVE for workload_pairs in timed)


def _row(slow_by: float, timed: list[WorkloadPairs]) -> tuple[str, ...]:
    outcomes = _outcomes(timed)
    pairs = sorted(len(workload_pairs.pairs) for workload_pairs in timed)
    seconds = sorted(workload_pairs.elapsed_s for workload_pairs in timed)
    spread = statistics.median(
        statistics.stdev([pair.log_ratio for pair in workload_pairs.pairs])
        for workload_pairs in timed
    )
    return (
        f"+{slow_by:.0%}" if slow_by else "equal",
        str(len(timed)),
        *(str(outcomes[o]) for o in (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE)),
        f"{statistics.median(pairs):g} (90 %: {pairs[int(0.9 * len(pairs))]})",
        f"{statistics.median(seconds):.0f} (90 %: {seconds[int(0.9 * len(seconds))]:.0f})",
        f"{spread:.1%}",
    )


if __name__ == "__main__":
    raise SystemExit(not main())
