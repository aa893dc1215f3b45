"""A draft on another machine against the same draft here: the cost of the distance.

A pair is the suite of prompts in both variants, greedily. On each prompt both run back to back, in
random order. Each variant has a process; a server serves one client.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from pytest_asperf.analysis.guards import Guard, GuardFinding, first_divergence
from pytest_asperf.analysis.stats.intervals import median_interval, paired_change_interval
from pytest_asperf.measure.drafted_target import DRAFT, TARGET, DraftedTarget
from pytest_asperf.measure.feeding import read_prompts

if TYPE_CHECKING:
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.config.spec import Pairing
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.experiment import Arm, MachineLease
    from pytest_asperf.measure.results import Provenance


@dataclass(frozen=True, slots=True)
class DraftedRun:
    """One prompt's generation; of a program the output is its text's characters."""

    output: Sequence[int]
    emitted: int
    drafted: int
    accepted: int
    elapsed_ns: int


@dataclass(frozen=True)
class RemoteDraftingResult:
    """Both variants.

    Attributes:
        pairs: of each, the runs here and there by prompt.
        ran: run record of that variant: target and draft.
    """

    pairs: tuple[tuple[tuple[DraftedRun, DraftedRun], ...], ...]
    ran: tuple[Provenance, ...]

    @cached_property
    def change(self) -> Estimate:
        """Change of the rate of emitted tokens by the distance."""
        here, there = ([self._rate(pair, arm) for pair in self.pairs] for arm in (0, 1))
        return paired_change_interval(here, there)

    @cached_property
    def per_token(self) -> Estimate:
        """The extra time of an emitted token, in ms."""
        return self._extra("emitted")

    @cached_property
    def per_drafted_token(self) -> Estimate:
        """The extra time of a drafted token, in ms: one graph that the server computes."""
        return self._extra("drafted")

    def _extra(self, counted: str) -> Estimate:
        extra_ms = []
        for pair in self.pairs:
            here, there = (
                sum(runs[arm].elapsed_ns for runs in pair)
                / max(1, sum(getattr(runs[arm], counted) for runs in pair))
                for arm in (0, 1)
            )
            extra_ms.append((there - here) / 1e6)
        return median_interval(extra_ms, unit="ms", counted="pairs")

    @staticmethod
    def _rate(pair: Sequence[tuple[DraftedRun, DraftedRun]], arm: int) -> float:
        return sum(runs[arm].emitted for runs in pair) / sum(runs[arm].elapsed_ns for runs in pair)

    @property
    def guard_findings(self) -> tuple[GuardFinding, ...]:
        """Outputs that differ: the variants did not do the same work."""
        found = {}
        for pair in self.pairs:
            for prompt, (here, there) in enumerate(pair):
                position = first_divergence(here.output, there.output)
                if position is not None:
                    found[prompt] = position
        return tuple(
            Guard.DIVERGENT_OUTPUT.finding(
                f"prompt {prompt + 1}: from position {position} on the output with the draft "
                "there is another than with the draft here",
                "identical output at temperature 0",
            )
            for prompt, position in found.items()
        )

    def row(self, arm: int) -> str:
        """A variant's rate and acceptance in words."""
        runs = [both[arm] for pair in self.pairs for both in pair]
        rate = 1e9 * statistics.median(self._rate(pair, arm) for pair in self.pairs)
        accepted, drafted = (sum(getattr(r, n) for r in runs) for n in ("accepted", "drafted"))
        return f"{rate:.1f} tok/s, {100 * accepted / max(1, drafted):.1f} % of drafts accepted"


@dataclass(frozen=True, slots=True)
class RemoteDraftingExperiment:
    """Times a pairing with its draft here, then there.

    All pairs or all seconds of the budget are used, independent of the results, so that each
    interval is valid.
    """

    here: Pairing
    there: Pairing
    budget: Budget

    def run(self, lease: MachineLease) -> RemoteDraftingResult:
        """Time the pairs."""
        coin = random.Random(self.budget.seed)  # noqa: S311  # logged
        n_pairs = self.budget.max_pairs
        with ExitStack() as stack:
            sides = zip(lease.sides, (self.here, self.there), strict=True)
            here, there = (stack.enter_context(_start(side, p, lease)) for side, p in sides)
            arms = partial(_drafted, here), partial(_drafted, there)
            for arm in arms:
                arm(0)
            prompts = range(len(read_prompts(self.here.prompts)))
            deadline = time.monotonic() + self.budget.max_seconds
            pairs: list[tuple[tuple[DraftedRun, DraftedRun], ...]] = []
            while not pairs or (len(pairs) < n_pairs and time.monotonic() < deadline):
                lease.progress(f"draft there {self.here.label}", len(pairs), n_pairs)
                pairs.append(tuple(_in_turns(arms, prompt, coin) for prompt in prompts))
            there.end()
            return RemoteDraftingResult(tuple(pairs), there.ran_both())


def _in_turns(
    arms: Sequence[Callable[[int], DraftedRun]], prompt: int, coin: random.Random
) -> tuple[DraftedRun, DraftedRun]:
    order = coin.sample((0, 1), 2)
    done = {arm: arms[arm](prompt) for arm in order}
    return done[0], done[1]


def _start(side: Sequence[Arm], pairing: Pairing, lease: MachineLease) -> DraftedTarget:
    """A process with both models; a program tokenizes its prompts by itself, and opens contexts."""
    drafted = DraftedTarget(side, pairing, lease)
    if not drafted.worker.build.tools:
        with drafted.ended_on_error():
            drafted.open_suite(pairing.k)
    return drafted


def _drafted(build: DraftedTarget, prompt: int) -> DraftedRun:
    """Generate after a prompt, by its number: in steps of a library, or by a program's run."""
    if not build.worker.build.tools:
        done = build.after(prompt)
        counts = len(done.tokens), done.drafted, done.accepted
        return DraftedRun(done.tokens, *counts, done.elapsed_ns)
    pairing = build.pairing
    _, text = read_prompts(pairing.prompts)[prompt]
    ran = build.worker.speculate(TARGET, DRAFT, text, n_new=pairing.n_tokens, k=pairing.k)
    counts = ran.n_emitted, ran.n_drafted, ran.n_accepted or 0
    return DraftedRun([ord(character) for character in ran.text], *counts, ran.elapsed_ns)
