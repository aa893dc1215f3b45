"""How often a healthy build FAILs by two limits of a gate, and from which size a fault is found.

Run it as ``python benchmarks/bench_gate_limits.py``: 4 minutes on two cores. `embeddings` compares
lengths of vectors of other texts in each gate. `memory` compares new processes in each gate. Faults
are added to what was measured, and the product's own verdicts judge both. It exits with 1 if a
healthy build FAILs, or a fault of twice a limit PASSes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, TypeVar

from models import BUILD
from timing import table

from pytest_asperf.analysis.verdict import Outcome, Verdict
from pytest_asperf.config.build_sources import Interpreter
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.progress import Notify
from pytest_asperf.config.spec import Build, ModelRef
from pytest_asperf.measure.embeddings import EmbeddingsComparison, EmbeddingsExperiment
from pytest_asperf.measure.experiment import MeasurementPlan
from pytest_asperf.measure.memory import LATER_REQUESTS, MemoryABExperiment, MemoryComparison
from pytest_asperf.measure.runner import MeasurementRunner
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.hub_cache import shipped_corpus, shipped_models
from pytest_asperf.verdicts.embeddings import embeddings_verdict
from pytest_asperf.verdicts.memory import memory_verdict

if TYPE_CHECKING:
    from pytest_asperf.measure.experiment import PairedExperiment

Result = TypeVar("Result")

_MODELS: Final = (("asperf-target", "Q4_K_M"), ("asperf-draft", "Q8_0"))
_CANDIDATES: Final = {
    "flash attention off": EngineSettings(flash_attn="off"),
    "a q8_0 cache": EngineSettings(type_k="q8_0", type_v="q8_0"),
}
_GATES: Final = 15
_TOLERANCE: Final = 0.05
#: Vectors are longer by these shares, and a request leaves so many KiB.
_STRETCHES: Final = (0.0, 0.005, 0.01, 0.012, 0.015, 0.02, 0.025, 0.04)
_LEAKS: Final = (0, 32, 64, 80, 88, 96, 128, 176)


def main() -> int:
    """Print both tables; 1 if a verdict is wrong."""
    wrong = []
    with TemporaryDirectory() as folder:
        for title, build, sizes, of_size in (
            ("embeddings, longer by", _embeddings, _STRETCHES, "{:.1%}"),
            ("memory, KiB left by each request", _memory, _LEAKS, "{}"),
        ):
            rows = []
            for label, done in build(Path(folder)):
                shares = [_share_of_fails(size, done) for size in sizes]
                rows.append((label, *(f"{share:.0%}" for share in shares)))
                if shares[0] or shares[-1] < 1:
                    wrong.append(f"{title}, {label}: {rows[-1]}")
            print(table((title, *map(of_size.format, sizes)), rows), flush=True)
    print(*wrong, sep="\n")
    return bool(wrong)


def _share_of_fails(
    size: float, done: Sequence[EmbeddingsComparison] | Sequence[MemoryComparison]
) -> float:
    """The share of gates that FAIL if a fault of a size is added."""
    outcomes = [_judged(one, size).outcome for one in done]
    return outcomes.count(Outcome.FAIL) / len(outcomes)


def _judged(done: EmbeddingsComparison | MemoryComparison, size: float) -> Verdict:
    if isinstance(done, EmbeddingsComparison):
        vectors_of = done.candidate
        alone, together = (
            tuple(tuple(value * (1 + size) for value in vector) for vector in vectors)
            for vectors in (vectors_of.alone, vectors_of.together)
        )
        return embeddings_verdict(
            replace(done, candidate=replace(vectors_of, alone=alone, together=together))
        )
    candidate = done.candidate
    left = candidate.left_bytes + round(size * 1024) * LATER_REQUESTS
    return memory_verdict(replace(done, candidate=replace(candidate, left_bytes=left)), _TOLERANCE)


def _embeddings(folder: Path) -> Iterator[tuple[str, list[EmbeddingsComparison]]]:
    text = shipped_corpus().read_text("utf-8")
    step = len(text) // _GATES
    texts = [folder / f"{number}.txt" for number in range(_GATES)]
    for number, path in enumerate(texts):
        path.write_text(text[number * step : (number + 1) * step], "utf-8")
    for name, quant in _MODELS:
        for label, settings in _CANDIDATES.items():
            done = [
                _compared((name, quant), settings, EmbeddingsExperiment(), folder, path)
                for path in texts
            ]
            most = max(one.stretch for one in done)
            yield f"{name} {quant}, {label} (by itself up to {most:.2%})", done


def _memory(folder: Path) -> Iterator[tuple[str, list[MemoryComparison]]]:
    for name, quant in _MODELS:
        equal = EngineSettings()
        done = [
            _compared((name, quant), equal, MemoryABExperiment(), folder, shipped_corpus())
            for _ in range(_GATES)
        ]
        most = max(one.candidate.left_bytes for one in done) // 1024
        yield f"{name} {quant}, equal builds (they leave up to {most} KiB)", done


def _compared(
    model: tuple[str, str],
    settings: EngineSettings,
    experiment: PairedExperiment[Result],
    folder: Path,
    corpus: Path,
) -> Result:
    """Both builds, in a runner of its own; nothing is timed, so that it waits for nobody."""
    name, quant = model
    spec = next(spec for spec in shipped_models() if spec.name == name).on("llama_cpp")
    source = Interpreter(Path(sys.executable))
    builds = Build("baseline", source), Build("candidate", source, settings)
    with MeasurementRunner(
        BUILD,
        cache=cache_root(os.environ),
        corpus=corpus,
        plan=MeasurementPlan(),
        lock_path=folder / "lock",
        notify=Notify(),
    ) as runner:
        return runner.compare(runner.under((ModelRef(spec, quant),), builds), experiment)


if __name__ == "__main__":
    sys.exit(main())
