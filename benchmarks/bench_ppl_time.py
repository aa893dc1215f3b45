"""Wall time of PPL runs and of a quant sweep, compared with llama-perplexity's.

The time is from process start to result. Both engines have one thread. A sweep here scores as many
quantizations at a time as there are cores, so it is also run with both confined to one core: like
for like.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from installed_tools import tools_folder
from models import LARGE_VOCABULARY, level_files, shipped_target, write_random_llama
from peers import Peers
from scored import score
from timing import Cost, interleave, ratio, table

from pytest_asperf.modelfiles.hub_cache import shipped_corpus

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROUNDS: Final = 5
_CHUNKS: Final = 120
_LARGE_CHUNKS: Final = 24
_LADDER_CHUNKS: Final = 24
_LADDER: Final = ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")

_HEADER: Final = (
    "run",
    "cores",
    "ours, s",
    "theirs, s",
    "wall, ours / theirs",
    "limit",
    "processor time, ours / theirs",
)

_Arm = Callable[[], Cost]


@dataclass(frozen=True, slots=True)
class _Job:
    """One kind of run of both.

    Attributes:
        name: its name.
        ours: runs it once here.
        theirs: runs it once with the tool.
        limit: the largest share of their time that ours may have on all cores.
        confined: whether it is also run on one core.
    """

    name: str
    ours: _Arm
    theirs: _Arm
    limit: float
    confined: bool = False


def main() -> bool:
    """Print the tables, and return whether every ratio is within its limit."""
    peers, corpus = Peers(tools_folder()), shipped_corpus()
    files = level_files(shipped_target(), _LADDER)
    with tempfile.TemporaryDirectory() as folder:
        large, logits = Path(folder) / "large-vocabulary.gguf", Path(folder) / "logits"
        write_random_llama(large, LARGE_VOCABULARY)
        jobs = (
            _ppl_job("shipped", peers, files["F16"], corpus, chunks=_CHUNKS, limit=1.10),
            _ppl_job("150,000-token", peers, large, corpus, chunks=_LARGE_CHUNKS, limit=1.15),
            _Job(
                f"{len(_LADDER) - 1} quantizations with KLD, {_LADDER_CHUNKS} chunks",
                lambda: score(files, corpus, chunks=_LADDER_CHUNKS).cost,
                lambda: _their_ladder(peers, files, corpus, logits),
                limit=0.8,
                confined=True,
            ),
        )
        print("### Wall time, process start to result\n")
        rows, kept = [], True
        for job in jobs:
            for cores in sorted({1, _usable_cores()} if job.confined else {_usable_cores()}):
                row, ratio_of_medians = _measure(job, cores)
                rows.append(row)
                kept = kept and (cores == 1 or ratio_of_medians <= job.limit)
        print(table(_HEADER, rows))
        print(f"Logits on disk for the ladder: theirs {logits.stat().st_size:,} bytes, ours 0.")
    return kept


def _ppl_job(
    name: str, peers: Peers, model: Path, corpus: Path, *, chunks: int, limit: float
) -> _Job:
    return _Job(
        f"PPL, {name} vocabulary, {chunks} chunks",
        lambda: score({"model": model}, corpus, chunks=chunks).cost,
        lambda: peers.perplexity(model, corpus, chunks=chunks).cost,
        limit,
    )


def _their_ladder(peers: Peers, files: Mapping[str, Path], corpus: Path, logits: Path) -> Cost:
    """Run the baseline, which writes its distributions, and each quantization against them."""
    base, *levels = files.values()
    costs = [peers.perplexity(base, corpus, chunks=_LADDER_CHUNKS, logits=logits).cost]
    costs += [peers.divergence(level, logits).cost for level in levels]
    return Cost(sum(cost.wall_s for cost in costs), sum(cost.cpu_s for cost in costs))


def _measure(job: _Job, cores: int) -> tuple[tuple[object, ...], float]:
    arms = {"ours": job.ours, "theirs": job.theirs}
    costs = interleave(arms, rounds=_ROUNDS, seed=cores, n_cores=cores)
    sides = costs["ours"], costs["theirs"]
    walls = [[cost.wall_s for cost in side] for side in sides]
    wall, cpu = ratio(*walls), ratio(*([cost.cpu_s for cost in side] for side in sides))
    seconds = [f"{statistics.median(side):.2f}" for side in walls]
    limit = "" if cores < _usable_cores() else f"{job.limit:.2f}"
    return (job.name, cores, *seconds, wall, limit, cpu), wall.of_medians


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    raise SystemExit(not main())
