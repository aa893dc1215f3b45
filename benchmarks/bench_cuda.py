"""Throughput, PPL and KLD on an NVIDIA card, compared with llama-bench and llama-perplexity.

Both have one build. Models have random weights: a card's speed does not depend on them. For each
model and quantization a round is one process of each, in random order, which times every workload.
A model with a large vocabulary is scored only, over a sweep of all quantizations.

Needs `ASPERF_BENCH_TOOLS`, a folder of llama.cpp's binaries of the library's own build. Sizes to
measure are arguments: `python benchmarks/bench_cuda.py 0.5B 3B 8B 0.5B-150k`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench_ppl_parity import print_divergence, print_ppl
from installed_tools import tools_folder
from models import BUILD, Shape, level_files, write_random_llama
from peers import Peers
from scored import score
from timing import PeerError, interleave, ratio, run, table

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import Worker
from pytest_asperf.hardware.nvidia import read_cards
from pytest_asperf.measure.feeding import read_corpus, workload_tokens
from pytest_asperf.measure.timed_work import time_workload
from pytest_asperf.modelfiles.hub_cache import shipped_corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from peers import DivergenceRun, PplRun

    from pytest_asperf.config.spec import ModelSpec

_SHAPES: Final = {
    "0.5B": Shape(n_vocab=32_768, n_embd=1024, n_ff=4096, n_layers=24),
    "3B": Shape(n_vocab=32_768, n_embd=3072, n_ff=8192, n_layers=28),
    "8B": Shape(n_vocab=32_768, n_embd=4096, n_ff=14_336, n_layers=32),
    "0.5B-150k": Shape(n_vocab=150_000, n_embd=1024, n_ff=4096, n_layers=24),
}
_LEVELS: Final = ("F16", "Q8_0", "Q4_K_M")
_LONG_LADDER: Final = ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")
_WORKLOADS: Final = (Workload("pp", 512), Workload("tg", 128), Workload("tg", 128, 4096))
#: The model's context of 2,048 would be exceeded by a depth of 4,096.
_N_CTX: Final = 8192
_ROUNDS: Final = 4
_SCORED_ROUNDS: Final = 3
#: Runs of the median: the first that llama-bench counts is two to three times as slow.
_RUNS: Final = 10
_CHUNKS: Final = 20
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
        shape = _SHAPES[size]
        large_vocabulary = shape.n_vocab > _SHAPES["0.5B"].n_vocab
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ASPERF_CACHE"] = folder
            spec = write_random_llama(Path(folder) / f"{size}.gguf", shape, n_ctx=_N_CTX)
            levels = _LONG_LADDER if large_vocabulary else _LEVELS
            files = level_files(spec, levels)
            if not large_vocabulary:
                rows = [row for level, path in files.items() for row in _speed(spec, level, path)]
                header = ("model", "run", "ours, tok/s", "llama-bench", "time, ours / theirs")
                print(table(header, [row for row, _ in rows]), flush=True)
                agree &= all(abs(time - 1) <= _TOLERANCE for _, time in rows)
            agree &= _scores(size, files, Path(folder) / "logits")
    return agree


def _speed(spec: ModelSpec, level: str, path: Path) -> list[tuple[tuple[str, ...], float]]:
    """A row for each workload, and the ratio of both times."""
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


def _scores(size: str, files: Mapping[str, Path], logits: Path) -> bool:
    """Print PPL and a quant sweep, figures and wall time from process start to result."""
    peers, corpus = Peers(tools_folder()), shipped_corpus()
    base, *levels = files

    def their_ladder() -> tuple[PplRun, dict[str, DivergenceRun]]:
        first = peers.perplexity(files[base], corpus, chunks=_CHUNKS, logits=logits)
        return first, {level: peers.divergence(files[level], logits) for level in levels}

    one = {base: files[base]}

    def our_wall_s(chunks: int | None) -> float:
        return score(one, corpus, chunks=chunks).cost.wall_s

    def their_wall_s(chunks: int | None) -> float:
        return peers.perplexity(files[base], corpus, chunks=chunks).cost.wall_s

    for chunks in (_CHUNKS, None):
        arms = {"ours": partial(our_wall_s, chunks), "theirs": partial(their_wall_s, chunks)}
        walls = interleave(arms, rounds=_SCORED_ROUNDS, seed=1)
        text = f"{chunks} chunks" if chunks else "the whole text"
        print(f"PPL of {size} {base} over {text}: {_seconds(walls)}.\n", flush=True)
    ours, theirs = [], []
    for _ in range(_SCORED_ROUNDS):
        ours.append(score(files, corpus, chunks=_CHUNKS))
        theirs.append(their_ladder())
    walls = {
        "ours": [run.cost.wall_s for run in ours],
        "theirs": [
            first.cost.wall_s + sum(run.cost.wall_s for run in runs.values())
            for first, runs in theirs
        ],
    }
    print(f"{len(levels)} quantizations with KLD of {size}: {_seconds(walls)}.\n", flush=True)
    first, runs = theirs[-1]
    ppl = {base: first.ppl, **{level: run.ppl for level, run in runs.items()}}
    agree = print_ppl(ours[-1].ppl, ppl)
    return print_divergence(ours[-1], {level: run.figures for level, run in runs.items()}) and agree


def _seconds(walls: Mapping[str, list[float]]) -> str:
    medians = " and ".join(f"{statistics.median(side):.2f} s" for side in walls.values())
    return f"ours and theirs {medians}, ours / theirs {ratio(walls['ours'], walls['theirs'])}"


if __name__ == "__main__":
    raise SystemExit(not main(sys.argv[1:]))
