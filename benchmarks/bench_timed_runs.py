"""How often logits inside of timed runs make a candidate FAIL, healthy or not.

Run it as ``python benchmarks/bench_timed_runs.py``: some seconds after the models are made. The KLD
of 2,048 positions is measured between settings or weights, and so many positions are drawn as a
gate examines, 20,000 times. "Few large ones" is the healthy case at 0.02 nats on average, as of
SmolLM2 on a card, in which 6 of 1,000 positions have 0.3 to 0.9 nats. The rule until 2026-11-28 was
the mean of ten positions, at most 0.03 nats. It exits with 1 if a healthy case FAILs in over 1 %.
"""

from __future__ import annotations

import sys
from statistics import fmean
from typing import TYPE_CHECKING, Final

import numpy as np
from models import BUILD, SETTINGS, level_files, shipped_target
from timing import table

from pytest_asperf.analysis.guards import usual_kld
from pytest_asperf.analysis.guards.timed_work import DRIFT_GROWTH, MOST_UNLIKE_KLD
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.engine_process import Worker
from pytest_asperf.modelfiles.hub_cache import shipped_corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_N_CTX: Final = 512
_CHUNKS: Final = 8
_RUNS: Final = 20_000
#: Positions that a gate examines after a run: `measure.timed_work`.
_EXAMINED: Final = 30
_Q4: Final = EngineSettings(threads=1, flash_attn="on", type_k="q4_0", type_v="q4_0")
_Q8: Final = EngineSettings(threads=1, flash_attn="on", type_k="q8_0", type_v="q8_0")


def measured() -> dict[str, list[float]]:
    """The KLD of each position, by case."""
    files = level_files(shipped_target(), ("F16", "Q4_K_M"))
    text = shipped_corpus().read_text("utf-8")
    with Worker(BUILD) as worker:
        worker.load("F16", files["F16"], SETTINGS)
        worker.load("Q4_K_M", files["Q4_K_M"], SETTINGS)
        worker.load("off", files["Q4_K_M"], EngineSettings(threads=1, flash_attn="off"))
        worker.load("q8_0", files["Q4_K_M"], _Q8)
        worker.load("q4_0", files["Q4_K_M"], _Q4)
        tokens = worker.tokenize("F16", text)
        chunks = [tokens[n * _N_CTX : (n + 1) * _N_CTX] for n in range(_CHUNKS)]

        def between(baseline: str, candidate: str) -> list[float]:
            names = [baseline, candidate]
            scored = (worker.score(names, chunk, _N_CTX // 2) for chunk in chunks)
            return [kld for of_names in scored for kld in of_names[candidate][0].kld]

        return {
            "flash attention off": between("Q4_K_M", "off"),
            "q8_0 cache": between("Q4_K_M", "q8_0"),
            "**unhealthy:** Q4_K_M for F16": between("F16", "Q4_K_M"),
            "**unhealthy:** q4_0 cache": between("Q4_K_M", "q4_0"),
        }


def few_large_ones(healthy: Sequence[float], rng: np.random.Generator) -> list[float]:
    """The case of a card."""
    klds = np.array(healthy) * 0.018 / fmean(healthy)
    n = max(1, round(0.006 * len(klds)))
    klds[rng.choice(len(klds), n, replace=False)] = rng.uniform(0.3, 0.9, n)
    return [float(kld) for kld in klds]


def share_of_fails(
    klds: Sequence[float], own: Sequence[float], n: int, most: float, usual: Callable[..., float]
) -> float:
    """Share of the runs whose examined positions are above a limit."""
    rng = np.random.default_rng(n)
    draws = zip(rng.choice(klds, (_RUNS, n)), rng.choice(own, (_RUNS, n)), strict=True)
    return fmean(usual(list(a)) > max(most, DRIFT_GROWTH * usual(list(b))) for a, b in draws)


def main() -> int:
    """Print the table; 1 if a healthy case FAILs too often."""
    cases = measured()
    own = cases["flash attention off"]
    cases["few large ones"] = few_large_ones(own, np.random.default_rng(1))
    rows, wrong = [], 0
    for label, klds in cases.items():
        drift = cases["few large ones"] if label == "few large ones" else own
        before = share_of_fails(klds, drift, 10, 0.03, fmean)
        now = share_of_fails(klds, drift, _EXAMINED, MOST_UNLIKE_KLD, usual_kld)
        rows.append([label, f"{fmean(klds):.4f}", f"{100 * before:.1f} %", f"{100 * now:.1f} %"])
        wrong += "unhealthy" not in label and now > 0.01
    print(table(["candidate", "mean KLD", "ten positions, mean", "FAIL"], rows))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
