"""J per token of prefill and decoding by quantization, and gates on energy.

``python benchmarks/bench_energy.py MODEL`` needs an F16 GGUF file or a folder in Hugging Face's
format; without one it writes a random model of about 3 billion parameters. The counters' cadence is
found while they are read. It needs about four minutes on a GPU, and reports if no counter can be
read.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from models import BUILD, Shape, write_random_llama
from timing import table

from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.config.build_sources import Interpreter
from pytest_asperf.config.progress import Notify
from pytest_asperf.config.spec import Build, ModelRef, ModelSpec, Variant
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.errors import AsperfError, HardwareError
from pytest_asperf.hardware.machine_lock import machine_lock_path
from pytest_asperf.measure.ab_speed import Budget, SpeedExperiment
from pytest_asperf.measure.energy import EnergyExperiment
from pytest_asperf.measure.experiment import MeasurementPlan
from pytest_asperf.measure.runner import ComparedSide, MeasurementRunner
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.hub_cache import shipped_corpus
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import lab_note
from pytest_asperf.verdicts.energy import disagreements, energy_notes
from pytest_asperf.verdicts.gate import speed_verdict

if TYPE_CHECKING:
    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.measure.energy import EnergyResult
    from pytest_asperf.measure.metered import PhaseEnergy

_LEVELS: Final = ("F16", "Q8_0", "Q4_K_M")
_WORKLOADS: Final = ("jpp512", "jtg128")
_GATED: Final = "jtg128"
_TOLERANCE: Final = 0.05
_WINDOWS: Final = 6
#: 3.2 billion parameters; three layers more compute 10 % more.
_SHAPE: Final = Shape(n_vocab=2048, n_embd=3072, n_ff=8192, n_layers=28)
_MORE_LAYERS: Final = 3


class _Notices(Notify):
    """Prints waits, and nothing else: it would use time of the phases."""

    def wait(self, reason: str) -> None:
        """Print the wait."""
        print(f"waiting: {reason}", file=sys.stderr, flush=True)


def main() -> bool:
    """Print the tables, and return whether both gates came out as they must."""
    began_s = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, help="F16 GGUF file, or a folder")
    parser.add_argument("--levels", nargs="+", default=list(_LEVELS))
    parser.add_argument("--windows", type=int, default=_WINDOWS, help="of each reading")
    parser.add_argument("--more-layers", type=int, default=_MORE_LAYERS, help="of the candidate")
    parser.add_argument("--max-seconds", type=float, default=60.0, help="of each gate")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with MeasurementRunner(
        BUILD,
        cache=cache_root(os.environ),
        corpus=shipped_corpus(),
        plan=MeasurementPlan(seed=options.seed, repetitions=options.windows),
        lock_path=machine_lock_path(),
        notify=_Notices(),
    ) as runner:
        try:
            runner.energy_meter()
        except HardwareError as error:
            print(f"### Energy\n\nNot measured here: {error.what}.")
            return True
        spec = _spec(options.model)
        phases = _readings(runner, spec, options.levels)
        _counters(phases)
        as_expected = _gates(runner, spec, options)
    print(f"{time.monotonic() - began_s:.0f} s", file=sys.stderr)
    return as_expected


def _spec(path: Path | None) -> ModelSpec:
    if path is None:
        path = cache_root(os.environ) / "bench-energy-3b.gguf"
        if not path.exists():
            write_random_llama(path, _SHAPE)
    if path.is_dir():
        return ModelSpec(path.name, hf_folder=path)
    return ModelSpec(path.stem, gguf=path)


def _readings(runner: MeasurementRunner, spec: ModelSpec, levels: list[str]) -> list[PhaseEnergy]:
    """The table of J per token; gives the phases of all measurements."""
    print("### J per token\n")
    rows: list[tuple[str, ...]] = []
    phases: list[PhaseEnergy] = []
    for level in levels:
        for name in _WORKLOADS:
            began_s = time.monotonic()
            side = ComparedSide(runner, (ModelRef(spec, level),))
            workload = parse_workload(name, where="here", any_cost=True)
            experiment = EnergyExperiment(workload, runner.plan.repetitions)
            try:
                result = runner.compare((side,), experiment)
            except AsperfError as error:
                rows.append((level, name, "", error.what, "", "", "", "", ""))
                continue
            rows.append((level, *_row(result)))
            phases += result.phases
            took_s = time.monotonic() - began_s
            print(f"{level} {name}: {took_s:.0f} s, {rows[-1]}", file=sys.stderr, flush=True)
    header = (
        *("level", "phase", "rails", "J/token, gross", "net of idle", "W", "idle W"),
        *("at work", "windows"),
    )
    print(table(header, rows), flush=True)
    return phases


def _row(result: EnergyResult) -> tuple[str, ...]:
    gross, net = result.joules_per_token(), result.joules_per_token(net=True)
    busy = sum(p.busy_s for p in result.phases) / sum(p.wall_s for p in result.phases)
    return (
        replace(result.workload, metered=False).name,
        ", ".join(result.rails),
        gross.text(),
        net.text(),
        result.watts().text(),
        f"{result.idle.watts():.4g}",
        f"{busy:.0%}",
        str(gross.n),
    )


def _counters(phases: list[PhaseEnergy]) -> None:
    print("### Counters\n")
    for note in (*energy_notes(phases), *map(str, disagreements(phases))):
        print(f"- {note}")
    print(flush=True)


def _gates(runner: MeasurementRunner, spec: ModelSpec, options: argparse.Namespace) -> bool:
    """Gate a model against itself, and against one that computes more."""
    print(f"### Gates on {_GATED}, tolerance {_TOLERANCE:.0%}\n")
    base = ModelRef(spec, "F16")
    larger = replace(
        spec,
        name=f"{spec.name}+layers={options.more_layers}",
        variant=Variant("layers", options.more_layers),
    )
    here = Interpreter(Path(sys.executable))
    own = runner.under((base,), (Build("a", here), Build("b", here)))
    more = ComparedSide(runner, (base,)), ComparedSide(runner, (ModelRef(larger, "F16"),))
    cases = (("itself", own, Outcome.PASS), (larger.name, more, Outcome.FAIL))
    rows, as_expected = [], True
    for name, sides, expected in cases:
        verdict, n_pairs = _gate(runner, sides, options)
        as_expected &= verdict.outcome is expected
        measured = in_words(verdict).measured
        rows.append((name, str(expected), str(verdict.outcome), measured, str(n_pairs)))
        print(f"{rows[-1]}\n{lab_note(verdict)}", file=sys.stderr, flush=True)
    print(table(("candidate", "expected", "verdict", "measured", "pairs"), rows), flush=True)
    return as_expected


def _gate(
    runner: MeasurementRunner,
    sides: tuple[ComparedSide, ComparedSide],
    options: argparse.Namespace,
) -> tuple[Verdict, int]:
    workload: Workload = parse_workload(_GATED, where="here", any_cost=True)
    budget = Budget(_TOLERANCE, 60, options.max_seconds, options.seed)
    result = runner.compare(sides, SpeedExperiment((workload,), budget))
    (pairs,) = result.by_workload
    return speed_verdict(pairs, result), len(pairs.pairs)


if __name__ == "__main__":
    raise SystemExit(not main())
