"""Draft and verify: the loop of speculative decoding, common to all engines.

One round drafts up to k tokens, verifies them with the target in one batch, and emits the accepted
ones and one of the target's own (Leviathan, Kalman and Matias, ICML 2023). Without a drafter a
round is one step of the target: both variants of a comparison run the same loop.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import numpy as np

from .logits import require_sound
from .priority import linger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .engine import Stepper

Logits = Any  # NDArray[np.float32]; engines hand out views

#: How drafted tokens are accepted when sampling. `exact` keeps the target's distribution; the
#: other is a mistake that implementations make, to see that a check of losslessness finds it.
AcceptanceRule = Literal["exact", "no-residual"]

#: Longest and shortest piece of text that a lookup searches for.
_NGRAM_SIZES: Final = (3, 2, 1)


@dataclass(frozen=True, slots=True)
class Round:
    """Counts and nanoseconds of one round; the rest of the wall time is the loop's own."""

    #: drafted, accepted, emitted: tokens proposed, kept by the target, and added to the output
    drafted: int
    accepted: int
    emitted: int
    draft_ns: int  #: time of proposing
    verify_ns: int  #: time of the target's batch
    rollback_ns: int  #: time of checkpoints, of removing rejected tokens, and of replays


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation: the output without the prompt, which was decoded before the clock started."""

    tokens: list[int]
    elapsed_ns: int
    rounds: list[Round]

    @property
    def drafted(self) -> int:
        """Tokens drafted."""
        return sum(row.drafted for row in self.rounds)

    @property
    def accepted(self) -> int:
        """Tokens accepted, each counted on its first verification."""
        return sum(row.accepted for row in self.rounds)

    @property
    def emitted(self) -> int:
        """Tokens added to the output."""
        return sum(row.emitted for row in self.rounds)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafted tokens, and the rows of probabilities they were drawn from, None if certain."""

    tokens: list[int]
    odds: list[NDArray[np.float64]] | None = None


_NOTHING: Final = Proposal([])


class Choice(Protocol):
    """How tokens are chosen: from the target's logits, and by a draft."""

    def draft(self, stepper: Stepper, feed: list[int], k: int) -> Proposal:
        """Draft k tokens after some that the draft has not seen yet."""

    def judge(self, rows: Logits, proposal: Proposal) -> list[int]:
        """The accepted tokens of a proposal and one of the target's own."""


class Greedy:
    """The likeliest token, always."""

    def draft(self, stepper: Stepper, feed: list[int], k: int) -> Proposal:
        """Draft the likeliest tokens."""
        return Proposal(stepper.likeliest(feed, k))

    def judge(self, rows: Logits, proposal: Proposal) -> list[int]:
        """The part of the proposal that equals the target's tokens, and the target's next one."""
        best: list[int] = rows.argmax(axis=1).tolist()
        for row, token in zip(rows, best, strict=True):
            require_sound(row, row[token])
        accepted = 0
        for drafted, wanted in zip(proposal.tokens, best, strict=False):
            if drafted != wanted:
                break
            accepted += 1
        return best[: accepted + 1]


class Sampled:
    """Tokens drawn at a temperature; rejection sampling keeps the target's distribution.

    A token drawn from the draft's q is kept with probability min(1, p / q); at the first that is
    not, one is drawn from max(0, p - q), normalised (section 2.3 and appendix A.1 of the paper).
    """

    def __init__(self, temperature: float, seed: int, rule: AcceptanceRule = "exact") -> None:
        self._temperature = temperature
        self._draws = np.random.default_rng(seed)
        self._corrects = rule == "exact"

    def draft(self, stepper: Stepper, feed: list[int], k: int) -> Proposal:
        """Draft tokens drawn from the draft's distributions."""
        tokens: list[int] = []
        odds: list[NDArray[np.float64]] = []
        for _ in range(k):
            row = stepper.decode(feed, 1)[0][: stepper.n_drafted or None]
            odds.append(probabilities(row, self._temperature))
            tokens.append(self._draw(odds[-1]))
            feed = tokens[-1:]
        return Proposal(tokens, odds)

    def judge(self, rows: Logits, proposal: Proposal) -> list[int]:
        """The accepted tokens, and one of the residual or of the target's next position."""
        kept: list[int] = []
        for index, token in enumerate(proposal.tokens):
            target = probabilities(rows[index], self._temperature)
            odds = proposal.odds[index] if proposal.odds is not None else None
            drafted = 1.0 if odds is None else float(odds[token])
            if self._draws.random() * drafted < target[token]:
                kept.append(token)
                continue
            return [*kept, self._draw(self._residual(target, odds, token))]
        return [*kept, self._draw(probabilities(rows[len(kept)], self._temperature))]

    def _residual(
        self, target: NDArray[np.float64], odds: NDArray[np.float64] | None, token: int
    ) -> NDArray[np.float64]:
        if not self._corrects:
            return target
        left = target.copy()
        if odds is None:
            left[token] = 0.0
        else:
            left[: len(odds)] -= odds
            np.maximum(left, 0.0, out=left)
        return left if left.any() else target

    def _draw(self, weights: NDArray[np.float64]) -> int:
        """An index drawn by weights that need no normalising."""
        sums = np.cumsum(weights)
        drawn = int(np.searchsorted(sums, self._draws.random() * sums[-1], side="right"))
        return min(drawn, len(weights) - 1)


