"""A target and a draft in one worker: the parent's end of what can be asked of both together."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pytest_asperf.config.spec import NGRAM_DRAFT
from pytest_asperf.engine_process import MALFORMED
from pytest_asperf.measure.validity import require_unchanged
from pytest_asperf.worker.speculation import Generation, Round

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_asperf.config.spec import Pairing
    from pytest_asperf.engine_process import Worker
    from pytest_asperf.measure.model_locator import LocatedModel

#: What models and pairs are called inside the worker.
TARGET: Final = "target"
DRAFT: Final = "draft"
_PAIR: Final = "pair"
_DRAFT_ALONE: Final = "draft alone"

Parsed = TypeVar("Parsed")
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Times of single batches, each in a round's company, in ns.

    Attributes:
        target_ns: by positions in the batch, times of the target's batches.
        draft_ns: times of the draft's steps: the `first` of a round, or the `first_of_two` tokens
            after a round in which all was accepted, and each `next`; empty where it is no model.
        draft_alone: the draft generating by itself; nothing where it is no model.
    """

    target_ns: Mapping[int, tuple[int, ...]]
    draft_ns: Mapping[str, tuple[int, ...]]
    draft_alone: tuple[Generation, ...]

    def __add__(self, other: StepCosts) -> StepCosts:
        """Return all times of both."""
        return StepCosts(
            _joined(self.target_ns, other.target_ns),
            _joined(self.draft_ns, other.draft_ns),
            self.draft_alone + other.draft_alone,
        )


@dataclass(frozen=True, slots=True)
class Margin:
    """By how much two tokens fall short of the likeliest next one, in nats.

    Attributes:
        batched: of each arm's token, under logits of the batch that judged it.
        single: the same under logits of a single step.
    """

    batched: tuple[float, float]
    single: tuple[float, float]

    @property
    def largest(self) -> float:
        """The farthest that either token is from the likeliest, either way."""
        return max(*self.batched, *self.single)


