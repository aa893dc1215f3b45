"""PPL of one file under two builds: chunks in random order until the limit is decided."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.ppl_sequential import PairedPplTest
from pytest_asperf.errors import MeasurementError
from pytest_asperf.measure.ab_arms import MODEL, RunningArm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_asperf.engine_process import ContextFacts
    from pytest_asperf.measure.ab_arms import MachineLease
    from pytest_asperf.measure.corpus import ScoredText
    from pytest_asperf.measure.results import Provenance


@dataclass(frozen=True, slots=True)
class PplComparison:
    """What a PPL gate gave.

    Attributes:
        test: decided, or stopped.
        elapsed_s: time that scoring took.
        seed: of the chunks' order.
        ran: proof of path of each arm, baseline first.
        text: what was scored, in random order.
        interrupted: whether it was stopped from outside.
    """

    test: PairedPplTest
    elapsed_s: float
    seed: int
    ran: tuple[Provenance, Provenance]
    text: ScoredText
    interrupted: bool


def run_ppl_gate(
    lease: MachineLease,
    limit: float,
    *,
    seed: int,
    comparisons: int,
    max_seconds: float,
    chunks_of: Callable[[RunningArm], tuple[list[Sequence[int]], ScoredText]],
) -> PplComparison:
    """Hold the second arm's PPL against the first's on one model file.

    Args:
        lease: with baseline and candidate, of the same model file.
        limit: ΔPPL to stay below, a fraction.
        seed: of the order in which chunks are drawn.
        comparisons: tests that share the error, this one among them.
        max_seconds: seconds after which no further chunk is begun.
        chunks_of: cuts the corpus into chunks with a side's own tokenizer, and says which.

    Raises:
        MeasurementError: the builds make different tokens of the corpus.
        EngineError: an arm died or refused.
    """
    with ExitStack() as stack:
        sides: list[RunningArm] = []
        for arm in lease.arms[0]:
            sides.append(RunningArm(arm, lease.timeout_s, lease.corpus))
            stack.callback(sides[-1].worker.close)
        (base_chunks, text), (other_chunks, _) = map(chunks_of, sides)
        chunks = _same_chunks(base_chunks, other_chunks)
        test = PairedPplTest(limit, n_chunks_total=len(chunks), comparisons=comparisons)
        contexts: list[ContextFacts | None] = [None, None]
        began = time.monotonic()
        interrupted = False
        try:
            # Drawn without replacement: what the test's error bounds rest on.
            order = random.Random(seed).sample(chunks, len(chunks))  # noqa: S311  # logged
            for chunk in order:
                if test.outcome is not None or time.monotonic() - began > max_seconds:
                    break
                lease.progress("ppl", test.n, len(chunks))
                nll = []
                for index, side in enumerate(sides):
                    score, contexts[index] = side.worker.score([MODEL], chunk, len(chunk) // 2)[
                        MODEL
                    ]
                    nll.append(fmean(score.nll))
                test.update(nll[1] - nll[0])
        except KeyboardInterrupt:
            interrupted = True
        elapsed_s = time.monotonic() - began
    base, candidate = (side.ran(context) for side, context in zip(sides, contexts, strict=True))
    return PplComparison(test, elapsed_s, seed, (base, candidate), text, interrupted)


def _same_chunks(base: list[Sequence[int]], candidate: list[Sequence[int]]) -> list[Sequence[int]]:
    if base != candidate:
        raise MeasurementError(
            f"the two builds make different tokens of the corpus ({len(base)} and "
            f"{len(candidate)} chunks)",
            why="their PPL counts different tokens and cannot be compared; a changed tokenizer "
            "changes what the model reads",
            remedy="find the change in the tokenizer or the pre-tokenizer between the builds",
        )
    return base
