"""Types of KV cache on both engines: their cost in PPL, and TG after much context."""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from models import shipped_target
from timing import table

from pytest_asperf.config.engine_settings import parse_kv_type
from pytest_asperf.config.progress import Notify
from pytest_asperf.config.spec import ModelRef
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.hardware.machine_lock import machine_lock_path
from pytest_asperf.measure.experiment import MeasurementPlan
from pytest_asperf.measure.runner import MeasurementRunner
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.hub_cache import shipped_corpus

if TYPE_CHECKING:
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.measure.results import LevelResult, ThroughputResult

_CHUNKS: Final = 12
_REPETITIONS: Final = 6
_AT_DEPTH: Final = "tg64@d1500"
_TYPES: Final[dict[Engine, tuple[str, ...]]] = {
    "llama_cpp": ("q8_0", "q4_0", "q4_0/f16"),
    "mlx": ("8bit", "4bit"),
}


def main() -> bool:
    """Print the table; nothing is promised of it."""
    print(f"### KV cache of the shipped target in F16: PPL over {_CHUNKS} chunks, {_AT_DEPTH}\n")
    header = ("engine", "KV cache", "MB at 512", "ΔPPL [90 % interval]", "KLD")
    for engine, types in _TYPES.items():
        rows = _of_engine(engine, types)
        print(table((*header, "TG, tok/s", "beside its baseline"), rows), flush=True)
    return True


def _of_engine(engine: Engine, types: tuple[str, ...]) -> list[tuple[str, ...]]:
    base = ModelRef(shipped_target(engine), "F16")
    rungs = {name: base.with_kv(parse_kv_type(name, where=engine)) for name in types}
    with MeasurementRunner(
        EngineBuild(engine, Path(sys.executable)),
        cache=cache_root(os.environ),
        corpus=shipped_corpus(),
        plan=MeasurementPlan(chunks=_CHUNKS, repetitions=_REPETITIONS),
        lock_path=machine_lock_path(),
        notify=Notify(),
    ) as runner:
        scored = runner.ladder(base, tuple(rungs.values()))
        timed = runner.throughputs((base, *rungs.values()), parse_workload(_AT_DEPTH, where=engine))
    for error in scored.failures.values():
        raise error
    plain = timed[base]
    rows = [
        (engine, name, *_cost(scored.rungs[ref]), *_speed(timed[ref], plain))
        for name, ref in rungs.items()
    ]
    return [(engine, "not quantized", "", "0", "0", plain.rate.text(), "1"), *rows]


def _cost(found: LevelResult) -> tuple[str, str, str]:
    compared, memory = found.comparison, found.ran.memory
    if compared.kld is None or memory is None:
        raise ValueError("a ladder without KLD, or an engine that does not count")
    return f"{memory.kv / 1e6:.2f}", compared.delta_ppl.text(), f"{compared.kld.point:.5f}"


def _speed(timed: ThroughputResult, plain: ThroughputResult) -> tuple[str, str]:
    # Round by round, since those of one round were measured side by side.
    ratios = [a / b for a, b in zip(timed.rates, plain.rates, strict=True)]
    middle = statistics.median(ratios)
    return timed.rate.text(), f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    raise SystemExit(not main())
