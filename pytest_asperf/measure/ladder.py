"""PPL and KLD of a quant sweep: one pass over the chunks through all quantizations.

Each chunk of the baseline is scored once, and its distribution stays in memory while the
quantizations score the same chunk, so nothing is written to disk. The definition is
llama-perplexity's: chunks of the context's size, BOS forced at the start of each, the second half
scored.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

import psutil

from pytest_asperf.analysis.facts import ScoredText
from pytest_asperf.analysis.metrics import ChunkScore
from pytest_asperf.analysis.stats.chunk_intervals import LEAST_CHUNKS, delta_ppl
from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.config.progress import SoFar
from pytest_asperf.config.spec import ModelRef
from pytest_asperf.engine_process import (
    ContextFacts,
    EngineFacts,
    LoadedFacts,
    Worker,
    n_usable_cores,
)
from pytest_asperf.errors import AsperfError, ConfigError
from pytest_asperf.measure.experiment import Arm, MachineLease, SharedProcess
from pytest_asperf.measure.feeding import Corpus
from pytest_asperf.measure.results import LadderResult, LevelResult
from pytest_asperf.measure.running_build import kept_build, kept_process
from pytest_asperf.modelfiles.locate import require_same_start, shown_same, why_lossless, work_of

#: llama-perplexity's default context, also of published figures.
PPL_N_CTX: Final = 512

#: Share of the free memory for models; contexts and logits use the rest.
_MEMORY_SHARE: Final = 0.7
#: One progress update costs as much time as a GPU needs for a chunk.
_SHOWN_EACH_S: Final = 0.5


@dataclass(frozen=True)
class LadderExperiment(SharedProcess):
    """Scores the quantizations of the lease's only variant against its first model.

    Without `at_most` chunks, they are as many as the plan has.
    """

    at_most: int | None = None

    def run(self, lease: MachineLease) -> LadderResult:
        """Score the quantizations in one pass if memory allows, and singly if one of them fails."""
        ((base, *arms),) = lease.sides
        failures: dict[ModelRef, AsperfError] = {}
        results: dict[ModelRef, LevelResult] = {}
        described = kept_process(lease, {arm.name: arm for arm in (base, *arms)}).worker.describe()
        groups, note = _scoring_groups(base, arms, _free_memory_bytes(described))
        while groups:
            group = groups.pop(0)
            try:
                results |= self._scored(lease, base, group)
            except AsperfError as err:
                if len(group) == 1:
                    failures[group[0].ref] = err
                else:
                    # One quantization's fault must not cost the others their result.
                    groups = [[arm] for arm in group] + groups
                    note = "a quantization failed in the common pass, so each was scored by itself"
        return LadderResult(results, failures, note)

    def _scored(
        self, lease: MachineLease, base: Arm, arms: Sequence[Arm]
    ) -> dict[ModelRef, LevelResult]:
        names = {arm.name: arm for arm in arms}
        # The model is named once, then each of its quantizations.
        own = f"{base.ref.spec.name}:"
        others = ", ".join(names).replace(f", {own}", ", ")
        label = f"PPL {others} vs {base.name.removeprefix(own)}"
        build = kept_build(lease, {base.name: base, **names})
        build.require_context(base.name, PPL_N_CTX, "PPL")
        for arm in arms:
            have_bos = build.begins_with_bos(base.name), build.begins_with_bos(arm.name)
            require_same_start((base.model, have_bos[0]), (arm.model, have_bos[1]))
        limits = lease.plan.chunks, self.at_most
        corpus = lease.corpus_of(base)
        chunks, text = scored_chunks(build.worker, base.name, corpus, *limits, n_ctx=PPL_N_CTX)
        scores = score_ladder(
            build.worker,
            [base.name, *names],
            chunks,
            concurrency=_concurrency(build.facts(base.name)),
            progress=lambda scores: _show_change(lease, label, len(chunks), scores),
        )
        base_chunks, base_context = scores[base.name]
        base_ran, work = build.proof(base.name, base_context), work_of(base.model, chunks)
        return {
            arm.ref: LevelResult(
                scored,
                base_chunks,
                arm.model.size_bytes,
                text,
                build.proof(name, context),
                base_ran,
                shown_same(base.model, arm.model),
                why_lossless(base.model, arm.model),
                context.peak_rss_bytes,
                work,
            )
            for name, arm in names.items()
            for scored, context in [scores[name]]
        }


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
    worker: Worker, name: str, corpus: Corpus, *limits: int | None, n_ctx: int
) -> tuple[list[Sequence[int]], ScoredText]:
    """The chunks for a model's PPL, and the part of the corpus that they are.

    Limits are the most chunks to use from the start; None is all.
    """
    tokens = worker.tokenize(name, corpus.text)
    chunks = every = split_chunks(tokens, n_ctx=n_ctx, corpus=str(corpus.path))
    for limit in limits:
        chunks = chunks[:limit]
    return chunks, corpus.section(chunks, len(every))


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
    chunk, and its resolved context.
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


def _scoring_groups(
    base: Arm, arms: Sequence[Arm], free_bytes: float
) -> tuple[list[list[Arm]], str]:
    """The quantizations of each pass with the baseline, and a remark if several."""
    size = base.model.size_bytes + sum(arm.model.size_bytes for arm in arms)
    usable = _MEMORY_SHARE * free_bytes
    if len(arms) < 2 or size <= usable:
        return [list(arms)] if arms else [], ""
    note = (
        f"the {len(arms) + 1} models need {memory_text(size)} together and "
        f"{memory_text(usable)} may be used: scored pair by pair, the baseline once for each"
    )
    return [[arm] for arm in arms], note


def _free_memory_bytes(described: EngineFacts) -> float:
    """Memory that models can be loaded into: the smallest pool in use."""
    pools = [device.memory_free_bytes for device in described.devices if device.type == "GPU"]
    return float(min([psutil.virtual_memory().available, *(pool for pool in pools if pool)]))


def _concurrency(facts: LoadedFacts) -> int:
    """Quantizations scored at a time: as many as leave each its own cores."""
    if facts.layers_offloaded:
        return 1
    return max(1, n_usable_cores() // max(1, facts.threads))


def _show_change(
    lease: MachineLease, label: str, n_chunks: int, scores: Mapping[str, Sequence[ChunkScore]]
) -> None:
    """Show a sweep's progress, and the last quantization's ΔPPL once it has an interval."""
    (_, base), *_, (name, last) = scores.items()
    figure = ""
    if len(base) >= LEAST_CHUNKS:
        change = delta_ppl([chunk.nll for chunk in base], [chunk.nll for chunk in last])
        which = f"{name.rpartition(':')[2]} " if len(scores) > 2 else ""
        figure = f"{which}Δ {change}"
    lease.progress(label, len(base), n_chunks, SoFar(figure, "chunks"))
