"""PPL and KLD of a ladder: one pass over the chunks through the baseline and every level.

Each chunk of the baseline is scored once and its distribution kept in memory while the levels
score the same chunk, so nothing is written to disk. The definition is llama-perplexity's: chunks
of the context's size, BOS forced at the start of each, the second half scored.
"""

from __future__ import annotations

import math
import time
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_asperf.analysis.metrics import ChunkScore
    from pytest_asperf.engine_process import ContextFacts, Worker
    from pytest_asperf.measure.corpus import Corpus, ScoredText
    from pytest_asperf.measure.model_locator import LocatedModel

#: llama-perplexity's default context, and what published figures use.
PPL_N_CTX: Final = 512

#: Share of the free memory that models may take together: the rest is for contexts and logits.
_MEMORY_SHARE: Final = 0.7
#: Showing a change takes as long as a GPU takes for a chunk.
_SHOWN_EACH_S: Final = 0.5


def split_chunks(
    tokens: Sequence[int], *, n_ctx: int, corpus: str, at_most: int | None = None
) -> list[Sequence[int]]:
    """Cut a tokenised corpus into two or more whole chunks, as llama-perplexity does.

    BOS comes first where the tokenizer adds one.
    """
    n_chunks = len(tokens) // n_ctx
    if n_chunks < 2:
        raise ConfigError(
            f"the corpus {corpus} gives {len(tokens)} tokens, fewer than two chunks of {n_ctx}",
            why="PPL is scored on whole chunks, and one chunk has no interval",
            remedy=f"use a text of at least {2 * n_ctx} tokens",
        )
    return [tokens[i * n_ctx : (i + 1) * n_ctx] for i in range(n_chunks)][:at_most]


def scored_chunks(
    worker: Worker, name: str, corpus: Corpus, *limits: int | None, n_ctx: int = PPL_N_CTX
) -> tuple[list[Sequence[int]], ScoredText]:
    """The chunks that a model's PPL is taken over, and which part of the corpus they are.

    Limits are the most chunks to take from the start; None is all.
    """
    tokens = worker.tokenize(name, corpus.text)
    chunks = every = split_chunks(tokens, n_ctx=n_ctx, corpus=str(corpus.path))
    for limit in limits:
        chunks = chunks[:limit]
    return chunks, corpus.section(chunks, len(every))


def scoring_groups(
    base: LocatedModel, models: Sequence[LocatedModel], free_bytes: float
) -> tuple[list[list[LocatedModel]], str]:
    """The levels of each pass with the baseline, and a remark where they are several passes."""
    size = base.size_bytes + sum(model.size_bytes for model in models)
    usable = _MEMORY_SHARE * free_bytes
    if len(models) < 2 or size <= usable:
        return [list(models)] if models else [], ""
    note = (
        f"the {len(models) + 1} models need {memory_text(size)} together and "
        f"{memory_text(usable)} may be used: scored pair by pair, the baseline once for each"
    )
    return [[model] for model in models], note


def score_ladder(
    worker: Worker,
    names: Sequence[str],
    chunks: Sequence[Sequence[int]],
    *,
    concurrency: int,
    progress: Callable[[Mapping[str, Sequence[ChunkScore]]], None],
) -> dict[str, tuple[tuple[ChunkScore, ...], ContextFacts]]:
    """Score every chunk with every model; all after the first are compared with the first.

    `progress` is given the scores so far, now and then. For each model there are its scores by
    chunk, and what its context resolved to.
    """
    contexts: dict[str, ContextFacts] = {}
    scores: dict[str, list[ChunkScore]] = {name: [] for name in names}
    shown_s = -math.inf
    for chunk, following in zip_longest(chunks, chunks[1:], fillvalue=()):
        if (now_s := time.monotonic()) - shown_s >= _SHOWN_EACH_S:
            progress(scores)
            shown_s = now_s
        row = worker.score(
            names, chunk, len(chunk) // 2, concurrency=concurrency, following=following
        )
        for name in names:
            score, contexts[name] = row[name]
            scores[name].append(score)
    return {name: (tuple(rows), contexts[name]) for name, rows in scores.items()}
