"""PPL and KLD of one file under two builds: chunks in random order until the limits are decided.

The baseline's logits of a chunk pass to the candidate's process through a file, so that a chunk is
computed once in each build whether PPL, KLD or both are judged.
"""

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.facts import ScoredText
from pytest_asperf.analysis.metrics import ChunkScore
from pytest_asperf.analysis.stats.chunk_intervals import LEAST_CHUNKS
from pytest_asperf.analysis.stats.ppl_sequential import DriftTest, PairedPplTest
from pytest_asperf.analysis.stats.sequential_frame import BETA
from pytest_asperf.config.progress import SoFar
from pytest_asperf.engine_process import ContextFacts
from pytest_asperf.errors import MeasurementError, UnfitError
from pytest_asperf.measure.ab_logits import LogitsExperiment
from pytest_asperf.measure.experiment import MachineLease, Visit, shown
from pytest_asperf.measure.ladder import PPL_N_CTX, scored_chunks
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.running_arms import MODEL, RunningArm, ask_each, have_own_cores
from pytest_asperf.measure.running_build import open_together

#: Share of changed top tokens that is accepted of a candidate.
MOST_CHANGED_TOPS: Final = 0.08
#: Multiples of the limits that they grow to at most. Faults change more (docs/benchmarks.md).
_MOST_KLD_GROWTH: Final = 5.0
_MOST_TOPS_GROWTH: Final = 2.0
#: Tokens of a chunk that follow the context at a depth, if the model has room for them.
_MOST_SCORED: Final = 256
_LEAST_SCORED: Final = 64
#: For a server, which gets a request for each token; and the tokens before them.
_SCORED_OF_SERVER: Final = 64
_DEPTH_OF_SERVER: Final = 256
#: Engines that start their program again for logits of a chunk before the last one. So many chunks
#: are drawn at once, and no test looks before they are scored.
_SCORING_IN_ORDER: Final = frozenset({"llama_tools"})
_IN_ORDER: Final = 12


@dataclass(frozen=True, slots=True)
class ScoreLimits:
    """The limits that chunks are scored for."""

    ppl_delta: float | None = None  #: upper limit of ΔPPL, a fraction; None if no check needs it
    kld: float | None = None  #: upper limit of the mean KLD, nats; None if no check needs it
    #: True if KLD's limits grow with the drift of the baseline's own logits
    kld_grows: bool = False


@dataclass(frozen=True, slots=True)
class PplComparison:
    """PPL, KLD or both of one model file in two builds."""

    test: PairedPplTest | None  #: of ΔPPL, decided or stopped; None if it was not requested
    drift: DriftTest | None  #: of KLD; None if it was not requested
    elapsed_s: float  #: duration of the scoring
    seed: int  #: of the chunks' order
    ran: tuple[Provenance, Provenance]  #: run record of each build, baseline first
    text: ScoredText  #: the scored text, in random order
    interrupted: bool  #: whether it was stopped from outside
    depth: int = 0  #: tokens before those that were scored; 0 for half of a chunk

    @property
    def tests(self) -> tuple[PairedPplTest | DriftTest, ...]:
        """The tests that chunks are scored for."""
        return tuple(test for test in (self.test, self.drift) if test is not None)


