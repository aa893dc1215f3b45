"""An MLX cache that can be stepped and rolled back.

Layers that cannot drop their end are copied as checkpoints; mlx-lm does not speculate with them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from .engine import Facts, RefusalError
from .logits import require_finite
from .mlx_cache import parts, trims
from .mlx_lm_library import mlx_lm_generate
from .rollback import RolledBackStepper, find_way_back

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MlxStepper(RolledBackStepper):
    """One sequence with a cache of its own.

    MLX evaluates on demand: all values of a call, and the cache, are evaluated before it returns.
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
        super().__init__(max_outputs, int(context["n_batch"]))
        self._model = model
        self._new_cache = new_cache
        self._n_ctx = int(context["n_ctx"])
        self.n_vocab = self.n_drafted = 0
        self._saved: dict[int, Any] = {}
        self._empty()
        self._held = ExitStack()
        self._held.enter_context(mlx_lm_generate.wired_limit(model))
        try:
            self.facts = context | find_way_back(self, self._memory(), rollback, self._use)
        except BaseException:
            self.close()
            raise

    def _empty(self) -> None:
        self._cache = self._new_cache()
        # Layers whose cache never drops its end, however full this context gets.
        self._fixed = [i for i, layer in enumerate(self._cache) if not trims(layer, self._n_ctx)]

    def _prefill(self, prompt: list[int]) -> None:
        super()._prefill(prompt)
        mx.clear_cache()

    def likeliest(self, tokens: list[int], n: int) -> list[int]:
        """Decode tokens, and go on with the likeliest next one until there are `n` of them.

        As in mlx-lm, each step is in flight while the next is prepared.
        """
        feed, chosen, peaks = mx.array([tokens]), [], []
        with self._decoding(len(tokens) + n - 1):
            for _ in range(n):
                row = self._model(feed, cache=self._cache)[0, -1]
                chosen.append(mx.argmax(row))
                peaks.append(mx.max(row))
                mx.async_eval(chosen[-1], peaks[-1], self._states())
                feed = chosen[-1][None, None]
            drafted = [int(token.item()) for token in chosen]
            mx.eval(self._states())
        for peak in peaks:
            require_finite(peak.item())
        self._text += [*tokens, *drafted[:-1]]
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
        """Reject a wrong size, turn MLX's errors into an engine error, and count the tokens."""
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

    def _save(self) -> None:
        # A copy shares its arrays' memory; a layer that later writes to them copies first.
        self._saved = {index: copy.deepcopy(self._cache[index]) for index in self._fixed}

    def _restore(self, mark: int) -> bool:
        self._marked = -1  # the saved layers are in use from now on
        return self._drop_tail(mark)

    def close(self) -> None:
        """Free the cache."""
        self._held.close()
        self._cache, self._saved = [], {}
        mx.clear_cache()

    def _drop_tail(self, n: int) -> bool:
        excess = self.n_past - n
        for index, layer in enumerate(self._cache):
            if self._has_checkpoints and index in self._saved:
                self._cache[index] = self._saved[index]
            elif index in self._fixed or layer.trim(excess) != excess:
                return False
        self.n_past = n
        self._check_position()
        return True

    def _check_position(self) -> None:
        for layer in parts(self._cache):
            end = getattr(layer, "offset", None)
            if isinstance(end, int) and end != self.n_past:
                raise RefusalError(
                    "position", f"the cache ends at position {end}, not {self.n_past}"
                )

    def _memory(self) -> str:
        if not self._fixed:
            return "attention only"
        fixed = [self._cache[index] for index in self._fixed]
        if all(hasattr(part, "offset") for part in parts(fixed)):
            return "a sliding window"
        has_attention = any(hasattr(part, "offset") for part in parts(self._cache))
        return "hybrid" if has_attention else "recurrent"
