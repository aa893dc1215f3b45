"""How often the gate's test of KLD is wrong, and how many chunks it scores.

Run it as ``python benchmarks/bench_gate_kld.py``: seeded, prints Markdown and exits with 1 if an
error rate is above its bound. Corpora of 40 chunks are drawn from the chunks that two builds or
settings scored, of the library and of llama-server (fixtures/gate_kld_chunks.json), as they are,
and with their mean moved to just below and just above the limit; in addition from exponential
chunks, which are more skewed than any that were measured. The last table has baselines whose own
logits of a batch and of single tokens drift, so that the limit grows with that.
"""

from __future__ import annotations

import json
import math
import sys
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

import numpy as np
from timing import table

from pytest_asperf.analysis.metrics import ChunkScore
from pytest_asperf.analysis.stats.ppl_sequential import DriftTest
from pytest_asperf.analysis.stats.sequential_frame import BETA, GATE_ALPHA
from pytest_asperf.config.settings import MOST_KLD
from pytest_asperf.measure.ab_ppl import MOST_CHANGED_TOPS, grown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIXTURE: Final = Path(__file__).parents[1] / "fixtures" / "gate_kld_chunks.json"
N_CHUNKS: Final = 40
#: Tokens of a chunk that a library scores; a case of another number names it.
N_SCORED: Final = 255
GATES: Final = 300
#: Chunks' worth of tokens behind the baseline's own drift, its means, and a candidate's multiples.
OWN_CHUNKS: Final = 3
OWN_MEANS: Final = (0.004, 0.01, 0.02, 0.04)
OWN_FACTORS: Final = (1.0, 1.5, 2.0, 3.0)
#: Healthy chunks that vary most.
DRIFTING: Final = "Q4_K_M, batches of 512 and of 1"
#: Errors beyond the bound that so many gates show by chance in less than 1 of 1,000.
SLACK: Final = 4.0


def gates(
    klds: Sequence[float],
    tops: Sequence[float],
    n_scored: int,
    seed: int,
    own_mean: float | None = None,
) -> Iterator[DriftTest]:
    """Gates on corpora whose chunks are drawn from these, with means of exactly theirs.

    With the mean of the baseline's own drift, that is measured on chunks drawn from the same.
    """
    rng = np.random.default_rng(seed)
    for _ in range(GATES):
        drawn = rng.integers(0, len(klds), N_CHUNKS)
        kld = np.array(klds)[drawn]
        kld *= fmean(klds) / kld.mean()
        test = DriftTest(MOST_KLD, MOST_CHANGED_TOPS, n_chunks_total=N_CHUNKS)
        own = rng.integers(0, len(klds), OWN_CHUNKS)
        for value, index in zip(kld, drawn, strict=True):
            n_changed = round(tops[index] * n_scored)
            same = (False,) * n_changed + (True,) * (n_scored - n_changed)
            test.update(ChunkScore((1.0,) * n_scored, (float(value),) * n_scored, same))
            if own_mean is not None and test.own_kld is None and test.is_near:
                own_kld = own_mean * fmean(klds[i] for i in own) / fmean(klds)
                test = grown(test, own_kld, fmean(tops[i] for i in own))
            if test.outcome is not None:
                break
        yield test


def row(
    label: str,
    klds: Sequence[float],
    tops: Sequence[float],
    n_scored: int,
    seed: int,
    *,
    own_mean: float | None = None,
) -> list[str]:
    """A line of the table."""
    done = list(gates(klds, tops, n_scored, seed, own_mean))
    outcomes = [str(test.outcome) for test in done]
    shares = [outcomes.count(outcome) / GATES for outcome in ("PASS", "FAIL")]
    n = sorted(test.n for test in done)
    return [
        label,
        f"{fmean(klds):.4f}",
        f"{100 * fmean(tops):.1f} %",
        *(f"{100 * share:.1f} %" for share in shares),
        f"{n[GATES // 2]} ({n[GATES * 9 // 10]})",
    ]


def is_within(share: str, bound: float) -> bool:
    """True if a share of wrong gates is no more than its bound allows."""
    deviation = math.sqrt(bound * (1 - bound) / GATES)
    return float(share.removesuffix(" %")) / 100 <= bound + SLACK * deviation


def main() -> int:
    """Print the tables; 1 if an error rate is above its bound."""
    measured = json.loads(FIXTURE.read_text("utf-8"))
    skewed = np.random.default_rng(1).exponential(MOST_KLD, 400).tolist()
    head = ["candidate", "mean KLD", "tops changed", "PASS", "FAIL", "chunks (90 %)"]
    real, moved, wrong = [], [], []
    cases = {**measured, "exponential": (skewed, [0.0] * len(skewed))}
    for seed, (label, (klds, tops, *stated)) in enumerate(cases.items()):
        (n_scored,) = stated or (N_SCORED,)
        if label in measured:
            real.append(row(label, klds, tops, n_scored, seed))
        for factor, name, bound, column in (
            (0.999, "just below", GATE_ALPHA, 4),
            (1.001, "just above", BETA, 3),
        ):
            scale = MOST_KLD * factor / fmean(klds)
            # Tops that never decide: the error is that of KLD alone.
            moved.append(
                row(
                    f"{label}, {name}", [k * scale for k in klds], [0.0] * len(tops), n_scored, seed
                )
            )
            if not is_within(moved[-1][column], bound):
                wrong.append(f"{moved[-1][0]}: {moved[-1][column]} is above {100 * bound:g} %")
    klds, tops = measured[DRIFTING]
    own = []
    for number, (mean, factor) in enumerate(product(OWN_MEANS, OWN_FACTORS)):
        scaled = [k * mean * factor / fmean(klds) for k in klds]
        changed = [t * min(factor, 1.5) for t in tops]
        label = f"own drift {mean:g} nats, candidate {factor:g} times that"
        own.append(row(label, scaled, changed, N_SCORED, number, own_mean=mean))
        if factor <= 1 and not is_within(own[-1][4], GATE_ALPHA):
            wrong.append(f"{label}: {own[-1][4]} is above {100 * GATE_ALPHA:g} %")
    print(table(head, real), table(head, moved), table(head, own), *wrong, sep="\n\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
