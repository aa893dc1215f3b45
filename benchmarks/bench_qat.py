"""The shipped target fine-tuned under MLX's quantization (QAT), and its twin quantized after."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from models import shipped_target
from timing import table

from pytest_asperf.analysis.stats.chunk_intervals import chunk_difference_interval, delta_ppl
from pytest_asperf.config.progress import Notify
from pytest_asperf.config.spec import ModelRef
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.hardware.machine_lock import machine_lock_path
from pytest_asperf.measure.ab_speed import Budget, SpeedExperiment
from pytest_asperf.measure.experiment import MeasurementPlan
from pytest_asperf.measure.runner import ComparedSide, MeasurementRunner
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.hub_cache import shipped_corpus, shipped_models

if TYPE_CHECKING:
    from pytest_asperf.measure.ab_speed import ABResult
    from pytest_asperf.measure.results import LevelResult

_CHUNKS: Final = 6
_WORKLOAD: Final = parse_workload("tg16", where="bench_qat")
_LEVELS: Final = ("4bit", "3bit")
#: Accepted difference of the rates, and the maximal cost of finding it out.
_BUDGET: Final = Budget(0.05, 60, 30.0, seed=20261121, claim=(1 / 1.05, 1.05))


def main() -> bool:
    """Print both tables, and return whether QAT is shown to cost less at equal size and speed."""
    target = shipped_target("mlx")
    tuned = next(spec for spec in shipped_models() if spec.name == "asperf-target-qat").on("mlx")
    refs = {
        (way, level): ModelRef(spec, level)
        for level in _LEVELS
        for way, spec in (("QAT", tuned), ("PTQ", target))
    }
    with MeasurementRunner(
        EngineBuild("mlx", Path(sys.executable)),
        cache=cache_root(os.environ),
        corpus=shipped_corpus(),
        plan=MeasurementPlan(chunks=_CHUNKS),
        lock_path=machine_lock_path(),
        notify=Notify(),
    ) as runner:
        timed = {
            level: runner.compare(
                tuple(ComparedSide(runner, (refs[way, level],)) for way in ("PTQ", "QAT")),
                SpeedExperiment((_WORKLOAD,), _BUDGET),
            )
            for level in _LEVELS
        }
        result = runner.ladder(ModelRef(target, "F16"), tuple(refs.values()))
    for error in result.failures.values():
        raise error
    print(f"### Each against F16, {_CHUNKS} chunks, {_WORKLOAD.name}\n")
    rows = [_row(way, level, result.rungs[ref], timed[level]) for (way, level), ref in refs.items()]
    header = ("level", "", "MB", "PPL", "ΔPPL [90 % interval]", "KLD, nats", "TG, tok/s (median)")
    print(table(header, rows))
    print("\n### QAT against PTQ, paired\n")
    compared = [
        (level, *_compared(result.rungs[refs["QAT", level]], result.rungs[refs["PTQ", level]]))
        for level in _LEVELS
    ]
    rates = [_rate(timed[level]) for level in _LEVELS]
    names = ("level", "PPL", "KLD, nats", "size, bytes", "TG, times", "pairs")
    print(table(names, [(*row, *rate) for row, rate in zip(compared, rates, strict=True)]))
    return all(str(pairs.by_workload[0].test.outcome) == "PASS" for pairs in timed.values())


def _row(way: str, level: str, found: LevelResult, pairs: ABResult) -> tuple[str, ...]:
    compared = found.comparison
    if compared.kld is None:
        raise ValueError("a ladder without KLD")
    runs_ns = sorted(
        run
        for pair in pairs.by_workload[0].pairs
        for run in (pair.candidate_costs if way == "QAT" else pair.baseline_costs)
    )
    return (
        level,
        way,
        f"{found.size_bytes / 1e6:.3f}",
        f"{compared.ppl.value:.3f}",
        compared.delta_ppl.text(),
        compared.kld.text().replace(" nats", ""),
        f"{_WORKLOAD.n_tokens * 1e9 / runs_ns[len(runs_ns) // 2]:.0f}",
    )


def _compared(qat: LevelResult, ptq: LevelResult) -> tuple[str, ...]:
    """Return by how much QAT is less than PTQ, in words."""
    ppl = delta_ppl([c.nll for c in ptq.chunks], [c.nll for c in qat.chunks])
    kld = chunk_difference_interval(
        [c.kld for c in ptq.chunks], [c.kld for c in qat.chunks], unit="nats"
    )
    bytes_more = qat.size_bytes - ptq.size_bytes
    return ppl.text(), kld.text().replace(" nats", ""), f"{bytes_more:+d}"


def _rate(pairs: ABResult) -> tuple[str, str]:
    test = pairs.by_workload[0].test
    return test.estimate.as_ratio().inverted().text(), str(test.n)


if __name__ == "__main__":
    raise SystemExit(not main())
