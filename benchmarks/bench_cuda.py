"""Throughput and PPL on an NVIDIA card beside llama-bench and llama-perplexity, same build.

Models have random weights: how fast a card computes does not depend on them. Of each model and
level a round is one process of each side, in random order, which times every workload.

Needs `ASPERF_BENCH_TOOLS`, a folder of llama.cpp's programs of the library's own build. Sizes to
measure are arguments: `python benchmarks/bench_cuda.py 0.5B 3B`.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from build_tools import tools_folder
from models import BUILD, Shape, level_files, write_random_llama
from scored import score
from timing import PeerError, interleave, ratio, run, table

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import Worker
from pytest_asperf.hardware.nvidia import read_cards
from pytest_asperf.measure.corpus import read_corpus
from pytest_asperf.measure.throughput import time_workload, workload_tokens
from pytest_asperf.modelfiles.shipped import shipped_corpus

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_asperf.config.spec import ModelSpec

_SHAPES: Final = {
    "0.5B": Shape(n_vocab=32_768, n_embd=1024, n_ff=4096, n_layers=24),
    "3B": Shape(n_vocab=32_768, n_embd=3072, n_ff=8192, n_layers=28),
    "8B": Shape(n_vocab=32_768, n_embd=4096, n_ff=14_336, n_layers=32),
}
_LEVELS: Final = ("F16", "Q8_0", "Q4_K_M")
_WORKLOADS: Final = (Workload("pp", 512), Workload("tg", 128), Workload("tg", 128, 4096))
#: The model's context of 2,048 would be exceeded by a depth of 4,096.
_N_CTX: Final = 8192
_ROUNDS: Final = 5
_RUNS: Final = 3
_CHUNKS: Final = 40
_TOLERANCE: Final = 0.02
#: The card, flash attention as the engine decides, and every layer on it.
_SETTINGS: Final = EngineSettings(flash_attn="on")


def main(sizes: list[str]) -> bool:
    """Print the tables, and return whether ours agrees with theirs."""
    cards = read_cards()
    if not cards:
        print("No NVIDIA card: nothing was measured.")
        return True
    print(f"### {cards[0].name}, {_ROUNDS} processes of each side\n", flush=True)
    agree = True
    for size in sizes or ["0.5B"]:
        with tempfile.TemporaryDirectory() as folder:
            spec = write_random_llama(Path(folder) / f"{size}.gguf", _SHAPES[size], n_ctx=_N_CTX)
            files = level_files(spec, _LEVELS, cache=Path(folder))
            rows = [row for level, path in files.items() for row in _speed(spec, level, path)]
            header = ("model", "run", "ours, tok/s", "llama-bench", "time, ours / theirs")
            print(table(header, [row for row, _ in rows]), flush=True)
            agree &= all(abs(time - 1) <= _TOLERANCE for _, time in rows)
            _ppl(size, files["F16"])
    return agree


def _speed(spec: ModelSpec, level: str, path: Path) -> list[tuple[tuple[str, ...], float]]:
    """A row for each workload, and the ratio of both sides' times."""
    arms: dict[str, Callable[[], list[float]]] = {
        "ours": lambda: _our_times(spec, path),
        "theirs": lambda: _their_times(path),
    }
    times = interleave(arms, rounds=_ROUNDS, seed=len(level))
    rows = []
    for index, workload in enumerate(_WORKLOADS):
        ours, theirs = ([times_ns[index] for times_ns in times[side]] for side in arms)
        rates = [workload.n_tokens / statistics.median(side) * 1e9 for side in (ours, theirs)]
        compared = ratio(ours, theirs)
        shown = (f"{rate:,.0f}" for rate in rates)
        row = (f"{spec.name} {level}", workload.name, *shown, str(compared))
        rows.append((row, compared.typical))
    return rows


def _our_times(spec: ModelSpec, path: Path) -> list[float]:
    """Median time of each workload in one process, after one run that is not counted."""
    corpus = read_corpus(spec, shipped_corpus())
    with Worker(BUILD) as worker:
        worker.load("model", path, _SETTINGS)
        times = []
        for workload in _WORKLOADS:
            tokens = workload_tokens(worker, "model", corpus, workload)
            runs = [time_workload(worker, "model", tokens, workload) for _ in range(_RUNS + 1)]
            times.append(statistics.median(run.elapsed_ns for run in runs[1:]))
    return times


def _their_times(path: Path) -> list[float]:
    command = [str(tools_folder() / "llama-bench"), "-m", str(path), "-fa", "on", "-r", str(_RUNS)]
    times = []
    for sizes in (("-p", "512", "-n", "128"), ("-p", "0", "-n", "128", "-d", "4096")):
        done = run([*command, *sizes, "-o", "jsonl"])
        times += [
            statistics.median(json.loads(line)["samples_ns"]) for line in done.text.splitlines()
        ]
    if len(times) != len(_WORKLOADS):
        raise PeerError(f"llama-bench printed {len(times)} results")
    return times


def _ppl(size: str, path: Path) -> None:
    """Print the wall time of PPL, from process start to result."""
    tool, corpus = tools_folder() / "llama-perplexity", shipped_corpus()
    command = [str(tool), "-m", str(path), "-f", str(corpus), "-fa", "on", "-t", "1"]
    arms = {
        "ours": lambda: score({"model": path}, corpus, chunks=_CHUNKS).cost.wall_s,
        "theirs": lambda: run([*command, "--chunks", str(_CHUNKS)]).cost.wall_s,
    }
    walls = interleave(arms, rounds=3, seed=1)
    compared = ratio(walls["ours"], walls["theirs"])
    seconds = " and ".join(f"{statistics.median(side):.2f} s" for side in walls.values())
    print(f"PPL of {size} F16 over {_CHUNKS} chunks, ours and theirs: {seconds}, {compared}.\n")


if __name__ == "__main__":
    raise SystemExit(not main(sys.argv[1:]))
