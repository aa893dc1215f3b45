"""Text that a model writes itself, in batches of rows of one length."""

from __future__ import annotations

import torch
from model import Cache, Llama
from torch import Tensor


def choose(logits: Tensor, temperature: Tensor, rng: torch.Generator) -> Tensor:
    """[batch, vocab] logits to [batch] ids: sampled at each row's temperature, 0 being greedy."""
    noise = torch.empty_like(logits).exponential_(generator=rng).log_()
    return (logits - temperature[:, None] * noise).argmax(dim=-1)


def continue_rows(
    model: Llama, prompts: Tensor, new: int, temperature: Tensor, rng: torch.Generator
) -> Tensor:
    """[batch, prompt] ids to [batch, prompt + new]."""
    half = torch.bfloat16 if prompts.is_cuda else torch.float32
    like = torch.empty(0, dtype=half, device=prompts.device)
    cache = Cache(model.shape, len(prompts), prompts.shape[1] + new, like)
    rows, step = [prompts], prompts
    with torch.no_grad(), torch.autocast("cuda", dtype=half, enabled=prompts.is_cuda):
        for _ in range(new):
            logits = model(step, cache)[:, -1].float()
            step = choose(logits, temperature, rng)[:, None]
            rows.append(step)
    return torch.cat(rows, dim=1)
