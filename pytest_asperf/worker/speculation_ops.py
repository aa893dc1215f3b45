"""The operations on a target and a draft together: the wire's operations on a pair."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, cast

import numpy as np

from .engine import Facts, LoadedModel, RefusalError, Stepper
from .speculation import (
    AcceptanceRule,
    Choice,
    Drafter,
    Greedy,
    ModelDrafter,
    NgramDrafter,
    Sampled,
    generate,
    probabilities,
)

Reply = dict[str, Any]

#: llama.cpp, common/speculative.cpp, SPEC_VOCAB_MAX_SIZE_DIFFERENCE.
_MOST_PADDING: Final = 128
#: The draft that is no model.
NGRAM: Final = "ngram"


@dataclass(frozen=True, slots=True)
class _Pair:
    """A target and a draft, each in a context of its own; no draft model for lookup.

    `slow_by` is the share by which each round is slower.
    """

    target: Stepper
    draft: Stepper | None
    slow_by: float = 0.0

    def drafter(self, how: Choice) -> Drafter:
        return NgramDrafter() if self.draft is None else ModelDrafter(self.draft, how)

    def close(self) -> None:
        self.target.close()
        if self.draft is not None:
            self.draft.close()


class Pairs:
    """The open pairs of a worker, of models that `find` gives by name."""

    def __init__(self, find: Callable[[str], LoadedModel]) -> None:
        self._find = find
        self._open: dict[str, _Pair] = {}

    @property
    def operations(self) -> dict[str, Callable[..., Reply]]:
        """The operations, by the names that the wire has for them."""
        return {
            "pair_open": self.open,
            "pair_close": self.close,
            "pair_generate": self.generate,
            "pair_costs": self.costs,
            "pair_margin": self.margin,
            "pair_ranks": self.ranks,
        }

    def open(
        self, *, pair: str, target: str, draft: str, n_ctx: int, k: int, rollback: str
    ) -> Reply:
        """Open contexts for a target and a draft, `ngram` for lookup, that can be rolled back."""
        stepper = self._stepper(target, n_ctx, k, rollback)
        facts: Facts = {"target": stepper.facts, "draft": None}
        second = None
        try:
            if draft != NGRAM:
                second = self._stepper(draft, n_ctx, k, rollback)
                facts["draft"] = second.facts
                if abs(second.n_vocab - stepper.n_vocab) > _MOST_PADDING:
                    raise RefusalError(
                        "vocabulary",
                        f"the draft has {second.n_vocab} tokens, the target {stepper.n_vocab}",
                    )
                second.n_drafted = min(second.n_vocab, stepper.n_vocab)
        except BaseException:
            _Pair(stepper, second).close()
            raise
        slow_by = self._find(target).facts.get("slow_by") or 0.0
        self._open[pair] = _Pair(stepper, second, slow_by)
        return facts

    def close(self, pair: str) -> Reply:
        """Free a pair's contexts."""
        self._pair(pair).close()
        del self._open[pair]
        return {}

    def clear(self) -> None:
        """Free the contexts of all pairs."""
        for pair in [*self._open]:
            self.close(pair)

    def generate(
        self,
        *,
        pair: str,
        prompt: list[int],
        n_new: int,
        k: int,
        temperature: float,
        seed: int,
        rule: str,
    ) -> Reply:
        """Generate with a draft of k tokens a round, or with k = 0 by the target alone."""
        models = self._pair(pair)
        how = _choice(temperature, seed, rule)
        drafter = models.drafter(how) if k else None
        slow_by = models.slow_by
        done = generate(models.target, drafter, prompt, n_new=n_new, k=k, how=how, slow_by=slow_by)
        return {
            "tokens": done.tokens,
            "elapsed_ns": done.elapsed_ns,
            "rounds": [list(astuple(round_)) for round_ in done.rounds],
        }

    def costs(self, *, pair: str, prompt: list[int], batches: list[int], k: int) -> Reply:
        """Time the target's batches, and the draft's steps, after a prompt.

        Each batch is followed by k steps of the draft, as in a round: either model finds the
        caches as the other left them. The draft's first batch has two tokens every other time, as
        after a round in which all was accepted. Batches run in the given order, because an engine
        may prepare for a batch of another size than the last; the first of them is not timed.
        """
        models = self._pair(pair)
        target_ns: dict[int, list[int]] = {size: [] for size in batches}
        draft_ns: dict[str, list[int]] = {"first": [], "first_of_two": [], "next": []}
        for index, size in enumerate(batches):
            models.target.begin(prompt)
            batch_ns = _time_batch(models.target, prompt, size)
            step_ns = self._draft_steps(models.draft, prompt, 1 + index % 2, k)
            if index:
                target_ns[size].append(batch_ns)
                for name, times in step_ns.items():
                    draft_ns[name] += times
        return {"target_ns": list(map(list, target_ns.items())), "draft_ns": draft_ns}

    def _draft_steps(
        self, draft: Stepper | None, prompt: list[int], first: int, k: int
    ) -> dict[str, list[int]]:
        if draft is None:
            return {}
        draft.begin(prompt)
        began = time.perf_counter_ns()
        token = draft.likeliest(_filler(prompt, first), 1)
        first_ns = time.perf_counter_ns()
        if k > 1:
            draft.likeliest(token, k - 1)
        # An engine may have one step in flight while it prepares the next: timed together.
        each_ns = (time.perf_counter_ns() - first_ns) // max(1, k - 1)
        name = "first_of_two" if first == 2 else "first"
        return {name: [first_ns - began], "next": [each_ns] * (k - 1)}

    def margin(
        self, *, pair: str, text: list[int], batch: int, behind: int, tokens: list[int]
    ) -> Reply:
        """By how much tokens fall short of the likeliest next one, batched and singly.

        The next token was judged in a batch of `batch` positions, `behind` of them behind the last
        token of `text`. The target scores it in an emptied context.
        """
        target = self._pair(pair).target
        inside = batch - behind
        target.begin(text[:-inside], fresh=True)
        rows = target.decode([*text[-inside:], *[text[-1]] * behind], batch)
        batched = _shortfall(rows[inside - 1], tokens)
        target.begin(text[:-1], fresh=True)
        single = _shortfall(target.decode([text[-1]], 1)[0], tokens)
        return {"batched": batched, "single": single}

    def ranks(
        self,
        *,
        pair: str,
        prompt: list[int],
        n_new: int,
        k: int,
        temperature: float,
        seeds: list[int],
        rule: str,
    ) -> Reply:
        """Sample with speculation, and place each token in the target's own distribution.

        A token's place is the probability of all tokens that the draft favours more than the target
        does by more than it favours this token, plus a random part of the token's own. Independent
        of the earlier samples, places of the target's distribution are uniform on 0 … 1
        (Rosenblatt, Ann. Math. Statist. 23, 1952), and a rule that keeps too many of the draft's
        tokens is seen.
        """
        models = self._pair(pair)
        places: list[float] = []
        for seed in seeds:
            how = _choice(temperature, seed, rule)
            done = generate(models.target, models.drafter(how), prompt, n_new=n_new, k=k, how=how)
            ties = np.random.default_rng([seed, 1])
            rows = [
                _all_rows(stepper, prompt, done.tokens, temperature)
                for stepper in (models.target, models.draft)
                if stepper is not None
            ]
            for index, token in enumerate(done.tokens):
                odds = rows[0][index]
                favour = odds
                if len(rows) > 1:
                    drafted = rows[1][index]
                    favour = np.zeros_like(odds)  # of padding that the draft lacks
                    favour[: len(drafted)] = drafted / np.maximum(odds[: len(drafted)], 1e-300)
                more = favour > favour[token]
                equal = favour == favour[token]
                places.append(float(odds[more].sum() + ties.random() * odds[equal].sum()))
        return {"places": places}

    def _stepper(self, name: str, n_ctx: int, k: int, rollback: str) -> Stepper:
        return self._find(name).stepper(n_ctx, k + 1, rollback)

    def _pair(self, name: str) -> _Pair:
        try:
            return self._open[name]
        except KeyError:
            raise RefusalError("pair", f"no pair {name!r} is open") from None


