"""PPL of one file under two builds: chunks in random order until the limit is decided."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Final, TypeVar

from pytest_asperf.analysis.stats.ppl_sequential import PairedPplTest
from pytest_asperf.analysis.stats.sequential_frame import BETA
from pytest_asperf.config.progress import SoFar
from pytest_asperf.errors import MeasurementError, UnfitError
from pytest_asperf.measure.experiment import Visit, shown
from pytest_asperf.measure.ladder import PPL_N_CTX, scored_chunks
from pytest_asperf.measure.running_arms import MODEL, RunningArm
from pytest_asperf.measure.running_build import open_together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_asperf.engine_process import ContextFacts
    from pytest_asperf.measure.experiment import MachineLease
    from pytest_asperf.measure.feeding import ScoredText
    from pytest_asperf.measure.results import Provenance

Answer = TypeVar("Answer")

#: Tokens of a chunk that follow the context at a depth, if the model has room for them.
_MOST_SCORED: Final = 256
_LEAST_SCORED: Final = 64


@dataclass(frozen=True, slots=True)
class PplComparison:
    """PPL of one model file in two arms.

    Attributes:
        test: decided, or stopped.
        elapsed_s: time that scoring took.
        seed: of the chunks' order.
        ran: run record of each arm, baseline first.
        text: what was scored, in random order.
        interrupted: whether it was stopped from outside.
        depth: tokens before those that were scored; 0 for half of a chunk.
    """

    test: PairedPplTest
    elapsed_s: float
    seed: int
    ran: tuple[Provenance, Provenance]
    text: ScoredText
    interrupted: bool
    depth: int = 0


@dataclass(frozen=True, slots=True)
class PplExperiment:
    """Scores one model file in two arms until a limit of ΔPPL is decided.

    Attributes:
        limit: ΔPPL to stay below, a fraction.
        seed: of the order in which chunks are drawn.
        comparisons: tests that share the error of a FAIL, this one among them.
        visit: continues the chunks of an earlier one.
        beta: bound on a wrong PASS.
        depth: tokens of each chunk before those that are scored; 0 for half of a usual chunk.
    """

    limit: float
    seed: int
    comparisons: int = 1
    visit: Visit[PplComparison] = field(default_factory=Visit)
    beta: float = BETA
    depth: int = 0

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
            (base_chunks, text), (other_chunks, _) = _at_once(
                arms, lambda arm: self._chunks(arm, lease)
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
                    test.update(_delta_nll(arms, chunk, self._first(chunk), contexts))
            except KeyboardInterrupt:
                interrupted = True
            elapsed_s = time.monotonic() - began + (earlier.elapsed_s if earlier else 0.0)
            ran = [arm.ran(context) for arm, context in zip(arms, contexts, strict=True)]
        base, candidate = ran
        sides = base, candidate
        return PplComparison(test, elapsed_s, self.seed, sides, text, interrupted, depth=self.depth)

    def _test(self, n_chunks: int) -> PairedPplTest:
        return PairedPplTest(
            self.limit, n_chunks_total=n_chunks, comparisons=self.comparisons, beta=self.beta
        )

    def attempt(self, lease: MachineLease) -> None:
        """Score one chunk with the lease's one side."""
        ((arm,),) = lease.sides
        with RunningArm(arm, lease) as running:
            (chunk, *_), _ = self._chunks(running, lease)
            running.worker.score([MODEL], chunk, self._first(chunk))

    def _chunks(
        self, arm: RunningArm, lease: MachineLease
    ) -> tuple[list[Sequence[int]], ScoredText]:
        n_ctx = PPL_N_CTX
        if self.depth:
            n_ctx = min(self.depth + _MOST_SCORED, arm.loaded.n_ctx_train)
        if n_ctx < self.depth + _LEAST_SCORED:
            raise UnfitError(
                f"ppl@d{self.depth} scores at least {_LEAST_SCORED} tokens after {self.depth}, and "
                f"the model was trained on a context of {arm.loaded.n_ctx_train}",
                why="what a model does beyond its context is not what its users see",
                remedy="name a smaller depth",
            )
        return scored_chunks(arm.worker, MODEL, lease.corpus, lease.plan.chunks, n_ctx=n_ctx)

    def _first(self, chunk: Sequence[int]) -> int:
        """The position from which on a chunk is scored."""
        return self.depth or len(chunk) // 2


def _delta_nll(
    arms: Sequence[RunningArm],
    chunk: Sequence[int],
    first: int,
    contexts: list[ContextFacts | None],
) -> float:
    """The candidate's mean NLL of a chunk less the baseline's; keeps the contexts' facts."""
    rows = _at_once(arms, lambda arm: arm.worker.score([MODEL], chunk, first))
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
