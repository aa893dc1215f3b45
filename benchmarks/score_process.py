"""asperf's part of a PPL comparison as a process of its own: start, score, print JSON.

Arguments: the corpus, the most chunks (0 for all), then `LEVEL=FILE`, the baseline first. One file
is scored by itself; several are a quant sweep, measured like the `ladder` fixture. Hashes of files
are kept in the cache, as they are for users: only the first run computes them.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.analysis.metrics import compare_scores
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.progress import Notify
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.measure.experiment import MeasurementPlan
from pytest_asperf.measure.ladder import PPL_N_CTX, score_ladder, split_chunks
from pytest_asperf.measure.runner import MeasurementRunner
from pytest_asperf.modelfiles.cache import cache_root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_asperf.analysis.metrics import ChunkScore, Comparison, PlusMinus

_BUILD: Final = EngineBuild("llama_cpp", Path(sys.executable), nice=0)
#: `--kl-divergence` keeps no probability further below the likeliest than this (perplexity.cpp).
_FLOOR_NATS: Final = 16.0
_SETTINGS: Final = EngineSettings(threads=1)


def _score_one(level: str, path: Path, corpus: Path, chunks: int | None) -> dict[str, Any]:
    with Worker(_BUILD) as worker:
        worker.load(level, path, _SETTINGS)
        tokens = worker.tokenize(level, corpus.read_text("utf-8"))
        parts = split_chunks(tokens, n_ctx=PPL_N_CTX, at_most=chunks, corpus=str(corpus))
        scores, _ = score_ladder(worker, [level], parts, concurrency=1, progress=lambda _: None)[
            level
        ]
    return {
        "ppl": {level: _figure(compare_scores(scores, scores).ppl)},
        "levels": {},
        "beyond_floor_nats": _beyond_floor(scores),
    }


def _score_ladder(files: Mapping[str, Path], corpus: Path, chunks: int | None) -> dict[str, Any]:
    spec = ModelSpec("model", files=tuple(files.items()), settings=_SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        runner = MeasurementRunner(
            _BUILD,
            cache=cache_root(os.environ),
            corpus=corpus,
            plan=MeasurementPlan(chunks=chunks),
            # The queue is for measurements of other sessions, which would be counted here.
            lock_path=Path(folder) / "lock",
            notify=Notify(),
        )
        with runner:
            base, *rungs = (ModelRef(spec, level) for level in files)
            result = runner.ladder(base, tuple(rungs))
    for error in result.failures.values():
        raise error
    comparisons = {str(rung.level): result.rungs[rung].comparison for rung in rungs}
    ppl = {level: _figure(c.ppl) for level, c in comparisons.items()}
    any_level = result.rungs[rungs[0]]
    return {
        "ppl": {str(base.level): _figure(any_level.comparison.ppl_base), **ppl},
        "levels": {level: _figures(c) for level, c in comparisons.items()},
        "beyond_floor_nats": _beyond_floor(any_level.baseline_chunks),
    }


def _beyond_floor(chunks: Sequence[ChunkScore]) -> float:
    """Return the baseline's mean NLL beyond the range of the peer's file of distributions."""
    return fmean(max(0.0, nll - _FLOOR_NATS) for chunk in chunks for nll in chunk.nll)


def _figures(comparison: Comparison) -> dict[str, tuple[float, float]]:
    if comparison.kld_printed is None:
        raise ValueError("a ladder without KLD")
    figures = {
        "ln PPL ratio": comparison.ln_ppl_ratio,
        "PPL ratio": comparison.ppl_ratio,
        "KLD": comparison.kld_printed,
    }
    return {name: _figure(figure) for name, figure in figures.items()}


def _figure(figure: PlusMinus) -> tuple[float, float]:
    return figure.value, figure.error


def _main(corpus: str, chunks: str, *named: str) -> None:
    files = {level: Path(path) for level, path in (name.split("=", 1) for name in named)}
    limit = int(chunks) or None
    if len(files) == 1:
        ((level, path),) = files.items()
        scored = _score_one(level, path, Path(corpus), limit)
    else:
        scored = _score_ladder(files, Path(corpus), limit)
    # All workers have been waited for, and the largest of them is the one that scored.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    peak_rss_bytes = peak if sys.platform == "darwin" else peak * 1024
    print(json.dumps({**scored, "peak_rss_bytes": peak_rss_bytes}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
