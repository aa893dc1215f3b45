"""Replies by mlx-lm's own `generate_step`, with a cache that goes from prompt to prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from .mlx_compat import refusing
from .mlx_lm_library import mlx_lm_cache, mlx_lm_generate

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MlxConversation:
    """Answers prompts as mlx-lm's server does: a cache is cut to the next prompt's shared part."""

    def __init__(self, model: Any, new_cache: Callable[[], list[Any]], n_batch: int) -> None:
        self._model, self._new_cache, self._n_batch = model, new_cache, n_batch
        self.cache, self._held = new_cache(), list[int]()

    def reply(
        self, prompt: Sequence[int], n_new: int
    ) -> tuple[list[int], list[NDArray[np.float32]]]:
        """The likeliest tokens after a prompt, and the rows that they were chosen by."""
        tokens, rows = [], []
        with refusing("decode"), mlx_lm_generate.wired_limit(self._model):
            rest = mx.array(prompt[self._kept(prompt) :])
            steps = mlx_lm_generate.generate_step(
                rest,
                self._model,
                max_tokens=n_new,
                prompt_cache=self.cache,
                prefill_step_size=self._n_batch,
            )
            for token, row in steps:
                tokens.append(int(token))
                rows.append(np.array(row.astype(mx.float32)))
        self._held = [*prompt, *tokens]
        return tokens, rows

    def _kept(self, prompt: Sequence[int]) -> int:
        """Trim the cache to the tokens that a prompt begins with; gives their number."""
        # The last token has to be computed for its logits.
        both = zip(self._held, prompt[:-1], strict=False)
        kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
        excess = len(self._held) - kept
        if excess and not mlx_lm_cache.can_trim_prompt_cache(self.cache):
            self.cache, kept = self._new_cache(), 0
        elif excess:
            mlx_lm_cache.trim_prompt_cache(self.cache, excess)
        return kept
