"""PPL of one file under two builds: chunks in random order until the limit is decided."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.ppl_sequential import PairedPplTest
from pytest_asperf.analysis.stats.sequential_frame import BETA
from pytest_asperf.errors import MeasurementError
from pytest_asperf.measure.ab_arms import MODEL, RunningArm
from pytest_asperf.measure.ladder import scored_chunks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.engine_process import ContextFacts
    from pytest_asperf.measure.corpus import ScoredText
    from pytest_asperf.measure.experiment import MachineLease
    from pytest_asperf.measure.results import Provenance


@dataclass(frozen=True, slots=True)
class PplComparison:
    """PPL of one model file in two arms.

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


@dataclass(frozen=True, slots=True)
class PplExperiment:
    """Scores one model file in two arms until a limit of ΔPPL is decided.

    Attributes:
        limit: ΔPPL to stay below, a fraction.
        seed: of the order in which chunks are drawn.
        max_seconds: seconds after which no further chunk is begun.
        comparisons: tests that share the error of a FAIL, this one among them.
        beta: bound on a wrong PASS.
    """

    limit: float
    seed: int
    max_seconds: float
    comparisons: int = 1
    beta: float = BETA

    def run(self, lease: MachineLease) -> PplComparison:
        """Score.

        Raises:
            MeasurementError: the builds make different tokens of the corpus.
            EngineError: an arm died or refused.
        """
        with ExitStack() as stack:
            arms: list[RunningArm] = []
            for (arm,) in lease.sides:
                arms.append(RunningArm(arm, lease.call_timeout_s, lease.corpus))
                stack.callback(arms[-1].worker.close)
            (base_chunks, text), (other_chunks, _) = (
                scored_chunks(arm.worker, MODEL, lease.corpus, lease.chunks) for arm in arms
            )
            chunks = _same_chunks(base_chunks, other_chunks)
            test = PairedPplTest(
                self.limit,
                n_chunks_total=len(chunks),
                comparisons=self.comparisons,
                beta=self.beta,
            )
            contexts: list[ContextFacts | None] = [None, None]
            began = time.monotonic()
            interrupted = False
            try:
                # Drawn without replacement: what the test's error bounds rest on.
                order = random.Random(self.seed).sample(chunks, len(chunks))  # noqa: S311  # logged
                for chunk in order:
                    if test.outcome is not None or time.monotonic() - began > self.max_seconds:
                        break
                    lease.progress("ppl", test.n, len(chunks))
                    test.update(_delta_nll(arms, chunk, contexts))
            except KeyboardInterrupt:
                interrupted = True
            elapsed_s = time.monotonic() - began
        base, candidate = (arm.ran(context) for arm, context in zip(arms, contexts, strict=True))
        return PplComparison(test, elapsed_s, self.seed, (base, candidate), text, interrupted)


def _delta_nll(
    arms: Sequence[RunningArm], chunk: Sequence[int], contexts: list[ContextFacts | None]
) -> float:
    """The candidate's mean NLL of a chunk less the baseline's; keeps the contexts' facts."""
    nll = []
    for index, arm in enumerate(arms):
        score, contexts[index] = arm.worker.score([MODEL], chunk, len(chunk) // 2)[MODEL]
        nll.append(fmean(score.nll))
    base, candidate = nll
    return candidate - base


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
