"""PPL compared with mlx-lm's own, and the shipped target's quant sweep on both engines."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

from mlx_sides import MODEL, Sides
from models import shipped_target
from timing import table

from pytest_asperf.config.progress import Notify
from pytest_asperf.config.spec import ModelRef
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.hardware.machine_lock import machine_lock_path
from pytest_asperf.measure.experiment import MeasurementPlan
from pytest_asperf.measure.runner import MeasurementRunner
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.hub_cache import shipped_corpus

if TYPE_CHECKING:
    from pytest_asperf.config.engines import Engine

_PEER_CHUNKS: Final = 8
_LADDER_CHUNKS: Final = 16
_LADDERS: Final[dict[Engine, tuple[str, ...]]] = {
    "mlx": ("8bit", "6bit", "4bit", "3bit"),
    "llama_cpp": ("Q8_0", "Q6_K", "Q4_K_M", "Q3_K_M"),
}


def main() -> bool:
    """Print both tables, and return whether PPL agrees with mlx-lm's to 4 digits."""
    agree = _print_parity()
    rows = [row for engine, levels in _LADDERS.items() for row in _ladder(engine, levels)]
    print(f"### The shipped target's ladder over {_LADDER_CHUNKS} chunks\n")
    header = ("engine", "level", "MB", "PPL", "ΔPPL [90 % interval]", "KLD", "same top token")
    print(table(header, rows))
    return agree


def _print_parity() -> bool:
    sides = Sides(_PEER_CHUNKS)
    theirs = sides.ppl()
    # Its definition: every position of each chunk is scored.
    scores = [
        sides.ours("score", models=[MODEL], tokens=chunk, first=0, concurrency=1)["scores"][MODEL]
        for chunk in sides.chunks
    ]
    ours = math.exp(fmean(nll for score in scores for nll in score["nll"]))
    same = f"{ours:.4g}" == f"{theirs:.4g}"
    print(f"### PPL by mlx_lm.perplexity's definition over {_PEER_CHUNKS} chunks\n")
    row = (f"{ours:.6f}", f"{theirs:.6f}", f"{ours - theirs:+.1e}", "yes" if same else "NO")
    print(table(("ours", "mlx_lm.perplexity", "difference", "4 digits equal"), [row]))
    return same


def _ladder(engine: Engine, levels: tuple[str, ...]) -> list[tuple[str, ...]]:
    with MeasurementRunner(
        EngineBuild(engine, Path(sys.executable)),
        cache=cache_root(os.environ),
        corpus=shipped_corpus(),
        plan=MeasurementPlan(chunks=_LADDER_CHUNKS),
        lock_path=machine_lock_path(),
        notify=Notify(),
    ) as runner:
        spec = shipped_target(engine)
        base, *rungs = (ModelRef(spec, level) for level in ("F16", *levels))
        result = runner.ladder(base, tuple(rungs))
    for error in result.failures.values():
        raise error
    rows: list[tuple[str, ...]] = []
    for rung in rungs:
        found = result.rungs[rung]
        compared = found.comparison
        if compared.kld is None or compared.same_top is None:
            raise ValueError("a ladder without KLD")
        rows.append(
            (
                engine,
                str(rung.level),
                f"{found.size_bytes / 1e6:.2f}",
                f"{compared.ppl.value:.4f}",
                compared.delta_ppl.text(),
                f"{compared.kld.point:.4f}",
                f"{100 * compared.same_top.point:.1f} %",
            )
        )
    return rows


if __name__ == "__main__":
    raise SystemExit(not main())
