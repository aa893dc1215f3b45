"""Greedy acceptance of the draft by a true draft-and-verify loop, on held-out prompts."""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path

import data
import torch
from bpe import BOS_ID, EOS_ID
from model import Cache, Llama, load
from torch import Tensor

PROMPT, NEW = 192, 128
PROMPTS = 24
SPACING = 97  # prompts are spread over the held-out text in this many places


@dataclass(frozen=True, slots=True)
class Speculation:
    """The result of one prompt: the ids, and how many were drafted and accepted."""

    ids: list[int]
    drafted: int
    accepted: int


def step(model: Llama, cache: Cache, ids: list[int]) -> list[int]:
    """Feed ids after the content of the cache; the greedy choice after each."""
    device = model.model.norm.weight.device
    with torch.no_grad():
        logits = model(torch.tensor([ids], device=device), cache)
    return [int(i) for i in logits[0].argmax(-1)]


def cache_for(model: Llama) -> Cache:
    """An empty cache for one row."""
    return Cache(model.shape, 1, PROMPT + 2 * NEW, model.model.norm.weight)


def greedy(model: Llama, prompt: list[int], new: int) -> list[int]:
    """The model's own greedy continuation."""
    cache, ids = cache_for(model), list(prompt)
    feed = prompt
    for _ in range(new):
        feed = step(model, cache, feed)[-1:]
        ids += feed
    return ids


def speculate(target: Llama, draft: Llama, prompt: list[int], new: int, k: int) -> Speculation:
    """Greedy speculative decoding: draft k, verify in one pass, keep the agreeing prefix."""
    ids, target_cache, draft_cache = list(prompt), cache_for(target), cache_for(draft)
    drafted = accepted = 0
    while len(ids) < len(prompt) + new:
        proposal: list[int] = []
        feed = ids[draft_cache.used :]
        for _ in range(k):
            feed = step(draft, draft_cache, feed)[-1:]
            proposal += feed
        choices = step(target, target_cache, ids[target_cache.used :] + proposal)[-k - 1 :]
        agreed = next((i for i in range(k) if proposal[i] != choices[i]), k)
        ids += choices[: agreed + 1]
        target_cache.used = len(ids) - 1
        draft_cache.used = min(draft_cache.used, len(ids) - 1)
        drafted, accepted = drafted + k, accepted + agreed
    return Speculation(ids, drafted, accepted)


def loops(ids: list[int]) -> bool:
    """True if a continuation repeats itself: fewer than 4 in 5 of its 8-grams are distinct."""
    grams = [tuple(ids[i : i + 8]) for i in range(len(ids) - 7)]
    return len(set(grams)) < 0.8 * len(grams)


def prompts(held_out: Tensor) -> list[list[int]]:
    """Evenly spread pieces of the held-out text, each after BOS."""
    spacing = (len(held_out) - PROMPT) // SPACING
    return [
        [BOS_ID, *held_out[i * spacing + 1 : i * spacing + PROMPT].tolist()] for i in range(SPACING)
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 2, 4, 8])
    args = parser.parse_args()
    target, draft = load(args.target, args.device), load(args.draft, args.device)
    usable: list[list[int]] = []
    tried = 0
    for prompt in prompts(data.stream(args.data / "heldout.bin.xz", "cpu")):
        if len(usable) == PROMPTS:
            break
        tried += 1
        ids = greedy(target, prompt, NEW)
        if not loops(ids[PROMPT:]) and EOS_ID not in ids[PROMPT:]:
            usable.append(ids)
    print(f"{len(usable)} prompts of {tried} tried (the others loop or end)", flush=True)
    for k in args.k:
        runs = [speculate(target, draft, ids[:PROMPT], NEW, k) for ids in usable]
        same = sum(r.ids[: len(ids)] == ids for r, ids in zip(runs, usable, strict=True))
        shares = [r.accepted / r.drafted for r in runs]
        print(
            f"k={k} acceptance={statistics.mean(shares):.4f} min={min(shares):.3f}"
            f" max={max(shares):.3f} lossless={same}/{len(runs)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
