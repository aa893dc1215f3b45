"""Replies to several users by mlx-lm's own batches, which requests join and leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from .engine import RefusalError
from .mlx_compat import refusing
from .mlx_lm_library import mlx_lm_generate

if TYPE_CHECKING:
    from numpy.typing import NDArray


def replies_in_batch(
    model: Any, asked: Sequence[tuple[Sequence[int], int]], users: int, n_batch: int
) -> tuple[list[list[int]], list[list[NDArray[np.float32]]]]:
    """The likeliest tokens after each prompt, as many as requested, and the rows behind them.

    A batch has so many users; the next request joins once another one has its reply.
    """
    tokens: list[list[int]] = [[] for _ in asked]
    rows: list[list[NDArray[np.float32]]] = [[] for _ in asked]
    with refusing("decode"):
        batch = mlx_lm_generate.BatchGenerator(
            model,
            completion_batch_size=users,
            prefill_batch_size=users,
            prefill_step_size=n_batch,
        )
        prompts, lengths = [list(prompt) for prompt, _ in asked], [n_new for _, n_new in asked]
        numbers = {uid: number for number, uid in enumerate(batch.insert(prompts, lengths))}
        # `next` has the steps of prompts too from 0.31 on.
        step = getattr(batch, "next_generated", batch.next)
        while responses := step():
            for response in responses:
                number = numbers[response.uid]
                tokens[number].append(int(response.token))
                rows[number].append(np.array(response.logprobs.astype(mx.float32)))
    if [*map(len, rows)] != lengths:
        found = [*map(len, rows)]
        raise RefusalError("decode", f"a batch gave {found} tokens instead of {lengths}")
    return tokens, rows
