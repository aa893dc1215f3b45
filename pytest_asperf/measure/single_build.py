"""Throughput, memory and PPL of models under one build."""

from __future__ import annotations

import os
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import psutil

from pytest_asperf.analysis.stats.chunk_intervals import LEAST_CHUNKS, delta_ppl
from pytest_asperf.config.progress import SoFar
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import AsperfError, UnfitError
from pytest_asperf.hardware.watch import MachineWatch
from pytest_asperf.measure.corpus import read_corpus
from pytest_asperf.measure.engine_memory import counted_memory
from pytest_asperf.measure.ladder import PPL_N_CTX, score_ladder, scored_chunks, scoring_groups
from pytest_asperf.measure.loaded_models import LoadedModels
from pytest_asperf.measure.model_locator import (
    require_same_start,
    shown_same,
    why_lossless,
    work_of,
)
from pytest_asperf.measure.results import LadderResult, LevelResult, ThroughputResult
from pytest_asperf.measure.throughput import fed_with, measure_throughput, workload_tokens
from pytest_asperf.measure.validity import require_numbers, require_sound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_asperf.analysis.metrics import ChunkScore
    from pytest_asperf.config.progress import Notify
    from pytest_asperf.config.spec import ModelRef, ModelSpec
    from pytest_asperf.engine_process import EngineBuild, RawRun
    from pytest_asperf.measure.corpus import Corpus
    from pytest_asperf.measure.engine_memory import MemoryResult
    from pytest_asperf.measure.model_locator import LocatedModel, ModelLocator
    from pytest_asperf.measure.plan import MeasurementPlan
    from pytest_asperf.measure.throughput import TimedRuns


