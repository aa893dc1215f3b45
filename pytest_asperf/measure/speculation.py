"""Speculation against the target alone: both arms on the same prompts, in pairs, until decided.

A pair is the whole suite of prompts in both arms. On each prompt the arms run back to back, in an
order that a coin decides; the rest is as in a gate. What a step costs is timed once in every pair,
so that a prediction and what it predicts are of the same minutes.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.stats.sequential import PairedTest, log_cost_ratio
from pytest_asperf.config.progress import SoFar
from pytest_asperf.engine_process import Worker
from pytest_asperf.errors import UnfitError
from pytest_asperf.measure.draft_target import TARGET, OpenPair, room_after_prompt
from pytest_asperf.measure.experiment import shown
from pytest_asperf.measure.model_locator import same_tokenizer
from pytest_asperf.measure.prompts import read_prompts, tokenized
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.speculation_result import (
    Divergence,
    PromptRun,
    SpeculationResult,
    SuitePair,
)
from pytest_asperf.measure.throughput import load_is_cheap
from pytest_asperf.measure.validity import require_path, require_unchanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_asperf.config.spec import Pairing
    from pytest_asperf.engine_process import ContextFacts, EngineFacts, LoadedFacts, StepCosts
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.experiment import MachineLease
    from pytest_asperf.measure.model_locator import LocatedModel
    from pytest_asperf.measure.prompts import Prompts
    from pytest_asperf.worker.speculation import Generation

#: Costs are timed for batches of up to so many drafted tokens: the sweep for the best k.
SWEEP_K: Final = 8
#: Of each run's rounds, so many of the last are timed again as single batches: the fewer they are,
#: the more a prediction scatters.
_ROUNDS_TIMED: Final = 12
#: Times that a batch of each size is timed after the last prompt's runs.
_SWEEP_REPEATS: Final = 2


@dataclass(frozen=True, slots=True)
class DraftTargetFiles:
    """The files that a pairing is made of; a lookup has no draft."""

    pairing: Pairing
    target: LocatedModel
    draft: LocatedModel | None


@dataclass(frozen=True, slots=True)
class GainExperiment:
    """Measures a target with its draft against the target alone.

    The gain in question (`limit`) is a fraction; the tolerance of the budget is not used.
    """

    pairing: Pairing
    budget: Budget
    limit: float

    def run(self, lease: MachineLease) -> SpeculationResult:
        """Measure until the gain is shown to be above the limit or not above it."""
        files = _files(self.pairing, lease)
        return run_speculation(files, lease, self.budget, limit=self.limit)


@dataclass(frozen=True, slots=True)
class PlacesExperiment:
    """Places sampled tokens, `n_tokens` at least, in the target's own distribution."""

    pairing: Pairing
    n_tokens: int
    seed: int

    def run(self, lease: MachineLease) -> tuple[float, ...]:
        """Sample with the draft."""
        files = _files(self.pairing, lease)
        return tuple(sample_places(files, lease, n_tokens=self.n_tokens, seed=self.seed))


def _files(pairing: Pairing, lease: MachineLease) -> DraftTargetFiles:
    target, *draft = (arm.model for arm in lease.sides[0])
    return DraftTargetFiles(pairing, target, same_tokenizer(target, draft[0]) if draft else None)


def run_speculation(
    files: DraftTargetFiles, lease: MachineLease, budget: Budget, *, limit: float
) -> SpeculationResult:
    """Measure until the gain, a fraction, is shown to be above a limit or not above it.

    Ctrl-C ends it: before a pair is finished as KeyboardInterrupt, later with the finished pairs.
    An EngineError of kind `rollback` comes before anything was decoded in vain.
    """
    pairing = files.pairing
    # The test is asked for its interval, which holds whenever it is looked at, and never decides.
    test = PairedTest(min_pairs=budget.max_pairs, max_pairs=budget.max_pairs)
    pairs: list[SuitePair] = []
    divergences: tuple[Divergence, ...] = ()
    interrupted = False
    with _worker(lease) as worker:
        described = worker.describe()
        paired = _SpeculationPairs(worker, files, budget.seed)
        paired.rehearse()
        deadline = time.monotonic() + budget.max_seconds
        try:
            while test.outcome is None and time.monotonic() < deadline:
                so_far = SoFar(f"gain {shown(test.estimate)}" if test.n else "", "pairs")
                lease.progress(f"speculation {pairing.label}", test.n, budget.max_pairs, so_far)
                pair = paired.run_pair()
                # The target alone as the candidate: what it is slower by is the gain.
                test.update(log_cost_ratio(candidate=pair.alone_ns, baseline=pair.speculative_ns))
                pairs.append(pair)
                if _is_decided(test, limit):
                    break
            runs = [run for pair in pairs for run in pair.runs if not pairing.temperature]
            divergences = find_divergences(paired.pair, paired.prompts, runs)
            paired.pair.end()
        except KeyboardInterrupt:
            if not pairs:
                raise
            interrupted = True
        proofs = proofs_of(files, described, paired.pair.loaded, paired.pair.contexts)
    return SpeculationResult(
        pairing=pairing,
        categories=tuple(category for category, _ in paired.prompts),
        pairs=tuple(pairs),
        gain=test.estimate,
        divergences=divergences,
        contexts=paired.pair.contexts,
        reloads=paired.reloads,
        seed=budget.seed,
        ran=proofs,
        interrupted=interrupted,
        watched=lease.watch.seen(),
    )


