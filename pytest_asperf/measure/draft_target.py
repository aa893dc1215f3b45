"""A target and a draft in one worker: the parent's end of what can be asked of both together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pytest_asperf.engine_process import StepCosts, WorkerPair
from pytest_asperf.measure.validity import require_unchanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.config.spec import Pairing
    from pytest_asperf.engine_process import ContextFacts, LoadedFacts, Margin, Worker
    from pytest_asperf.engine_process.facts import RemoteFacts
    from pytest_asperf.measure.model_locator import LocatedModel
    from pytest_asperf.worker.speculation import Generation

#: What the models are called inside the worker.
TARGET: Final = "target"
DRAFT: Final = "draft"


def room_after_prompt(n_tokens: int, k_max: int) -> int:
    """Positions after the longest prompt that a pair's contexts need.

    A context holds what was decoded. After a prompt of P tokens and n generated ones that is:

    - the target's runs, with a draft or alone: P + n - 1. A round that begins with a text of L
      tokens feeds the last one and d drafted ones, d <= P + n - L - 1, so that positions up to
      L + d <= P + n - 1 are filled. The last token of the output is never fed.
    - the draft in a run: the text and all that it drafts but the last, L + d - 1 <= P + n - 2.
    - the draft by itself: P + n - 1, as the target alone.
    - single batches after half of the output: P + n // 2 + k_max + 1. The target's batch has up to
      k_max + 1 tokens; the draft catches up with 2 and drafts k - 1 more, which are as many.
    - a batch of a round that is repeated to compare logits: what the round had.

    What was accepted shortens nothing and lengthens nothing: rejected tokens are dropped, and a
    replay from a checkpoint ends where the accepted ones did.
    """
    return max(n_tokens - 1, n_tokens // 2 + k_max + 1)


class OpenPair:
    """A target and a draft (none for lookup), loaded and with contexts of their own.

    Facts of the models (`loaded`) and of their contexts are by `TARGET` and `DRAFT`.
    """

    def __init__(
        self, worker: Worker, pairing: Pairing, target: LocatedModel, draft: LocatedModel | None
    ) -> None:
        self._worker = worker
        self._pairing = pairing
        self._models = {TARGET: target} | ({DRAFT: draft} if draft else {})
        self._pair = WorkerPair(worker, "pair", TARGET, DRAFT if draft else None)
        self._draft_alone = WorkerPair(worker, "draft alone", DRAFT, None) if draft else None
        self._n_ctx = 0
        self._k_max = pairing.k
        self.loaded: dict[str, LoadedFacts] = {}
        self.contexts: dict[str, ContextFacts] = {}
        self._load()

    def _load(self) -> None:
        for name, model in self._models.items():
            self.loaded[name] = self._worker.load(name, model.path, model.ref.spec.settings)
            require_unchanged(model)

    def open(self, n_ctx: int, k_max: int) -> None:
        """Open contexts of `n_ctx` tokens in which a round may draft `k_max`.

        An EngineRefusedError of kind `rollback` says that one of them cannot be rolled back.
        """
        self._n_ctx, self._k_max = n_ctx, k_max
        self.contexts = self._pair.open(n_ctx, k_max, self._pairing.rollback)
        if self._draft_alone:
            self._draft_alone.open(n_ctx, 1, "auto")

    def reload(self) -> float:
        """Load both models again; the seconds that took."""
        began = time.perf_counter()
        self._free()
        self._load()
        self.open(self._n_ctx, self._k_max)
        return time.perf_counter() - began

    def _free(self) -> dict[str, RemoteFacts | None]:
        self._pair.close()
        if self._draft_alone:
            self._draft_alone.close()
        return {name: self._worker.unload(name) for name in self._models}

    def end(self) -> None:
        """Free what another machine computed, and note how fast the link to it was at the end."""
        if not any(facts.remote for facts in self.loaded.values()):
            return
        for name, after in self._free().items():
            self.loaded[name] = self.loaded[name].with_link_after(after)

    def generate(
        self, prompt: Sequence[int], *, speculative: bool, seed: int, n_tokens: int | None = None
    ) -> Generation:
        """Generate after a prompt, by the target alone or with the draft; fewer tokens if named."""
        return self._pair.generate(
            prompt,
            n_new=n_tokens or self._pairing.n_tokens,
            k=self._pairing.k if speculative else 0,
            temperature=self._pairing.temperature,
            seed=seed,
        )

    def costs(
        self, prompt: Sequence[int], output: Sequence[int], batches: Sequence[int]
    ) -> StepCosts:
        """Time the target's batches, and the draft's steps, in the middle of an output.

        The first of the batches, which are given by their positions, is a warm-up.
        """
        text = (*prompt, *output[: len(output) // 2])
        return self._pair.costs(text, batches, self._pairing.k)

    def draft_alone(self, prompt: Sequence[int]) -> StepCosts:
        """Time the draft generating by itself, as the target alone does; nothing for a lookup."""
        if self._draft_alone is None:
            return StepCosts({}, {})
        n_new, temperature = self._pairing.n_tokens, self._pairing.temperature
        run = self._draft_alone.generate(prompt, n_new=n_new, k=0, temperature=temperature, seed=0)
        return StepCosts({}, {}, (run,))

    def margin(
        self, text: Sequence[int], *, batch: int, behind: int, tokens: tuple[int, int]
    ) -> Margin:
        """How near to a tie two choices of a next token are; see `WorkerPair.margin`."""
        return self._pair.margin(text, batch=batch, behind=behind, tokens=tokens)

    def places(self, prompt: Sequence[int], *, seeds: Sequence[int], rule: str) -> list[float]:
        """Sample with the draft, and place each token in the target's own distribution."""
        return self._pair.places(
            prompt,
            n_new=self._pairing.n_tokens,
            k=self._pairing.k,
            temperature=self._pairing.temperature,
            seeds=seeds,
            rule=rule,
        )