def room_after_prompt(n_tokens: int, k_max: int) -> int:
    """Return how many positions after the longest prompt a pair's contexts need.

    A context holds what was decoded. After a prompt of P tokens and n generated ones that is:

    - the target's runs, with a draft or alone: P + n - 1. A round that begins with a text of L
      tokens feeds the last one and d drafted ones, d <= P + n - L - 1, so that positions up to
      L + d <= P + n - 1 are filled. The last token of the output is never fed.
    - the draft in a run: the text and all that it drafts but the last, L + d - 1 <= P + n - 2.
    - the draft by itself: P + n - 1, as the target alone.
    - single batches after half of the output: P + n // 2 + k_max + 1. The target's batch has up to
      k_max + 1 tokens; the draft catches up with 2 and drafts k - 1 more, which are as many.
    - a batch of a round that is repeated to compare logits: what the round had.

    What was accepted shortens nothing and lengthens nothing: rejected tokens are forgotten, and a
    replay from a checkpoint ends where the accepted ones did.

    Args:
        n_tokens: tokens generated, n.
        k_max: most tokens that a round or a timed batch has drafted.
    """
    return max(n_tokens - 1, n_tokens // 2 + k_max + 1)


class OpenPair:
    """A target and a draft, loaded and with contexts of their own.

    Args:
        worker: a worker with nothing loaded.
        pairing: what is to be measured.
        target: the target's file.
        draft: the draft's file, None for lookup.

    Attributes:
        loaded: facts of the loaded models, by `TARGET` and `DRAFT`.
        contexts: facts of their contexts, likewise; none before `open`.
    """

    def __init__(
        self, worker: Worker, pairing: Pairing, target: LocatedModel, draft: LocatedModel | None
    ) -> None:
        self._worker = worker
        self._pairing = pairing
        self._models = {TARGET: target} | ({DRAFT: draft} if draft else {})
        self._n_ctx = 0
        self._k_max = pairing.k
        self.loaded: dict[str, dict[str, Any]] = {}
        self.contexts: dict[str, dict[str, Any]] = {}
        self._load()

    def _load(self) -> None:
        for name, model in self._models.items():
            self.loaded[name] = self._worker.load(name, model.path, model.ref.spec.settings)
            require_unchanged(model)

    def open(self, n_ctx: int, k_max: int) -> None:
        """Open contexts.

        Args:
            n_ctx: tokens that each holds.
            k_max: most tokens that a round may draft.

        Raises:
            EngineRefusedError: of kind `rollback`, where one of them cannot be rolled back.
        """
        self._n_ctx, self._k_max = n_ctx, k_max
        draft = DRAFT if DRAFT in self._models else NGRAM_DRAFT
        asked: dict[str, Any] = {"n_ctx": n_ctx, "k": k_max, "rollback": self._pairing.rollback}
        facts = self._worker.call("pair_open", pair=_PAIR, target=TARGET, draft=draft, **asked)
        self.contexts = {name: dict(facts[name]) for name in self._models}
        if draft == DRAFT:
            alone: dict[str, Any] = {"n_ctx": n_ctx, "k": 1, "rollback": "auto"}
            self._worker.call(
                "pair_open", pair=_DRAFT_ALONE, target=DRAFT, draft=NGRAM_DRAFT, **alone
            )

    def reload(self) -> float:
        """Load everything anew, and return how long that took in seconds."""
        began = time.perf_counter()
        self._worker.call("pair_close", pair=_PAIR)
        if DRAFT in self._models:
            self._worker.call("pair_close", pair=_DRAFT_ALONE)
        for name in self._models:
            self._worker.unload(name)
        self._load()
        self.open(self._n_ctx, self._k_max)
        return time.perf_counter() - began

    def generate(self, prompt: Sequence[int], *, speculative: bool, seed: int) -> Generation:
        """Generate after a prompt, by the target alone or with the draft."""
        return self._generate(_PAIR, prompt, self._pairing.k if speculative else 0, seed)

    def _generate(self, pair: str, prompt: Sequence[int], k: int, seed: int) -> Generation:
        answer = self._worker.call(
            "pair_generate",
            pair=pair,
            prompt=list(prompt),
            n_new=self._pairing.n_tokens,
            k=k,
            temperature=self._pairing.temperature,
            seed=seed,
            rule="exact",
        )
        return self._parsed("pair_generate", lambda: _generation(answer, self._pairing.n_tokens))

    def costs(
        self,
        prompt: Sequence[int],
        output: Sequence[int],
        batches: Sequence[int],
    ) -> StepCosts:
        """Time the target's batches, and the draft's steps, in the middle of an output.

        Args:
            prompt: the tokens before.
            output: what was generated after them.
            batches: positions of each, in order; the first of them is a warm-up.
        """
        answer = self._worker.call(
            "pair_costs",
            pair=_PAIR,
            prompt=[*prompt, *output[: len(output) // 2]],
            batches=list(batches),
            k=self._pairing.k,
        )
        return self._parsed(
            "pair_costs",
            lambda: StepCosts(
                {int(size): tuple(map(int, ns)) for size, ns in answer["target_ns"]},
                {str(name): tuple(map(int, ns)) for name, ns in answer["draft_ns"].items()},
                (),
            ),
        )

    def draft_alone(self, prompt: Sequence[int]) -> StepCosts:
        """Time the draft generating by itself, as the target alone does; nothing for a lookup."""
        is_model = DRAFT in self._models
        return StepCosts({}, {}, (self._generate(_DRAFT_ALONE, prompt, 0, 0),) if is_model else ())

    def margin(
        self, text: Sequence[int], *, batch: int, behind: int, tokens: tuple[int, int]
    ) -> Margin:
        """Tell how near to a tie two choices of a next token are, from an emptied context.

        Args:
            text: the tokens before.
            batch: positions of the batch in which the next one was judged.
            behind: how many of them are behind the end of `text`.
            tokens: the choices.
        """
        answer = self._worker.call(
            "pair_margin",
            pair=_PAIR,
            text=list(text),
            batch=batch,
            behind=behind,
            tokens=list(tokens),
        )
        return self._parsed("pair_margin", lambda: _margin(answer))

    def places(self, prompt: Sequence[int], *, seeds: Sequence[int], rule: str) -> list[float]:
        """Sample with the draft, and place each token in the target's own distribution."""
        answer = self._worker.call(
            "pair_ranks",
            pair=_PAIR,
            prompt=list(prompt),
            n_new=self._pairing.n_tokens,
            k=self._pairing.k,
            temperature=self._pairing.temperature,
            seeds=list(seeds),
            rule=rule,
        )
        return self._parsed("pair_ranks", lambda: [float(place) for place in answer["places"]])

    def _parsed(self, op: str, parse: Callable[[], Parsed]) -> Parsed:
        try:
            return parse()
        except MALFORMED as err:
            raise self._worker.garbled(op, f"the answer is malformed: {err!r}") from err


def _generation(answer: Mapping[str, Any], n_tokens: int) -> Generation:
    rounds = [Round(*map(int, one)) for one in answer["rounds"]]
    done = Generation([int(t) for t in answer["tokens"]], int(answer["elapsed_ns"]), rounds)
    if len(done.tokens) != n_tokens or sum(one.emitted for one in rounds) != n_tokens:
        raise ValueError(f"{len(done.tokens)} tokens of {n_tokens}")
    if any(not 0 <= one.accepted <= one.drafted for one in rounds) or done.elapsed_ns <= 0:
        raise ValueError("impossible counts")
    return done


def _joined(
    some: Mapping[Key, tuple[int, ...]], more: Mapping[Key, tuple[int, ...]]
) -> dict[Key, tuple[int, ...]]:
    joined = dict(some)
    for key, times in more.items():
        joined[key] = (*joined.get(key, ()), *times)
    return joined


def _margin(answer: Mapping[str, Any]) -> Margin:
    (a, b), (c, d) = answer["batched"], answer["single"]
    return Margin((float(a), float(b)), (float(c), float(d)))