@dataclass(frozen=True, slots=True)
class ModelDrafter:
    """Drafts with a smaller model."""

    stepper: Stepper
    choice: Choice

    def begin(self, prompt: Sequence[int]) -> None:
        """Have a prompt, but for its last token, in the draft's memory."""
        self.stepper.begin(prompt[:-1])

    def propose(self, text: Sequence[int], k: int) -> Proposal:
        """Draft k tokens after a text, whose end the draft may not have seen yet."""
        feed = list(text[self.stepper.n_past :])
        self.stepper.mark()
        return self.choice.draft(self.stepper, feed, k)

    def settle(self, n_true: int) -> None:
        """Remove from the draft's memory all but the first tokens, which are true."""
        if self.stepper.n_past > n_true:
            self.stepper.keep(n_true)


class NgramDrafter:
    """Drafts the text after the last occurrence of the text's end: prompt lookup.

    After Saxena, "Prompt Lookup Decoding" (2023): the longest of 3, 2 and 1 tokens that occurred
    before is continued as it went on there.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def begin(self, prompt: Sequence[int]) -> None:
        """Drop the index of the text before."""
        del prompt
        self._seen, self._indexed = {}, 0

    def propose(self, text: Sequence[int], k: int) -> Proposal:
        """Up to k tokens, none if the end of the text is new."""
        end = len(text)
        for stop in range(self._indexed + 1, end):
            for size in _NGRAM_SIZES:
                if size <= stop:
                    self._seen[tuple(text[stop - size : stop])] = stop
        self._indexed = end - 1
        for size in _NGRAM_SIZES:
            start = self._seen.get(tuple(text[end - size : end]))
            if start is not None:
                return Proposal(list(text[start : start + k]))
        return _NOTHING

    def settle(self, n_true: int) -> None:
        """Do nothing: only emitted tokens are ever indexed."""


Drafter = ModelDrafter | NgramDrafter


def generate(
    target: Stepper,
    drafter: Drafter | None,
    prompt: Sequence[int],
    *,
    n_new: int,
    k: int,
    how: Choice,
    slow_by: float = 0.0,
) -> Generation:
    """Generate exactly `n_new` tokens after a prompt; the end of a text does not end this.

    No round drafts more tokens than can still be emitted, so that both variants do the same work.
    The prompt, of at least two tokens, is decoded before the clock starts. Every round is slowed by
    a share: a wait at the end would slow the next run, as caches are lost in some milliseconds.
    """
    clock = time.perf_counter_ns
    text = list(prompt)
    rounds: list[Round] = []
    target.begin(prompt[:-1])
    if drafter is not None:
        drafter.begin(prompt)
    end = len(text) + n_new
    proposal = _NOTHING
    started = clock()
    while len(text) < end:
        began = clock()
        if drafter is not None:
            room = min(k, end - len(text) - 1)
            proposal = drafter.propose(text, room) if room else _NOTHING
        drafted = clock()
        if proposal.tokens:
            target.mark()
        marked = clock()
        rows = target.decode([text[-1], *proposal.tokens], len(proposal.tokens) + 1)
        verified = clock()
        emitted = how.judge(rows, proposal)
        judged = clock()
        before = len(text)
        text += emitted
        n_drafted, accepted = len(proposal.tokens), len(emitted) - 1
        if accepted < n_drafted:
            target.keep(len(text) - 1)
        if drafter is not None and n_drafted:
            drafter.settle(before + accepted)
        rolled_back_ns = clock() - judged + marked - drafted
        rounds.append(
            Round(
                n_drafted,
                accepted,
                len(emitted),
                drafted - began,
                verified - marked,
                rolled_back_ns,
            )
        )
        if slow_by:
            linger(began, slow_by)
    return Generation(text[len(prompt) :], clock() - started, rounds)


def probabilities(row: Logits, temperature: float) -> NDArray[np.float64]:
    """The distribution of logits at a temperature."""
    peak = row.max()
    require_sound(row, peak)
    powers = np.exp((row - peak).astype(np.float64) / temperature)
    result: NDArray[np.float64] = powers / powers.sum()
    return result
