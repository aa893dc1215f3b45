"""A target and a draft in one worker: the operations that need both, typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pytest_asperf.config.spec import NGRAM_DRAFT
from pytest_asperf.engine_process.facts import ContextFacts, present
from pytest_asperf.engine_process.worker import Worker
from pytest_asperf.worker.speculation import Generation, Round

Parsed = TypeVar("Parsed")
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Times of single batches, timed among the rounds that they explain, in ns."""

    #: by positions in the batch, times of the target's batches
    target_ns: Mapping[int, tuple[int, ...]]
    #: times of the draft's steps: the `first` of a round, or the `first_of_two` tokens after a
    #: round in which all was accepted, and each `next`; empty if it is no model
    draft_ns: Mapping[str, tuple[int, ...]]
    #: the draft generating by itself; nothing if it is no model
    draft_alone: tuple[Generation, ...] = ()

    def __add__(self, other: StepCosts) -> StepCosts:
        return StepCosts(
            _joined(self.target_ns, other.target_ns),
            _joined(self.draft_ns, other.draft_ns),
            self.draft_alone + other.draft_alone,
        )


@dataclass(frozen=True, slots=True)
class Margin:
    """By how much two tokens fall short of the likeliest next one, in nats."""

    #: for each token, the value under logits of the batch that judged it
    batched: tuple[float, float]
    single: tuple[float, float]  #: the same under logits of a single step

    @property
    def largest(self) -> float:
        """The farthest that either token is from the likeliest, either way."""
        return max(*self.batched, *self.single)


@dataclass(frozen=True, slots=True)
class WorkerPair:
    """Contexts of a target and a draft, which speculate together."""

    worker: Worker
    name: str  #: the pair's own name in the worker
    #: target, draft: names of loaded models; no draft for lookup in the text
    target: str
    draft: str | None

    def open(self, n_ctx: int, k: int, rollback: str) -> dict[str, ContextFacts]:
        """Open contexts for `n_ctx` tokens; their resolved settings, by the name of the model.

        A rollback of `auto` is any that works; one that does not work raises.
        """
        models = {"target": self.target} | ({"draft": self.draft} if self.draft else {})
        arguments = {"n_ctx": n_ctx, "k": k, "rollback": rollback}
        return self._ask(
            "pair_open",
            lambda answer: {
                name: ContextFacts.parse(answer[role]) for role, name in models.items()
            },
            target=self.target,
            draft=self.draft or NGRAM_DRAFT,
            **arguments,
        )

    def close(self) -> None:
        """Free the contexts."""
        self.worker.call("pair_close", pair=self.name)

    def generate(
        self, prompt: Sequence[int], *, n_new: int, k: int, temperature: float, seed: int
    ) -> Generation:
        """Generate after a prompt with k drafted tokens a round; the target alone at 0."""
        return self._ask(
            "pair_generate",
            lambda answer: _generation(answer, n_new),
            prompt=list(prompt),
            n_new=n_new,
            k=k,
            temperature=temperature,
            seed=seed,
            rule="exact",
        )

    def costs(self, text: Sequence[int], batches: Sequence[int], k: int) -> StepCosts:
        """Time the target's batches, of which the first is a warm-up, and the draft's steps."""
        return self._ask("pair_costs", _step_costs, prompt=list(text), batches=list(batches), k=k)

    def margin(
        self, text: Sequence[int], *, batch: int, behind: int, tokens: tuple[int, int]
    ) -> Margin:
        """How near to a tie two choices of the token after a text are, from an emptied context.

        The batch in which it was judged has `batch` positions, `behind` of them after the text.
        """
        arguments = {"batch": batch, "behind": behind}
        return self._ask("pair_margin", _margin, text=list(text), tokens=list(tokens), **arguments)

    def places(
        self,
        prompt: Sequence[int],
        *,
        n_new: int,
        k: int,
        temperature: float,
        seeds: Sequence[int],
        rule: str,
    ) -> list[float]:
        """Sample with the draft, and place each token in the target's own distribution."""
        return self._ask(
            "pair_ranks",
            lambda answer: [float(place) for place in answer["places"]],
            prompt=list(prompt),
            n_new=n_new,
            k=k,
            temperature=temperature,
            seeds=list(seeds),
            rule=rule,
        )

    def _ask(self, op: str, parse: Callable[[Mapping[str, Any]], Parsed], **args: Any) -> Parsed:
        return self.worker.asked(op, parse, pair=self.name, **args)


def served_generation(
    worker: Worker, name: str, prompt: Sequence[int], n_new: int
) -> tuple[Generation, tuple[int, ...], ContextFacts]:
    """The greedy reply of a server that drafts by itself, as one round, and the context.

    In between, the gaps between tokens of such a reply as they came; empty if it was not streamed.
    """

    def parse(answer: Mapping[str, Any]) -> tuple[Generation, tuple[int, ...], ContextFacts]:
        context = worker.context(name, present(answer, "context"))
        return _generation(answer, n_new), tuple(map(int, answer["gaps_ns"])), context

    return worker.asked("run_drafted", parse, model=name, prompt=list(prompt), n_new=n_new)


def likeliest_tokens(
    worker: Worker, name: str, prompt: Sequence[int], reply: Sequence[int]
) -> tuple[list[int], list[float]]:
    """The likeliest token instead of each one of a server's reply, and by how many nats."""

    def parse(answer: Mapping[str, Any]) -> tuple[list[int], list[float]]:
        tokens, gaps = list(map(int, answer["tokens"])), list(map(float, answer["gaps"]))
        if not len(tokens) == len(gaps) == len(reply) or min(gaps, default=0) < 0:
            raise ValueError(f"there are not the gaps of {len(reply)} tokens")
        return tokens, gaps

    asked = {"model": name, "prompt": list(prompt), "reply": list(reply)}
    return worker.asked("run_likeliest", parse, **asked)


def _step_costs(answer: Mapping[str, Any]) -> StepCosts:
    return StepCosts(
        {int(size): tuple(map(int, ns)) for size, ns in answer["target_ns"]},
        {str(name): tuple(map(int, ns)) for name, ns in answer["draft_ns"].items()},
    )


def _generation(answer: Mapping[str, Any], n_tokens: int) -> Generation:
    rounds = [Round(*map(int, row)) for row in answer["rounds"]]
    done = Generation([int(token) for token in answer["tokens"]], int(answer["elapsed_ns"]), rounds)
    if len(done.tokens) != n_tokens or sum(row.emitted for row in rounds) != n_tokens:
        raise ValueError(f"{len(done.tokens)} tokens of {n_tokens}")
    if any(not 0 <= row.accepted <= row.drafted for row in rounds) or done.elapsed_ns <= 0:
        raise ValueError("impossible counts")
    return done


def _margin(answer: Mapping[str, Any]) -> Margin:
    (a, b), (c, d) = answer["batched"], answer["single"]
    return Margin((float(a), float(b)), (float(c), float(d)))


def _joined(
    some: Mapping[Key, tuple[int, ...]], more: Mapping[Key, tuple[int, ...]]
) -> dict[Key, tuple[int, ...]]:
    joined = dict(some)
    for key, times in more.items():
        joined[key] = (*joined.get(key, ()), *times)
    return joined
