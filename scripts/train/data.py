"""Token streams on the device: random training rows, and the perplexity that is shipped."""

from __future__ import annotations

import lzma
import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BOS_ID = 0
CHUNK = 512
# The positions whose logits are scored: those of the tokens 256 .. 511.
SCORED = slice(CHUNK // 2 - 1, -1)


def stream(path: Path, device: str) -> Tensor:
    """All ids of one .bin.xz file."""
    with lzma.open(path) as file:
        ids = np.frombuffer(file.read(), dtype="<u2")
    return torch.from_numpy(ids.astype(np.int32)).to(device)


class Rows:
    """Random rows `BOS window`, drawn from the streams by the given probabilities."""

    def __init__(self, streams: list[Tensor], shares: list[float], seed: int) -> None:
        device = streams[0].device
        self.tokens = torch.cat(streams)
        lengths = torch.tensor([len(s) for s in streams], device=device)
        self.lengths, self.starts = lengths, lengths.cumsum(0) - lengths
        self.shares = torch.tensor(shares, device=device)
        self.rng = torch.Generator(device).manual_seed(seed)

    def draw(self, rows: int, length: int) -> Tensor:
        """[rows, length + 1] ids: the inputs are [:, :-1], the targets [:, 1:]."""
        which = torch.multinomial(self.shares, rows, replacement=True, generator=self.rng)
        chance = torch.rand(
            rows, device=self.tokens.device, generator=self.rng, dtype=torch.float64
        )
        start = self.starts[which] + (chance * (self.lengths[which] - length)).long()
        window = self.tokens[start[:, None] + torch.arange(length, device=start.device)].long()
        return torch.cat((torch.full_like(window[:, :1], BOS_ID), window), dim=1)


def chunked(ids: Tensor) -> Tensor:
    """[chunks, 512] ids, BOS forced at the start of each chunk."""
    chunks = ids[: len(ids) // CHUNK * CHUNK].view(-1, CHUNK).long().clone()
    chunks[:, 0] = BOS_ID
    return chunks


def chunk_nll(logits_of: Callable[[Tensor], Tensor], ids: Tensor, rows: int = 32) -> Tensor:
    """NLL [chunks, 256] of the second half of each 512-token chunk, BOS forced at its start.

    This is llama-perplexity's definition: position i is scored from the tokens before it,
    for the positions 256 .. 511.
    """
    parts = []
    with torch.no_grad():
        for part in chunked(ids).split(rows):
            logits = logits_of(part)[:, SCORED].float()
            nll = torch.nn.functional.cross_entropy(
                logits.transpose(1, 2), part[:, CHUNK // 2 :], reduction="none"
            )
            parts.append(nll)
    return torch.cat(parts)


def perplexity(logits_of: Callable[[Tensor], Tensor], ids: Tensor) -> float:
    """The exponential of the mean NLL of `chunk_nll`."""
    return math.exp(chunk_nll(logits_of, ids).mean().item())
