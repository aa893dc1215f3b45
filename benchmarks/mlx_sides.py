"""mlx-lm's loops and asperf's, in one process, on the same weights.

A process keeps its memory's place for good, and MLX on a CPU passes every operation from one thread
to another: of two processes that run the same code, one was 1.2 times slower than the other for
their whole life.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import mlx.core as mx
from mlx_lm import stream_generate
from mlx_lm.perplexity import eval_ppl
from mlx_lm.utils import load_tokenizer

from pytest_asperf.measure.ladder import PPL_N_CTX, split_chunks
from pytest_asperf.modelfiles.hub_cache import shipped_corpus, shipped_models
from pytest_asperf.worker.main import Server
from pytest_asperf.worker.mlx_engine import MlxEngine

if TYPE_CHECKING:
    from collections.abc import Sequence

MODEL: Final = "model"
DRAFT: Final = "draft"


@dataclass(frozen=True, slots=True)
class Speculated:
    """The output of mlx-lm with a draft.

    Attributes:
        tokens: all of them.
        from_draft: how many of them the draft wrote.
        counted: tokens after the first round, which hides in the time of the prompt.
        elapsed_ns: their time.
    """

    tokens: list[int]
    from_draft: int
    counted: int
    elapsed_ns: int


class Sides:
    """The worker's operations, and mlx-lm's loops, on the shipped target and draft.

    Attributes:
        tokens: of the corpus.
        chunks: its first chunks, BOS first in each.
    """

    def __init__(self, n_chunks: int = 2) -> None:
        folders = {spec.name.removeprefix("asperf-"): spec.hf_folder for spec in shipped_models()}
        folder = folders["target"]
        if folder is None:
            raise ValueError("the shipped target has no folder")
        engine = MlxEngine()
        self._server = Server(engine)
        self._models: dict[str, Any] = {
            name: engine.load(str(folders[place]), {})
            for name, place in ((MODEL, "target"), (DRAFT, "draft"))
        }
        self._server._models.update(self._models)  # both use these very ones
        self._tokenizer = load_tokenizer(folder)
        self._tokenizer._eos_token_ids = {}  # as mlx_lm.benchmark goes on to the end
        text = shipped_corpus().read_text("utf-8")
        self.tokens: Sequence[int] = self.ours("tokenize", model=MODEL, text=text)["tokens"]
        parts = split_chunks(self.tokens, n_ctx=PPL_N_CTX, at_most=n_chunks, corpus="shipped")
        self.chunks = [[self.tokens[0], *part[1:]] for part in parts]

    def ours(self, op: str, **args: Any) -> dict[str, Any]:
        """Return the worker's reply."""
        reply = self._server.answer({"op": op, "args": args})
        if not reply["ok"]:
            raise ValueError(reply["message"])
        result: dict[str, Any] = reply["result"]
        return result

    def generate(self, n_prompt: int, n_tokens: int) -> list[float]:
        """Run `stream_generate` as mlx_lm.benchmark does.

        Returns:
            Nanoseconds to the first token, and of those after it.
        """
        last = None
        for response in self._stream(n_prompt, n_tokens):
            last = response
        if last is None or last.generation_tokens != n_tokens:
            raise ValueError("mlx-lm generated something else than was asked")
        # Its rate counts n tokens over the n - 1 intervals behind the first.
        after_ns = 1e9 * n_tokens / last.generation_tps
        return [1e9 * last.prompt_tokens / last.prompt_tps, after_ns]

    def speculate(self, n_prompt: int, n_tokens: int, k: int) -> Speculated:
        """Run `stream_generate` with the draft."""
        tokens, from_draft, began_ns, first_round = [], 0, 0, 0
        how = {"draft_model": self._weights(DRAFT), "num_draft_tokens": k}
        for response in self._stream(n_prompt, n_tokens, **how):
            tokens.append(int(response.token))
            from_draft += response.from_draft
            # A round's tokens come together, once it is verified.
            began_ns = began_ns or time.perf_counter_ns()
            if not first_round and not response.from_draft:
                first_round = len(tokens)
        elapsed_ns = time.perf_counter_ns() - began_ns
        return Speculated(tokens, from_draft, n_tokens - first_round, elapsed_ns)

    def ppl(self) -> float:
        """Run mlx_lm.perplexity's `eval_ppl` on the chunks."""
        ppl: float = eval_ppl(self._weights(MODEL), mx.array(self.chunks), batch_size=1)[0]
        return ppl

    def _stream(self, n_prompt: int, n_tokens: int, **how: Any) -> Any:
        prompt = list(self.tokens[:n_prompt])
        model = self._weights(MODEL)
        return stream_generate(model, self._tokenizer, prompt, max_tokens=n_tokens, **how)

    def _weights(self, name: str) -> Any:
        loaded: Any = self._models[name]
        return loaded._model
