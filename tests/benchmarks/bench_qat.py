"""The shipped target fine-tuned under MLX's quantisation (QAT) beside its twin quantised after."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from models import shipped_target
from timing import table

from pytest_asperf.host import EngineBuild
from pytest_asperf.measure.lab import Lab, Plan
from pytest_asperf.measure.turn import machine_lock_path
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.shipped import shipped_corpus, shipped_models
from pytest_asperf.spec import LadderRequest, ModelRef, parse_workload
from pytest_asperf.stats.intervals import (
    chunk_difference_interval,
    delta_ppl,
    paired_change_interval,
)

if TYPE_CHECKING:
    from pytest_asperf.measure.results import LevelResult, ThroughputResult

_CHUNKS: Final = 6
_ROUNDS: Final = 15
_WORKLOAD: Final = parse_workload("tg32", where="bench_qat")
_LEVELS: Final = ("4bit", "3bit")
#: As promised by the findings: by how much the rates may differ.
_SAME_RATE: Final = 0.05


def main() -> bool:
    """Print both tables, and return whether QAT is shown to cost less at equal size and speed."""
    target = shipped_target("mlx")
    tuned = next(spec for spec in shipped_models() if spec.name == "asperf-target-qat").on("mlx")
    refs = {
        (way, level): ModelRef(spec, level)
        for level in _LEVELS
        for way, spec in (("QAT", tuned), ("PTQ", target))
    }
    rates: dict[ModelRef, ThroughputResult] = {}
    with Lab(
        EngineBuild("mlx", Path(sys.executable)),
        cache=cache_root(os.environ),
        corpus=shipped_corpus(),
        plan=Plan(chunks=_CHUNKS, repetitions=_ROUNDS),
        lock_path=machine_lock_path(),
        notify=_Silent(),
    ) as lab:
        for level in _LEVELS:
            rates |= lab.throughputs((refs["QAT", level], refs["PTQ", level]), _WORKLOAD)
        result = lab.ladder(LadderRequest(ModelRef(target, "F16"), tuple(refs.values())))
    for error in result.failures.values():
        raise error
    print(f"### Each against F16, {_CHUNKS} chunks, {_ROUNDS} rounds of {_WORKLOAD.name}\n")
    header = ("level", "", "MB", "PPL", "ΔPPL [90 % interval]", "KLD, nats", "TG, tok/s")
    rows = [_row(way, result.levels[ref], rates[ref]) for (way, _), ref in refs.items()]
    print(table(header, rows))
    print("\n### QAT against PTQ, paired by chunk and by round\n")
    holds = True
    compared = []
    for level in _LEVELS:
        qat, ptq = refs["QAT", level], refs["PTQ", level]
        row, shown = _compared(result.levels[qat], result.levels[ptq], rates[qat], rates[ptq])
        compared.append((level, *row))
        holds &= shown
    print(table(("level", "PPL", "KLD, nats", "size, bytes", "TG"), compared))
    return holds


def _row(way: str, found: LevelResult, rate: ThroughputResult) -> tuple[str, ...]:
    compared = found.comparison
    if compared.kld is None:
        raise ValueError("a ladder without KLD")
    return (
        found.level,
        way,
        f"{found.size_bytes / 1e6:.3f}",
        f"{compared.ppl.value:.3f}",
        compared.delta_ppl.text(),
        compared.kld.mean.text().replace(" nats", ""),
        rate.rate.text().replace(" tok/s", ""),
    )


def _compared(
    qat: LevelResult, ptq: LevelResult, qat_rate: ThroughputResult, ptq_rate: ThroughputResult
) -> tuple[tuple[str, ...], bool]:
    """Return QAT less PTQ in words, and whether all that is promised of it is shown."""
    ppl = delta_ppl([c.nll for c in ptq.chunks], [c.nll for c in qat.chunks])
    kld = chunk_difference_interval(
        [c.kld for c in ptq.chunks], [c.kld for c in qat.chunks], unit="nats"
    )
    rate = paired_change_interval(ptq_rate.rates, qat_rate.rates)
    same_rate = rate.shown_at_least(-_SAME_RATE) and rate.shown_at_most(_SAME_RATE)
    bytes_more = qat.size_bytes - ptq.size_bytes
    row = (ppl.text(), kld.text().replace(" nats", ""), f"{bytes_more:+d}", rate.text())
    return row, kld.shown_below(0) and same_rate


if __name__ == "__main__":
    raise SystemExit(not main())
