"""PPL of one file under two builds: chunks in random order until the limit is decided."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

from pytest_asperf.analysis.stats.ppl_sequential import PairedPplTest
from pytest_asperf.analysis.stats.sequential_frame import BETA
from pytest_asperf.config.progress import SoFar
from pytest_asperf.errors import MeasurementError
from pytest_asperf.measure.experiment import Visit, shown
from pytest_asperf.measure.ladder import scored_chunks
from pytest_asperf.measure.running_arms import MODEL, RunningArm, open_together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_asperf.engine_process import ContextFacts
    from pytest_asperf.measure.corpus import ScoredText
    from pytest_asperf.measure.experiment import MachineLease
    from pytest_asperf.measure.results import Provenance

Answer = TypeVar("Answer")


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
        comparisons: tests that share the error of a FAIL, this one among them.
        visit: continues the chunks of an earlier one.
        beta: bound on a wrong PASS.
    """

    limit: float
    seed: int
    comparisons: int = 1
    visit: Visit[PplComparison] = field(default_factory=Visit)
    beta: float = BETA

    def run(self, lease: MachineLease) -> PplComparison:
        """Score.

        Raises:
            MeasurementError: the builds make different tokens of the corpus.
            EngineError: an arm died or refused.
        """
        deadline = time.monotonic() + self.visit.max_seconds
        with ExitStack() as stack:
            opening = [partial(RunningArm, arm, lease) for (arm,) in lease.sides]
            arms = open_together(stack, opening)
            corpus, n_chunks = lease.corpus, lease.chunks
            (base_chunks, text), (other_chunks, _) = _at_once(
                arms, lambda arm: scored_chunks(arm.worker, MODEL, corpus, n_chunks)
            )
            chunks = _same_chunks(base_chunks, other_chunks)
            earlier = self.visit.earlier
            test = earlier.test if earlier else self._test(len(chunks))
            contexts: list[ContextFacts | None] = [None, None]
            began = time.monotonic()
            interrupted = False
            try:
                # Drawn without replacement: what the test's error bounds rest on.
                order = random.Random(self.seed).sample(chunks, len(chunks))  # noqa: S311  # logged
                for chunk in order[test.n :]:
                    if test.outcome is not None or time.monotonic() > deadline:
                        break
                    figure = f"Δ {shown(test.estimate)}" if test.n else ""
                    lease.progress("ppl", test.n, len(chunks), SoFar(figure, "chunks"))
                    test.update(_delta_nll(arms, chunk, contexts))
            except KeyboardInterrupt:
                interrupted = True
            elapsed_s = time.monotonic() - began + (earlier.elapsed_s if earlier else 0.0)
            ran = [arm.ran(context) for arm, context in zip(arms, contexts, strict=True)]
        base, candidate = ran
        return PplComparison(test, elapsed_s, self.seed, (base, candidate), text, interrupted)

    def _test(self, n_chunks: int) -> PairedPplTest:
        return PairedPplTest(
            self.limit, n_chunks_total=n_chunks, comparisons=self.comparisons, beta=self.beta
        )

    def attempt(self, lease: MachineLease) -> None:
        """Score one chunk with the lease's one side."""
        ((arm,),) = lease.sides
        with RunningArm(arm, lease) as running:
            (chunk, *_), _ = scored_chunks(running.worker, MODEL, lease.corpus, lease.chunks)
            running.worker.score([MODEL], chunk, len(chunk) // 2)


def _delta_nll(
    arms: Sequence[RunningArm], chunk: Sequence[int], contexts: list[ContextFacts | None]
) -> float:
    """The candidate's mean NLL of a chunk less the baseline's; keeps the contexts' facts."""
    rows = _at_once(arms, lambda arm: arm.worker.score([MODEL], chunk, len(chunk) // 2))
    contexts[:] = [row[MODEL][1] for row in rows]
    base, candidate = (fmean(row[MODEL][0].nll) for row in rows)
    return candidate - base


def _at_once(arms: Sequence[RunningArm], ask: Callable[[RunningArm], Answer]) -> list[Answer]:
    """Ask all arms at once, as nothing is timed."""
    with ThreadPoolExecutor(len(arms)) as pool:
        return list(pool.map(ask, arms))


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
