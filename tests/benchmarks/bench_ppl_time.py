"""Wall time of PPL runs and of a ladder, from process start to result, beside llama-perplexity's.

Both sides' engines have one thread. The tool scores logits on all cores, and a ladder here scores
as many levels at a time as there are cores; so each is also run confined to one core, where both
sides do one thing after the other.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from build_tools import tools_folder
from models import LARGE_VOCABULARY, level_files, shipped_target, write_random_llama
from peers import Peers
from scored import score
from timing import Cost, interleave, on_cores, ratio, table

from pytest_asperf.modelfiles.shipped import shipped_corpus

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROUNDS: Final = 5
_CHUNKS: Final = 40
_LADDER: Final = ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")

_Arm = Callable[[], Cost]


@dataclass(frozen=True, slots=True)
class _Job:
    """One kind of run on both sides, and the most that ours may take of theirs."""

    name: str
    ours: _Arm
    theirs: _Arm
    limit: float


def main() -> bool:
    """Print the tables, and return whether every ratio is within its limit."""
    peers, corpus = Peers(tools_folder()), shipped_corpus()
    files = level_files(shipped_target(), _LADDER)
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large-vocabulary.gguf"
        write_random_llama(large, LARGE_VOCABULARY)
        logits = Path(folder) / "logits"
        jobs = (
            _ppl_job("PPL, shipped vocabulary", peers, files["F16"], corpus, limit=1.10),
            _ppl_job("PPL, 150,000 tokens", peers, large, corpus, limit=1.15),
            _Job(
                f"ladder of {len(_LADDER) - 1} levels",
                lambda: score(files, corpus, chunks=_CHUNKS).cost,
                lambda: _their_ladder(peers, files, corpus, logits),
                limit=0.8,
            ),
        )
        print(f"### Wall time of {_CHUNKS} chunks\n")
        kept = [_print_job(job) for job in jobs]
        peers.perplexity(files["F16"], corpus, chunks=_CHUNKS, logits=logits)
        print(f"logits on disk: theirs {logits.stat().st_size:,} bytes, ours 0")
    return all(kept)


_HEADER: Final = ("cores", "ours, s", "theirs, s", "wall, ours / theirs", "CPU, ours / theirs")


def _ppl_job(name: str, peers: Peers, model: Path, corpus: Path, *, limit: float) -> _Job:
    return _Job(
        name,
        lambda: score({"model": model}, corpus, chunks=_CHUNKS).cost,
        lambda: peers.perplexity(model, corpus, chunks=_CHUNKS).cost,
        limit,
    )


def _their_ladder(peers: Peers, files: Mapping[str, Path], corpus: Path, logits: Path) -> Cost:
    """Run the baseline, which writes its distributions, and each level against them."""
    base, *levels = files.values()
    costs = [peers.perplexity(base, corpus, chunks=_CHUNKS, logits=logits).cost]
    costs += [peers.divergence(level, logits).cost for level in levels]
    return Cost(sum(cost.wall_s for cost in costs), sum(cost.cpu_s for cost in costs))


def _print_job(job: _Job) -> bool:
    usable = len(os.sched_getaffinity(0))
    rows = []
    for cores in sorted({1, usable}):
        with on_cores(cores):
            costs = interleave({"ours": job.ours, "theirs": job.theirs}, rounds=_ROUNDS, seed=cores)
        sides = costs["ours"], costs["theirs"]
        walls = [[cost.wall_s for cost in side] for side in sides]
        wall, cpu = ratio(*walls), ratio(*([cost.cpu_s for cost in side] for side in sides))
        seconds = [f"{statistics.median(side):.2f}" for side in walls]
        rows.append((cores, *seconds, wall, cpu))
    print(f"{job.name}; at most {job.limit} on all cores:\n")
    print(table(_HEADER, rows))
    return wall.of_medians <= job.limit


if __name__ == "__main__":
    raise SystemExit(not main())
