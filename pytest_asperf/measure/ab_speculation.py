"""Speculation in two arms: its time in pairs, what it accepts, and whether it is lossless.

Before the pairs every prompt runs once in either arm, untimed, for what is accepted; the candidate
generates without the draft too, and its outputs are compared. Then each turn of a pair is a prompt.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import RawRun
from pytest_asperf.measure.ab_arms import require_ran
from pytest_asperf.measure.ab_speed import ABResult, Budget, SpeedExperiment
from pytest_asperf.measure.draft_target import TARGET
from pytest_asperf.measure.experiment import Visit
from pytest_asperf.measure.model_locator import same_tokenizer
from pytest_asperf.measure.running_arms import ArmProcess, open_together
from pytest_asperf.measure.speculation import DraftTargetFiles, find_divergences, open_suite
from pytest_asperf.measure.speculation_result import Divergence, PromptRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_asperf.config.spec import Pairing
    from pytest_asperf.engine_process import ContextFacts, LoadedFacts
    from pytest_asperf.measure.ab_arms import Arm
    from pytest_asperf.measure.experiment import MachineLease
    from pytest_asperf.measure.model_locator import LocatedModel
    from pytest_asperf.measure.results import Provenance
    from pytest_asperf.worker.speculation import Generation

#: Tokens that warm a context up, several rounds of any usual k.
_WARM_UP_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class Counts:
    """What one arm's speculation accepted.

    Attributes:
        n_tokens: tokens generated after each prompt.
        by_prompt: drafted and accepted tokens, each counted on its first verification.
    """

    n_tokens: int
    by_prompt: tuple[tuple[int, int], ...]

    @property
    def drafted(self) -> int:
        """Tokens drafted."""
        return sum(drafted for drafted, _ in self.by_prompt)

    @property
    def accepted(self) -> int:
        """Tokens accepted."""
        return sum(accepted for _, accepted in self.by_prompt)

    @property
    def supplied(self) -> tuple[float, ...]:
        """Share of each prompt's output that the draft supplied."""
        return tuple(accepted / self.n_tokens for _, accepted in self.by_prompt)


@dataclass(frozen=True, slots=True)
class SpeculationComparison:
    """Speculation of one target and draft in two arms.

    Attributes:
        pairing: what was run.
        speed: the pairs.
        counts: of baseline and candidate.
        categories: of each prompt.
        divergences: where the candidate's outputs with and without the draft part.
    """

    pairing: Pairing
    speed: ABResult
    counts: tuple[Counts, Counts]
    categories: tuple[str, ...]
    divergences: tuple[Divergence, ...]


@dataclass(frozen=True, slots=True)
class SpeculationExperiment:
    """Speculates with one target and draft in two arms.

    Attributes:
        pairing: what is run; greedily, whatever temperature it names.
        budget: what it may cost.
        comparisons: tests that share the error of a FAIL, this one among them.
        visit: continues the pairs of an earlier one, whose outputs are known.
    """

    pairing: Pairing
    budget: Budget
    comparisons: int = 1
    visit: Visit[SpeculationComparison] = field(default_factory=Visit)

    def run(self, lease: MachineLease) -> SpeculationComparison:
        """Count what is accepted, look for changed output, then time the pairs.

        Raises:
            EngineError: an arm died or refused.
            ModelError: the draft's tokenizer is another, or a prompt cannot be used.
        """
        pairing, earlier = replace(self.pairing, temperature=0.0), self.visit.earlier
        opening = _opening(lease, pairing, 0), _opening(lease, pairing, 1)
        workload = Workload("sd", pairing.n_tokens)
        number, max_seconds = self.visit.number, self.visit.max_seconds
        visit = Visit(number, max_seconds, earlier.speed if earlier else None)
        paired = SpeedExperiment((workload,), self.budget, self.comparisons, visit)
        if earlier is not None:
            return replace(earlier, speed=paired.decide(lease, opening))
        # In processes of their own, so that those of a pair take no longer than they must.
        base, candidate = _rehearsed(lease, opening)
        return SpeculationComparison(
            pairing,
            paired.decide(lease, opening),
            (base.counts, candidate.counts),
            tuple(category for category, _ in candidate.prompts),
            candidate.divergences,
        )

    def attempt(self, lease: MachineLease) -> None:
        """Run every prompt once, with the draft and without, with the lease's one side."""
        ((target, *draft),) = lease.sides
        pairing = replace(self.pairing, temperature=0.0)
        with SpeculatingArm(target, draft[0] if draft else None, pairing, lease) as arm:
            arm.rehearse(partial(lease.progress, "sd outputs"), with_alone=True)