def sample_places(
    files: DraftTargetFiles,
    lease: MachineLease,
    *,
    n_tokens: int,
    seed: int,
    rule: str = "exact",
) -> list[float]:
    """Sample many short outputs, and place each token in the target's own distribution.

    Places are uniform on 0 … 1 where the output has that distribution. Any rule of accepting
    drafted tokens but `exact` is a mistake, to be found.
    """
    pairing = replace(files.pairing, n_tokens=2 * (files.pairing.k + 1))
    files = replace(files, pairing=pairing)
    with _worker(lease) as worker:
        paired = _SpeculationPairs(worker, files, seed)
        places: list[float] = []
        each = -(-n_tokens // (pairing.n_tokens * len(paired.prompts)))
        for index, (_, prompt) in enumerate(paired.prompts):
            n_prompts, so_far = len(paired.prompts), SoFar(counted="prompts")
            lease.progress(f"speculation {pairing.label}", index, n_prompts, so_far)
            seeds = [seed * 1_000_003 + index * each + n for n in range(each)]
            places += paired.pair.places(prompt, seeds=seeds, rule=rule)
    return places


def _is_decided(test: PairedTest, limit: float) -> bool:
    estimate = test.estimate
    return estimate.shown_above(limit) or estimate.shown_at_most(limit)


def _worker(lease: MachineLease) -> Worker:
    return Worker(lease.sides[0][0].build.engine, call_timeout_s=lease.call_timeout_s)


def proofs_of(
    files: DraftTargetFiles,
    described: EngineFacts,
    loaded: Mapping[str, LoadedFacts],
    contexts: Mapping[str, ContextFacts],
) -> tuple[Provenance, ...]:
    """Proof of path of the target, and of a draft that is a model."""
    return tuple(
        _proof(files, described, name, facts, contexts.get(name)) for name, facts in loaded.items()
    )


def _proof(
    files: DraftTargetFiles,
    described: EngineFacts,
    name: str,
    loaded: LoadedFacts,
    context: ContextFacts | None,
) -> Provenance:
    model = files.target if name == TARGET else files.draft
    if model is None:
        raise ValueError(f"no model for {name}")
    require_unchanged(model)
    return require_path(
        Provenance(
            model.ref.label,
            model.path,
            model.sha256,
            described,
            loaded,
            context,
            model.ref.spec.settings,
            title=model.title,
            ref=model.ref,
        )
    )


def open_suite(worker: Worker, files: DraftTargetFiles, k_max: int) -> tuple[OpenPair, Prompts]:
    """Load a target and a draft, and open contexts that hold each prompt and what follows it.

    No round may draft more than `k_max` tokens.
    """
    pairing = files.pairing
    pair = OpenPair(worker, pairing, files.target, files.draft)
    room = room_after_prompt(pairing.n_tokens, k_max)
    n_ctx_train = min(facts.n_ctx_train for facts in pair.loaded.values())
    at_most = n_ctx_train - room
    if at_most < 2:
        raise UnfitError(
            f"{pairing.label}: {pairing.n_tokens} tokens leave no room for a prompt in a "
            f"context of {n_ctx_train}",
            why="what a model does beyond its context is not what its users see",
            remedy="generate fewer with n_tokens",
        )
    prompts = tokenized(worker, TARGET, read_prompts(pairing.prompts), at_most=at_most)
    longest = max(len(tokens) for _, tokens in prompts)
    pair.open(longest + room, k_max)
    return pair, prompts


class _SpeculationPairs:
    """The arms taking turns; `reloads` says whether each pair begins with a load."""

    def __init__(self, worker: Worker, files: DraftTargetFiles, seed: int) -> None:
        self._pairing = pairing = files.pairing
        self._coin = random.Random(seed)  # noqa: S311  # logged, and to be repeated
        k_max = max(pairing.k, SWEEP_K)
        self._sizes = range(1, k_max + 2)
        self.pair, self.prompts = open_suite(worker, files, k_max)
        self.reloads = False

    def rehearse(self) -> None:
        """Run every arm once uncounted, and decide whether to load again is cheap."""
        _, prompt = self.prompts[0]
        began = time.perf_counter_ns()
        for speculative in (False, True):
            self.pair.generate(prompt, speculative=speculative, seed=0)
        measured_ns = (time.perf_counter_ns() - began) * len(self.prompts)
        self.pair.costs(prompt, (), self._sizes)
        self.pair.draft_alone(prompt)
        self.reloads = load_is_cheap(1e9 * self.pair.reload(), measured_ns)

    def run_pair(self) -> SuitePair:
        """Run the suite in both arms."""
        if self.reloads:
            self.pair.reload()
        order = self._coin.sample(range(len(self.prompts)), len(self.prompts))
        # A fresh load's first run is a warm-up.
        for speculative in (False, True):
            self._generate(order[0], speculative=speculative)
        runs: list[PromptRun] = []
        costs: list[StepCosts] = []
        for index in order:
            runs.append(self._run(index))
            # Between the runs, so that what disturbs them disturbs the costs alike.
            costs += self._costs(runs[-1])
        for size in self._sizes:
            costs.append(self._batches(runs[-1], (1 + _SWEEP_REPEATS) * [size]))
        return SuitePair(tuple(runs), reduce(add, costs), self._pairing.k)

    def _costs(self, run: PromptRun) -> tuple[StepCosts, StepCosts]:
        """Time batches of the sizes that the run's rounds had, in their order."""
        sizes = [round_.drafted + 1 for round_ in run.speculative.rounds]
        _, prompt = self.prompts[run.prompt]
        timed = self._batches(run, [sizes[0], *sizes][-1 - _ROUNDS_TIMED :])
        return timed, self.pair.draft_alone(prompt)

    def _batches(self, run: PromptRun, sizes: Sequence[int]) -> StepCosts:
        _, prompt = self.prompts[run.prompt]
        return self.pair.costs(prompt, run.alone.tokens, sizes)

    def _run(self, index: int) -> PromptRun:
        speculative_first = self._coin.random() < 0.5
        arms = (True, False) if speculative_first else (False, True)
        done = {arm: self._generate(index, speculative=arm) for arm in arms}
        return PromptRun(index, done[False], done[True], speculative_first)

    def _generate(self, index: int, *, speculative: bool) -> Generation:
        _, prompt = self.prompts[index]
        seed = self._coin.randrange(2**32)
        return self.pair.generate(prompt, speculative=speculative, seed=seed)


def find_divergences(
    pair: OpenPair, prompts: Prompts, runs: Iterable[PromptRun]
) -> tuple[Divergence, ...]:
    """Where greedy outputs of the arms part, each different parting once.

    The target is asked how near to a tie each parting is.
    """
    divergences: dict[tuple[int, int, int, int], Divergence] = {}
    for run in runs:
        position = guards.first_divergence(run.alone.tokens, run.speculative.tokens)
        if position is None:
            continue
        tokens = (run.alone.tokens[position], run.speculative.tokens[position])
        key = (run.prompt, position, *tokens)
        if key not in divergences:
            divergences[key] = _divergence(pair, prompts, run, position, tokens)
    return tuple(divergences.values())


def _divergence(
    pair: OpenPair, prompts: Prompts, run: PromptRun, position: int, tokens: tuple[int, int]
) -> Divergence:
    _, prompt = prompts[run.prompt]
    emitted = 0
    for round_ in run.speculative.rounds:
        if emitted + round_.emitted > position:
            break
        emitted += round_.emitted
    batch = round_.drafted + 1
    margin = pair.margin(
        (*prompt, *run.alone.tokens[:position]),
        batch=batch,
        behind=batch - 1 - (position - emitted),
        tokens=tokens,
    )
    return Divergence(run.prompt, position, tokens, margin)