def _choice(temperature: float, seed: int, rule: str) -> Choice:
    if not temperature:
        return Greedy()
    return Sampled(temperature, seed, cast("AcceptanceRule", rule))


def _time_batch(stepper: Stepper, prompt: Sequence[int], size: int) -> int:
    tokens = _filler(prompt, size)
    began = time.perf_counter_ns()
    stepper.decode(tokens, size)
    return time.perf_counter_ns() - began


def _filler(prompt: Sequence[int], size: int) -> list[int]:
    return [prompt[-1 - i % len(prompt)] for i in range(size)]


def _shortfall(row: Any, tokens: Sequence[int]) -> list[float]:
    peak = float(row.max())
    return [peak - float(row[token]) for token in tokens]


def _all_rows(
    stepper: Stepper, prompt: Sequence[int], tokens: Sequence[int], temperature: float
) -> list[Any]:
    """The distribution at each position of an output, from batches in a kept context."""
    stepper.begin(prompt[:-1])
    feed = [prompt[-1], *tokens[:-1]]
    rows: list[Any] = []
    for start in range(0, len(feed), stepper.max_outputs):
        part = feed[start : start + stepper.max_outputs]
        decoded = stepper.decode(part, len(part))[:, : stepper.n_drafted or None]
        rows += [probabilities(row, temperature) for row in decoded]
    return rows