class SpeculatingArm(ArmProcess):
    """An arm that speculates: a target and a draft in one process.

    Args:
        target: what runs.
        draft: what drafts, None for lookup in the text.
        pairing: what is generated.
        lease: has the idle processes, and the deadline of one call to the engine.

    Attributes:
        prompts: category and tokens of each.
        counts: what was accepted in the rehearsal.
        divergences: where outputs with and without the draft part, looked for in the rehearsal.
    """

    def __init__(
        self, target: Arm, draft: Arm | None, pairing: Pairing, lease: MachineLease
    ) -> None:
        super().__init__(target, lease)
        self._n_tokens = pairing.n_tokens
        self.counts = Counts(pairing.n_tokens, ())
        self.divergences: tuple[Divergence, ...] = ()
        try:
            model = _as_run(target)
            drafting = None if draft is None else same_tokenizer(model, _as_run(draft))
            files = DraftTargetFiles(pairing, model, drafting)
            self._pair, self.prompts = open_suite(self.worker, files, pairing.k)
        except BaseException:
            self.worker.close()
            raise

    @property
    def loaded(self) -> LoadedFacts:
        """What the target's last load resolved to."""
        return self._pair.loaded[TARGET]

    def rehearse(self, progress: Callable[[int, int], None], *, with_alone: bool) -> None:
        """Run every prompt once, and count what is accepted.

        Args:
            progress: takes prompts done and prompts in all.
            with_alone: whether outputs are compared with those of the target alone.
        """
        done: list[Generation] = []
        runs: list[PromptRun] = []
        for index in range(len(self.prompts)):
            progress(index, len(self.prompts))
            done.append(self._generate(index))
            if with_alone:
                alone = self._generate(index, speculative=False)
                runs.append(PromptRun(index, alone, done[-1], speculative_first=True))
        self.counts = Counts(self._n_tokens, tuple(map(_counted, done)))
        self.divergences = find_divergences(self._pair, self.prompts, runs)

    def own(self, workload: Workload) -> Workload:
        """The workload: both arms run the same."""
        return workload

    def fed(self, workload: Workload) -> Sequence[object]:  # noqa: ARG002  # there is one
        """The prompts."""
        return self.prompts

    def run(self, workload: Workload, turn: int, parts: int) -> RawRun:  # noqa: ARG002  # as above
        """Time one prompt's generation with the draft."""
        done = self._generate(turn % len(self.prompts))
        return RawRun(len(done.tokens), done.elapsed_ns, (), self._pair.contexts[TARGET], 0)

    def warm_up(self, workload: Workload, turn: int, parts: int) -> None:  # noqa: ARG002  # as above
        """Generate a few tokens: their batches are those of a whole generation."""
        _, prompt = self.prompts[turn % len(self.prompts)]
        n_tokens = min(_WARM_UP_TOKENS, self._n_tokens)
        self._pair.generate(prompt, speculative=True, seed=0, n_tokens=n_tokens)

    settle = warm_up

    def ran(self, context: ContextFacts | None) -> Provenance:
        """The target's proof of path."""
        return require_ran(self._arm, self.worker.describe(), self.loaded, context)

    def _generate(self, index: int, *, speculative: bool = True) -> Generation:
        _, prompt = self.prompts[index]
        return self._pair.generate(prompt, speculative=speculative, seed=0)


def _opening(lease: MachineLease, pairing: Pairing, side: int) -> Callable[[], SpeculatingArm]:
    target, *draft = lease.sides[side]
    return partial(SpeculatingArm, target, draft[0] if draft else None, pairing, lease)


def _rehearsed(
    lease: MachineLease, opening: Sequence[Callable[[], SpeculatingArm]]
) -> list[SpeculatingArm]:
    """Both arms after each prompt has run, the candidate's without the draft too; they have ended.

    Both run at once, and the candidate, which has more to do, says how far it is.
    """
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        base, candidate = arms = open_together(stack, opening)
        progress = partial(lease.progress, "sd outputs")
        done = (
            pool.submit(base.rehearse, _untold, with_alone=False),
            pool.submit(candidate.rehearse, progress, with_alone=True),
        )
        for future in done:
            future.result()
    return arms


def _untold(_done: int, _total: int) -> None:
    """Say nothing."""


def _as_run(arm: Arm) -> LocatedModel:
    """The arm's model with the arm's settings."""
    ref = arm.model.ref
    return replace(arm.model, ref=replace(ref, spec=replace(ref.spec, settings=arm.settings)))


def _counted(run: Generation) -> tuple[int, int]:
    return sum(r.drafted for r in run.rounds), sum(r.accepted for r in run.rounds)
