"""An MLX cache that can be stepped and rolled back.

A cache of K and V can drop its tail. A recurrent state cannot, nor can a window that has slid: such
layers are copied before tokens that may be rejected, restored, and the accepted tokens are decoded
again. mlx-lm itself refuses to speculate on them.
"""

from __future__ import annotations

import copy
import math
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from mlx_lm.generate import wired_limit

from .engine import Facts, RefusalError
from .logits import require_finite
from .rollback import find_way_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray


class MlxStepper:
    """One sequence with a cache of its own.

    MLX evaluates when it is asked to: all that a call computes is evaluated before it returns, the
    cache with it.

    Args:
        model: the model.
        context: facts of the context.
        new_cache: makes an empty cache of the model's.
        max_outputs: positions of the largest batch whose logits are asked for.
        rollback: `auto`, or `trim` or `checkpoint` to insist on one way.

    Attributes:
        facts: what the context resolved to, and how it is rolled back.
        n_vocab: tokens of the vocabulary.
        n_past: tokens in the cache.
        max_outputs: positions of the largest batch whose logits are asked for.

    Raises:
        RefusalError: it cannot be rolled back.
    """

    def __init__(
        self,
        model: Any,
        context: Facts,
        new_cache: Callable[[], list[Any]],
        *,
        max_outputs: int,
        rollback: str,
    ) -> None:
        self._model = model
        self._new_cache = new_cache
        self._n_ctx = int(context["n_ctx"])
        self._n_batch = int(context["n_batch"])
        self.max_outputs = max_outputs
        self.n_vocab = 0
        self._checkpoints = False
        self._saved: dict[int, Any] = {}
        self._marked, self._since = -1, list[int]()
        self._start([])
        self._held = ExitStack()
        self._held.enter_context(wired_limit(model))
        try:
            self.facts = context | find_way_back(self, self._memory(), rollback, self._use)
        except BaseException:
            self.close()
            raise

    def _start(self, prompt: list[int]) -> None:
        self._cache = self._new_cache()
        self._prompt, self.n_past = prompt, 0
        # Layers whose cache does not forget its tail, however full this context gets.
        self._fixed = [i for i, layer in enumerate(self._cache) if not _trims(layer, self._n_ctx)]

    def begin(self, tokens: Sequence[int], *, fresh: bool = False) -> None:
        """Have exactly these tokens in the cache.

        Args:
            tokens: the text.
            fresh: start with an empty cache, even where its head is this text already.
        """
        prompt = list(tokens)
        self._marked = -1
        if not (fresh or self._checkpoints) and self._prompt == prompt:
            self.keep(len(prompt))
            return
        self._start(prompt)
        for start in range(0, len(prompt), self._n_batch):
            self._decode(prompt[start : start + self._n_batch], 0)
        mx.clear_cache()

    def decode(self, tokens: list[int], n_outputs: int) -> NDArray[np.float32]:
        """Decode tokens in one batch; return logits after each of the last `n_outputs`."""
        self._since += tokens
        return self._decode(tokens, n_outputs)

    def likeliest(self, tokens: list[int], n: int) -> list[int]:
        """Decode tokens, and go on with the likeliest next one until there are `n` of them.

        As in mlx-lm, each step is in flight while the next is prepared.
        """
        feed, found, peaks = mx.array([tokens]), [], []
        with self._decoding(len(tokens) + n - 1):
            for _ in range(n):
                row = self._model(feed, cache=self._cache)[0, -1]
                found.append(mx.argmax(row))
                peaks.append(mx.max(row))
                mx.async_eval(found[-1], peaks[-1], self._states())
                feed = found[-1][None, None]
            drafted = [int(token.item()) for token in found]
            mx.eval(self._states())
        for peak in peaks:
            require_finite(peak.item())
        self._since += [*tokens, *drafted[:-1]]
        return drafted

    def _decode(self, tokens: list[int], n_outputs: int) -> NDArray[np.float32]:
        with self._decoding(len(tokens)):
            logits = self._model(mx.array([tokens]), cache=self._cache)
            if not n_outputs:
                mx.eval([layer.state for layer in self._cache])
                return np.empty((0, self.n_vocab), np.float32)
            rows = logits[0, len(tokens) - n_outputs :].astype(mx.float32)
            mx.eval(rows, self._states())
        self.n_vocab = rows.shape[-1]
        return np.array(rows, copy=False)

    def _states(self) -> list[Any]:
        """State that a step changes and its logits do not need, unlike K and V."""
        return [self._cache[index].state for index in self._fixed]

    @contextmanager
    def _decoding(self, n_tokens: int) -> Iterator[None]:
        """Refuse what does not fit, turn what MLX raises into a refusal, and count the tokens."""
        if self.n_past + n_tokens > self._n_ctx:
            raise RefusalError(
                "decode", f"{n_tokens} tokens from position {self.n_past} exceed {self._n_ctx}"
            )
        try:
            yield
        except (RuntimeError, ValueError, TypeError) as err:
            raise RefusalError("decode", f"{type(err).__name__}: {err}"[:600]) from err
        self.n_past += n_tokens
        self._check_position()

    def mark(self) -> None:
        """Prepare for forgetting what is decoded from now on, where that needs preparing."""
        if not self._checkpoints:
            return
        # A copy shares its arrays' memory; a layer that later writes to them copies first.
        self._saved = {index: copy.deepcopy(self._cache[index]) for index in self._fixed}
        self._marked, self._since = self.n_past, []

    def keep(self, n: int) -> None:
        """Forget all but the first `n` tokens; not fewer than at the mark."""
        if n == self.n_past:
            return
        if not self._checkpoints:
            self._forget(n)
            return
        if not 0 <= self._marked <= n:
            raise RefusalError("rollback", f"no checkpoint before token {n}")
        self._forget(self._marked)
        replay = self._since[: n - self._marked]
        self._marked = -1
        if replay:
            self._decode(replay, 0)

    def close(self) -> None:
        """Free the cache."""
        self._held.close()
        self._cache, self._saved = [], {}
        mx.clear_cache()

    def _forget(self, n: int) -> None:
        excess = self.n_past - n
        for index, layer in enumerate(self._cache):
            if self._checkpoints and index in self._saved:
                self._cache[index] = self._saved[index]
            elif index in self._fixed or layer.trim(excess) != excess:
                raise RefusalError("rollback", f"the cache refused to forget from token {n} on")
        self.n_past = n
        self._check_position()

    def _check_position(self) -> None:
        for layer in _parts(self._cache):
            found = getattr(layer, "offset", None)
            if isinstance(found, int) and found != self.n_past:
                raise RefusalError(
                    "position", f"the cache ends at position {found}, not {self.n_past}"
                )

    def _use(self, way: str) -> None:
        self._checkpoints = way == "checkpoint"

    def _memory(self) -> str:
        if not self._fixed:
            return "attention only"
        fixed = [self._cache[index] for index in self._fixed]
        if all(hasattr(part, "offset") for part in _parts(fixed)):
            return "a sliding window"
        has_attention = any(hasattr(part, "offset") for part in _parts(self._cache))
        return "hybrid" if has_attention else "recurrent"


def _trims(layer: Any, n_ctx: int) -> bool:
    """Tell whether a layer's empty cache forgets its tail, up to so many tokens."""
    sizes = [getattr(part, "max_size", None) for part in _parts([layer])]
    smallest = min((size for size in sizes if size is not None), default=math.inf)
    return bool(layer.is_trimmable()) and smallest > n_ctx


def _parts(layers: Sequence[Any]) -> Iterator[Any]:
    """Yield the caches of layers, of which some have several."""
    for layer in layers:
        inner = getattr(layer, "caches", None)
        if inner is None:
            yield layer
        else:
            yield from _parts(inner)