class SingleBuild:
    """Measures models under one build."""

    def __init__(
        self,
        build: EngineBuild,
        locator: ModelLocator,
        plan: MeasurementPlan,
        *,
        shipped_corpus: Path,
        notify: Notify,
    ) -> None:
        self._locator = locator
        self._plan = plan
        self._shipped_corpus = shipped_corpus
        self._notify = notify
        self._loaded = LoadedModels(build, locator, plan.call_timeout_s)

    def close(self) -> None:
        """End the worker."""
        self._loaded.close()

    def throughputs(
        self, models: Sequence[LocatedModel], workload: Workload
    ) -> dict[ModelRef, ThroughputResult]:
        """Time one workload on several models, interleaved."""
        by_name = {model.ref.title: model for model in models}
        label = f"{workload.name} {', '.join(by_name)}"
        worker = self._loaded.only(models)
        for model in models:
            self._loaded.require_context(model, workload.n_ctx, workload.name)
        with MachineWatch() as watch:
            timed = measure_throughput(
                worker,
                {
                    name: fed_with(
                        worker,
                        name,
                        self._corpus(model.ref.spec),
                        workload,
                        self._loaded.facts(model),
                    )
                    for name, model in by_name.items()
                },
                workload,
                repetitions=self._plan.repetitions,
                seed=self._plan.seed,
                progress=lambda runs: self._show_rates(label, workload, runs),
                loaded={name: self._loaded.facts(model) for name, model in by_name.items()},
                reload=lambda name: self._loaded.reload(worker, by_name[name]),
            )
            watched = watch.seen()
        return {
            model.ref: replace(self._throughput(model, workload, timed[name]), watched=watched)
            for name, model in by_name.items()
        }

    def memory(self, model: LocatedModel, n_ctx: int) -> MemoryResult:
        """Fill a model's context, and read what that takes."""
        name = model.ref.title
        worker = self._loaded.only([model])
        if reason := worker.describe().cannot.get("memory"):
            raise UnfitError(
                f"memory: {reason}",
                why="what a model takes is the engine's own count",
                remedy="measure on llama_cpp or mlx",
            )
        self._loaded.require_context(model, n_ctx, f"memory at {n_ctx}")
        fill = Workload("pp", n_ctx)
        tokens = workload_tokens(worker, name, self._corpus(model.ref.spec), fill)
        self._notify.progress(f"memory at {n_ctx} {name}", 0, 1)
        run = require_numbers(f"{fill.name} {name}", worker.prompt(name, tokens, 0))
        return counted_memory(n_ctx, run, self._loaded.ran(model, run.context))

    def ladder(
        self,
        base: LocatedModel,
        models: Sequence[LocatedModel],
        failures: Mapping[ModelRef, AsperfError],
        at_most: int | None,
    ) -> LadderResult:
        """Score levels against a baseline, in one pass if memory allows.

        Levels that have no file come with their failures. Without `at_most` chunks, the plan's.
        """
        failures = dict(failures)
        results: dict[ModelRef, LevelResult] = {}
        groups, note = scoring_groups(base, models, self._free_memory_bytes())
        while groups:
            group = groups.pop(0)
            try:
                results |= self._scored(base, group, at_most)
            except AsperfError as err:
                if len(group) == 1:
                    failures[group[0].ref] = err
                else:
                    # One level's fault must not cost the others their result.
                    groups = [[model] for model in group] + groups
                    note = "a level failed in the common pass, so each was scored by itself"
        return LadderResult(results, failures, note)

    def _throughput(
        self, model: LocatedModel, workload: Workload, timed: TimedRuns
    ) -> ThroughputResult:
        loads = timed.loads
        for run in (run for load in loads for run in load.every):
            require_sound(f"{workload.name} {model.ref.title}", run, workload)
        context = loads[-1].runs[-1].context
        ran = self._loaded.ran(model, context)
        # The cache grows under the run: on average half of its own tokens are in it.
        depth = workload.depth + workload.n_tokens // 2
        n_bytes = model.bytes_per_token(depth, ran.loaded, context)
        return ThroughputResult(workload, loads, n_bytes, ran, examined=timed.examined)

    def _scored(
        self, base: LocatedModel, models: Sequence[LocatedModel], at_most: int | None
    ) -> dict[ModelRef, LevelResult]:
        loaded = self._loaded
        names = {model.ref.title: model for model in models}
        # The model is named once, and each of its levels.
        others = ", ".join(names).replace(f", {base.ref.spec.name}:", ", ")
        label = f"PPL {others} vs {base.ref.title.removeprefix(f'{base.ref.spec.name}:')}"
        worker = loaded.only([base, *models])
        loaded.require_context(base, PPL_N_CTX, "PPL")
        for model in models:
            require_same_start(base, loaded.facts(base), model, loaded.facts(model))
        chunks, text = scored_chunks(
            worker, base.ref.title, self._corpus(base.ref.spec), self._plan.chunks, at_most
        )
        scores = score_ladder(
            worker,
            [base.ref.title, *names],
            chunks,
            concurrency=self._concurrency(base),
            progress=lambda scores: self._show_change(label, len(chunks), scores),
        )
        base_chunks, base_context = scores[base.ref.title]
        base_ran = loaded.ran(base, base_context)
        work = work_of(base, chunks)
        return {
            model.ref: LevelResult(
                scored,
                base_chunks,
                model.size_bytes,
                text,
                loaded.ran(model, context),
                base_ran,
                shown_same(base, model),
                why_lossless(base, model),
                context.peak_rss_bytes,
                work,
            )
            for name, model in names.items()
            for scored, context in [scores[name]]
        }

    def _show_rates(
        self, label: str, workload: Workload, runs: Mapping[str, Sequence[RawRun]]
    ) -> None:
        """Show how far a workload is, and the rate where there is one model."""
        done, total = sum(map(len, runs.values())), self._plan.repetitions * len(runs)
        rates = [1e9 * run.n_tokens / max(1, run.elapsed_ns) for of in runs.values() for run in of]
        is_shown = done and len(runs) == 1 and workload.is_rate
        figure = f"{median(rates):.3g} tok/s" if is_shown else ""
        self._notify.progress(label, done, total, SoFar(figure, "runs"))

    def _show_change(
        self, label: str, n_chunks: int, scores: Mapping[str, Sequence[ChunkScore]]
    ) -> None:
        """Show how far a ladder is, and the last rung's ΔPPL once there is an interval."""
        (_, base), *_, (name, last) = scores.items()
        figure = ""
        if len(base) >= LEAST_CHUNKS:
            change = delta_ppl([chunk.nll for chunk in base], [chunk.nll for chunk in last])
            which = f"{name.rpartition(':')[2]} " if len(scores) > 2 else ""
            figure = f"{which}Δ {change}"
        self._notify.progress(label, len(base), n_chunks, SoFar(figure, "chunks"))

    def _corpus(self, spec: ModelSpec) -> Corpus:
        return read_corpus(spec, self._shipped_corpus)

    def _concurrency(self, base: LocatedModel) -> int:
        """Levels scored at a time: as many as leave each its own cores."""
        facts = self._loaded.facts(base)
        if facts.layers_offloaded:
            return 1
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        return max(1, (usable or os.cpu_count() or 1) // max(1, facts.threads))

    def _free_memory_bytes(self) -> float:
        """Memory that models can be loaded into: the smallest pool in use."""
        devices = self._locator.describe().devices
        pools = [device.memory_free_bytes for device in devices if device.type == "GPU"]
        return float(min([psutil.virtual_memory().available, *(pool for pool in pools if pool)]))