@dataclass(frozen=True, slots=True)
class PplExperiment:
    """Scores one model file in two builds until the limits of ΔPPL and KLD are decided."""

    limits: ScoreLimits  #: the requested limits
    seed: int  #: of the order in which chunks are drawn
    comparisons: int = 1  #: tests that share the error of a FAIL, these among them
    #: continues the chunks of an earlier one
    visit: Visit[PplComparison] = field(default_factory=Visit)
    beta: float = BETA  #: bound on a wrong PASS
    #: tokens of each chunk before those that are scored; 0 for half of a usual chunk
    depth: int = 0

    def run(self, lease: MachineLease) -> PplComparison:
        """Score; a MeasurementError means that the builds make different tokens of the corpus."""
        deadline = time.monotonic() + self.visit.max_seconds
        latest = max(deadline, time.monotonic() + self.visit.most_seconds)
        with ExitStack() as stack:
            kept = Path(stack.enter_context(TemporaryDirectory(prefix="asperf-")))
            opening = [partial(RunningArm, arm, lease) for (arm,) in lease.sides]
            arms = open_together(stack, opening)
            baselines = stack.enter_context(ThreadPoolExecutor(1))
            (base_chunks, text), (other_chunks, _) = ask_each(
                arms, lambda arm: self._chunks(arm, lease)
            )
            chunks = _same_chunks(base_chunks, other_chunks)
            earlier = self.visit.earlier
            n_in_order = 0
            is_in_order = arms[0].worker.build.engine in _SCORING_IN_ORDER
            if self.limits.kld is not None and is_in_order:
                n_in_order = min(_IN_ORDER, len(chunks))
            # To score another text, such an engine would leave this one.
            grows = self.limits.kld_grows and not is_in_order
            n_least = max(LEAST_CHUNKS, n_in_order)
            test, drift = self._tests(len(chunks), n_least)
            if earlier is not None:
                test, drift = earlier.test, earlier.drift
            tests = [one for one in (test, drift) if one is not None]
            n_before = max(one.n for one in tests)
            contexts: list[ContextFacts | None] = [None, None]
            began = time.monotonic()
            interrupted = False
            order = [chunks[i] for i in self._order(len(chunks), n_in_order)[n_before:]]
            score = partial(_scored, arms, baselines, order, self._first(chunks[0], arms[0]))
            try:
                for rows in score(kept if drift else None):
                    contexts[:] = [context for _, context in rows]
                    (base, _), (candidate, _) = rows
                    if test is not None and test.outcome is None:
                        test.update(fmean(candidate.nll) - fmean(base.nll))
                    if drift is not None and drift.outcome is None:
                        drift.update(candidate)
                        if grows and drift.own_kld is None and drift.is_near:
                            own = baselines.submit(
                                LogitsExperiment().drift_of, arms[0], lease
                            ).result()
                            drift = grown(drift, own.mean_kld, 1 - own.same_top)
                    tests = [one for one in (test, drift) if one is not None]
                    self._show(lease, test, drift, len(chunks))
                    n_scored = max(one.n for one in tests) - n_before
                    now = time.monotonic()
                    chunk_s = (now - began) / n_scored
                    will_decide = any(
                        one.expected_chunks_left * chunk_s <= latest - now
                        for one in tests
                        if one.outcome is None
                    )
                    if not will_decide and (now > deadline or all(one.outcome for one in tests)):
                        break
            except KeyboardInterrupt:
                interrupted = True
            elapsed_s = time.monotonic() - began + (earlier.elapsed_s if earlier else 0.0)
            ran = [arm.ran(context) for arm, context in zip(arms, contexts, strict=True)]
        sides = ran[0], ran[1]
        return PplComparison(
            test, drift, elapsed_s, self.seed, sides, text, interrupted, depth=self.depth
        )

    def _tests(
        self, n_chunks: int, min_chunks: int
    ) -> tuple[PairedPplTest | None, DriftTest | None]:
        limits = self.limits
        make = partial(
            PairedPplTest,
            n_chunks_total=n_chunks,
            min_chunks=min_chunks,
            comparisons=self.comparisons,
            beta=self.beta,
        )
        test = None if limits.ppl_delta is None else make(limits.ppl_delta)
        drift = None
        if limits.kld is not None:
            drift = DriftTest(
                limits.kld,
                MOST_CHANGED_TOPS,
                n_chunks_total=n_chunks,
                min_chunks=min_chunks,
                beta=self.beta,
            )
        return test, drift

    def _order(self, n_chunks: int, n_in_order: int) -> list[int]:
        """Indices of the chunks as they are drawn, the first few in the text's order."""
        # Drawn without replacement: the basis of the tests' error bounds.
        drawn = random.Random(self.seed).sample(range(n_chunks), n_chunks)  # noqa: S311  # logged
        return sorted(drawn[:n_in_order]) + drawn[n_in_order:]

    @staticmethod
    def _show(
        lease: MachineLease, test: PairedPplTest | None, drift: DriftTest | None, n_chunks: int
    ) -> None:
        """Show how far it is."""
        figures, n = [], 0
        if test is not None and test.n:
            figures.append(f"Δ {shown(test.estimate)}")
            n = test.n
        if drift is not None and drift.n:
            figures.append(f"KLD {shown(drift.kld.estimate)}")
            n = max(n, drift.n)
        label = ", ".join(name for name, one in (("ppl", test), ("kld", drift)) if one is not None)
        lease.progress(label, n, n_chunks, SoFar(", ".join(figures), "chunks"))

    def attempt(self, lease: MachineLease) -> None:
        """Score one chunk in the lease's only variant."""
        ((arm,),) = lease.sides
        with RunningArm(arm, lease) as running:
            (chunk, *_), _ = self._chunks(running, lease)
            running.worker.score([MODEL], chunk, self._first(chunk, running))

    def _chunks(
        self, arm: RunningArm, lease: MachineLease
    ) -> tuple[list[Sequence[int]], ScoredText]:
        n_ctx, is_served = PPL_N_CTX, arm.loaded.served is not None
        if self.depth or is_served:
            depth = self.depth or _DEPTH_OF_SERVER
            n_scored = _SCORED_OF_SERVER if is_served else _MOST_SCORED
            n_ctx = min(depth + n_scored, arm.loaded.n_ctx_train)
        if n_ctx < self.depth + _LEAST_SCORED:
            raise UnfitError(
                f"ppl@d{self.depth} scores at least {_LEAST_SCORED} tokens after {self.depth}, and "
                f"the model was trained on a context of {arm.loaded.n_ctx_train}",
                why="what a model does beyond its context is not what its users see",
                remedy="name a smaller depth",
            )
        return scored_chunks(arm.worker, MODEL, lease.corpus, lease.plan.chunks, n_ctx=n_ctx)

    def _first(self, chunk: Sequence[int], arm: RunningArm) -> int:
        """The position from which on a chunk is scored."""
        is_served = arm.loaded.served is not None
        return self.depth or (len(chunk) - _SCORED_OF_SERVER if is_served else len(chunk) // 2)


def grown(drift: DriftTest, own_kld: float, own_changed: float) -> DriftTest:
    """The test with limits of the baseline's own drift, which also changes top tokens."""
    return drift.within(
        guards.drift_limit(drift.kld.limit, own_kld, _MOST_KLD_GROWTH),
        guards.drift_limit(drift.changed.limit, own_changed, _MOST_TOPS_GROWTH),
        own_kld,
    )


def _scored(
    arms: Sequence[RunningArm],
    baselines: Executor,
    order: Sequence[Sequence[int]],
    first: int,
    kept: Path | None,
) -> Iterator[list[tuple[ChunkScore, ContextFacts]]]:
    """Both builds' scores of each chunk, and their contexts.

    With a folder to keep logits in, the candidate is compared with the baseline, which computes the
    next chunk meanwhile if there are cores for both, in the thread of all its requests.
    """
    if kept is None:
        for chunk in order:
            yield ask_each(arms, partial(_score, chunk, first))
        return
    if not order:
        return
    base, candidate = (arm.worker for arm in arms)

    def ahead(index: int) -> tuple[ChunkScore, ContextFacts]:
        return base.score([MODEL], order[index], first, keep=files[index % 2])[MODEL]

    files = kept / "even.npy", kept / "odd.npy"
    following = baselines.submit(ahead, 0)
    for index, chunk in enumerate(order):
        scored = following.result()
        if index + 1 < len(order):
            following = baselines.submit(ahead, index + 1)
            if not have_own_cores(arms):
                wait([following])
        yield [scored, candidate.score([MODEL], chunk, first, against=files[index % 2])[MODEL]]


def _score(chunk: Sequence[int], first: int, arm: RunningArm) -> tuple[ChunkScore, ContextFacts]:
    return arm.worker.score([MODEL], chunk, first)[MODEL]


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
