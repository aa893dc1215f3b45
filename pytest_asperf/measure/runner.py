"""The lab: measures each distinct request once a session, one at a time on the machine.

It decides what is loaded together and in which worker; what a number means is decided elsewhere.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self, TypeVar

import psutil

from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.builds.build_cache import BuildCache
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import Worker
from pytest_asperf.errors import AsperfError, ConfigError
from pytest_asperf.hardware.detect import detect
from pytest_asperf.hardware.machine_lock import MachineQueue
from pytest_asperf.hardware.readiness import readiness
from pytest_asperf.measure.ab_arms import MODEL, Arm, ArmFactory, MachineLease, RunningArm
from pytest_asperf.measure.ab_ppl import PplComparison, run_ppl_gate
from pytest_asperf.measure.ab_speed import ABResult, Budget, run_gate
from pytest_asperf.measure.corpus import read_corpus
from pytest_asperf.measure.engine_memory import counted_memory
from pytest_asperf.measure.ladder import PPL_N_CTX, score_ladder, scoring_groups, split_chunks
from pytest_asperf.measure.model_locator import (
    LocatedModel,
    ModelLocator,
    require_same_start,
    same_tokenizer,
    shown_same,
    source_state,
    why_lossless,
    work_of,
)
from pytest_asperf.measure.noise_store import NoiseStore
from pytest_asperf.measure.results import LadderResult, LevelResult, Provenance, ThroughputResult
from pytest_asperf.measure.speculation import DraftTargetFiles, SpeculationLease
from pytest_asperf.measure.throughput import measure_throughput, workload_tokens
from pytest_asperf.measure.validity import require_numbers, require_path, require_unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_asperf.config.progress import Notify
    from pytest_asperf.config.spec import Build, ModelRef, ModelSpec, Pairing
    from pytest_asperf.engine_process import ContextFacts, EngineBuild, EngineFacts, LoadedFacts
    from pytest_asperf.measure.corpus import ScoredText
    from pytest_asperf.measure.engine_memory import MemoryResult
    from pytest_asperf.measure.plan import MeasurementPlan
    from pytest_asperf.measure.throughput import TimedLoad

Result = TypeVar("Result")


class MeasurementRunner:
    """Measures on one build; a context manager that ends its worker.

    Args:
        build: the engine and its interpreter.
        cache: folder for model files that are made once.
        corpus: the text for models that name none of their own.
        plan: how much is measured.
        lock_path: the machine's measurement lock.
        notify: where progress goes.
    """

    def __init__(
        self,
        build: EngineBuild,
        *,
        cache: Path,
        corpus: Path,
        plan: MeasurementPlan,
        lock_path: Path,
        notify: Notify,
    ) -> None:
        self.build = build
        self.plan = plan
        self._cache = cache
        self._corpus = corpus
        self._queue = MachineQueue(lock_path, notify.wait, plan.wait_s)
        self._notify = notify
        self._locator = ModelLocator(
            build, cache=cache, call_timeout_s=plan.call_timeout_s, on_wait=notify.wait
        )
        self._arm_factory = ArmFactory(
            build,
            self._locator,
            BuildCache(cache, lock_path=lock_path, notify=notify, wait_s=plan.wait_s),
        )
        self._done: dict[object, object] = {}
        self._worker: Worker | None = None
        self._loaded: dict[ModelRef, LoadedFacts] = {}
        self._loaded_sha256: dict[ModelRef, str] = {}

    @cached_property
    def noise(self) -> NoiseStore:
        """What is known of this machine's noise."""
        return NoiseStore(self._cache, detect())

    def describe(self) -> EngineFacts:
        """Return what the engine says of itself."""
        return self._locator.describe()

    def locate(self, ref: ModelRef) -> LocatedModel:
        """Return a model's file, made if need be."""
        return self._locator.locate(ref)

    def source_sha256(self, spec: ModelSpec) -> str | None:
        """Return the hash of what a model's files are made from, None where that is not known."""
        return self._locator.source_sha256(spec)

    def throughput(self, ref: ModelRef, workload: Workload) -> ThroughputResult:
        """Time one workload on one model."""
        return self.throughputs((ref,), workload)[ref]

    def throughputs(
        self, refs: tuple[ModelRef, ...], workload: Workload
    ) -> dict[ModelRef, ThroughputResult]:
        """Time one workload on several models, interleaved."""
        return self._once(refs, workload, lambda: self._measure_throughputs(refs, workload))

    def ladder(
        self, base: ModelRef, rungs: tuple[ModelRef, ...], at_most: int | None = None
    ) -> LadderResult:
        """Score variants of a model against a baseline, on at most so many chunks."""
        measure = partial(self._measure_ladder, base, rungs, at_most)
        return self._once((base, *rungs), ("ladder", at_most), measure)

    def memory(self, ref: ModelRef, n_ctx: int) -> MemoryResult:
        """Fill a model's context, and return what that takes."""
        return self._once((ref,), n_ctx, lambda: self._measure_memory(ref, n_ctx))

    def duel(
        self,
        ref: ModelRef,
        workloads: tuple[Workload, ...],
        builds: tuple[Build, Build],
        budget: Budget,
        comparisons: int,
    ) -> ABResult:
        """Hold the second build's speed against the first's on one model."""

        def fight() -> ABResult:
            every = self.plan.self_check_every
            if every is not None and self.noise.count_gate() % every == 0:
                self._self_check(ref, workloads, builds[0], budget)
            return self._fight(self._arm_factory.arms(ref, builds), workloads, budget, comparisons)

        return self._once((ref,), (workloads, builds, budget, comparisons), fight)

    def engine_duel(
        self,
        ref: ModelRef,
        other: MeasurementRunner,
        other_ref: ModelRef,
        workload: Workload,
        budget: Budget,
    ) -> ABResult:
        """Hold another model's, or engine's, speed against this one's, each on its own file."""

        def fight() -> ABResult:
            arms = (
                self._arm_factory.own_arm(ref),
                other._arm_factory.own_arm(other_ref),
            )  # one of us
            other.close()
            return self._fight(arms, (workload,), budget, 1)

        return self._once((ref, other_ref), (workload, budget), fight)

    def _self_check(
        self, ref: ModelRef, workloads: tuple[Workload, ...], build: Build, budget: Budget
    ) -> None:
        """Hold a build against itself, and note whether that was a FAIL."""
        arms = self._arm_factory.arms(ref, (build, build))
        duel = self._fight(arms, workloads, budget, len(workloads))
        if duel.interrupted:
            raise KeyboardInterrupt
        failed = any(
            workload_pairs.test.outcome_if_stopped is Outcome.FAIL
            for workload_pairs in duel.workloads_pairs
        )
        self.noise.note_self_check(failed=failed)

    def _fight(
        self,
        arms: tuple[Arm, Arm],
        workloads: tuple[Workload, ...],
        budget: Budget,
        comparisons: int,
    ) -> ABResult:
        with self._lease(arms) as lease:
            conditions = readiness()
            base, candidate = (
                partial(RunningArm, arm, lease.timeout_s, lease.corpus) for arm in arms
            )
            duel = run_gate(
                (base, candidate),
                workloads,
                budget,
                comparisons=comparisons,
                progress=lease.progress,
            )
        return replace(duel, surroundings=self.noise.around(duel, conditions))

    def ppl_duel(
        self,
        ref: ModelRef,
        builds: tuple[Build, Build],
        limit: float,
        budget: Budget,
        comparisons: int,
    ) -> PplComparison:
        """Hold the second build's PPL against the first's on one model."""

        def fight(lease: MachineLease) -> PplComparison:
            return run_ppl_gate(
                lease,
                limit,
                seed=budget.seed,
                comparisons=comparisons,
                max_seconds=budget.max_seconds,
                chunks_of=lambda side: self._chunks(side.worker, MODEL, ref.spec),
            )

        return self.between((ref,), builds, (limit, budget, comparisons), fight)

    def between(
        self,
        refs: tuple[ModelRef, ...],
        builds: tuple[Build, Build],
        key: object,
        measure: Callable[[MachineLease], Result],
    ) -> Result:
        """Measure something of models under two builds, with nothing else of ours loaded.

        Args:
            refs: the models.
            builds: baseline and candidate.
            key: what is measured, and how.
            measure: measures it.
        """

        def compete() -> Result:
            with self._lease(*(self._arm_factory.arms(ref, builds) for ref in refs)) as lease:
                return measure(lease)

        return self._once(refs, (builds, key), compete)

    def speculation(
        self,
        pairing: Pairing,
        key: object,
        measure: Callable[[DraftTargetFiles, SpeculationLease], Result],
    ) -> Result:
        """Measure something of a target and a draft, with nothing else of ours loaded.

        Args:
            pairing: the models.
            key: what is measured of them, and how.
            measure: measures it.
        """

        def progress(done: int, total: int) -> None:
            self._notify.progress(f"speculation {pairing.label}", done, total)

        def compete() -> Result:
            target = self._locator.locate(pairing.target)
            draft = None
            if pairing.draft is not None:
                draft = same_tokenizer(target, self._locator.locate(pairing.draft))
            self.close()
            with self._queue.turn():
                lease = SpeculationLease(
                    self.build, self.describe(), self.plan.call_timeout_s, progress
                )
                return measure(DraftTargetFiles(pairing, target, draft), lease)

        refs = (pairing.target, *([pairing.draft] if pairing.draft else []))
        return self._once(refs, (pairing, key), compete)

    @contextmanager
    def _lease(self, *arms: tuple[Arm, Arm]) -> Iterator[MachineLease]:
        """Hold the machine for a gate, with nothing else of ours loaded."""
        self.close()  # what no side needs would take memory and cache from both
        base, candidate = arms[0]

        def progress(what: str, done: int, total: int) -> None:
            self._notify.progress(f"{what} {candidate.name} vs {base.name}", done, total)

        corpus = read_corpus(base.model.ref.spec, self._corpus)
        with self._queue.turn():
            yield MachineLease(arms, corpus, self.plan.call_timeout_s, progress)

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
        self._worker, self._loaded, self._loaded_sha256 = None, {}, {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _once(
        self, refs: tuple[ModelRef, ...], request: object, measure: Callable[[], Result]
    ) -> Result:
        """Measure a request the first time; give the same result, or error, ever after.

        Once a model's files have changed it is another request.
        """
        key = (refs, tuple(map(source_state, refs)), request)
        if key not in self._done:
            try:
                self._done[key] = measure()
            except AsperfError as err:
                self._done[key] = err
            finally:
                self._notify.done()
        done = self._done[key]
        if isinstance(done, AsperfError):
            raise done.with_traceback(None)  # each test's own, not those before it too
        return done  # type: ignore[return-value]  # stored under this key by this very call

    def _measure_throughputs(
        self, refs: tuple[ModelRef, ...], workload: Workload
    ) -> dict[ModelRef, ThroughputResult]:
        models = [self._locator.locate(ref) for ref in refs]
        by_name = {model.ref.title: model for model in models}
        label = f"{workload.name} {', '.join(by_name)}"
        with self._queue.turn():
            worker = self._worker_with(models)
            for model in models:
                self._require_context(model, workload.n_ctx, workload.name)
            tokens = {
                model.ref.title: workload_tokens(
                    worker, model.ref.title, read_corpus(model.ref.spec, self._corpus), workload
                )
                for model in models
            }
            loads = measure_throughput(
                worker,
                tokens,
                workload,
                repetitions=self.plan.repetitions,
                seed=self.plan.seed,
                progress=lambda done, total: self._notify.progress(label, done, total),
                loaded={model.ref.title: self._loaded[model.ref] for model in models},
                reload=lambda name: self._reload(worker, by_name[name]),
            )
        return {model.ref: self._timed(model, workload, loads[model.ref.title]) for model in models}

    def _timed(
        self,
        model: LocatedModel,
        workload: Workload,
        loads: tuple[TimedLoad, ...],
    ) -> ThroughputResult:
        for run in (run for load in loads for run in load.every):
            require_numbers(f"{workload.name} {model.ref.title}", run)
        context = loads[-1].runs[-1].context
        ran = self._ran(model, self._loaded[model.ref], context)
        # The cache grows under the run: on average half of its own tokens are in it.
        depth = workload.depth + workload.n_tokens // 2
        n_bytes = model.bytes_per_token(depth, ran.loaded, context)
        return ThroughputResult(workload, loads, n_bytes, ran)

    def _measure_memory(self, ref: ModelRef, n_ctx: int) -> MemoryResult:
        model, name = self._locator.locate(ref), ref.title
        with self._queue.turn():
            worker = self._worker_with([model])
            self._require_context(model, n_ctx, f"memory at {n_ctx}")
            fill = Workload("pp", n_ctx)
            tokens = workload_tokens(worker, name, read_corpus(ref.spec, self._corpus), fill)
            self._notify.progress(f"memory at {n_ctx} {name}", 0, 1)
            run = require_numbers(f"{fill.name} {name}", worker.prompt(name, tokens, 0))
        return counted_memory(n_ctx, run, self._ran(model, self._loaded[ref], run.context))

    def _measure_ladder(
        self, base_ref: ModelRef, refs: tuple[ModelRef, ...], at_most: int | None
    ) -> LadderResult:
        base = self._locator.locate(base_ref)
        failures: dict[ModelRef, AsperfError] = {}
        models: list[LocatedModel] = []
        for ref in refs:
            try:
                models.append(same_tokenizer(base, self._locator.locate(ref)))
            except AsperfError as err:
                failures[ref] = err
        results: dict[ModelRef, LevelResult] = {}
        groups, note = scoring_groups(base, models, self._free_memory_bytes())
        with self._queue.turn():
            while groups:
                group = groups.pop(0)
                try:
                    results |= self._score_group(base, group, at_most)
                except AsperfError as err:
                    if len(group) == 1:
                        failures[group[0].ref] = err
                    else:
                        # One level's fault must not cost the others their result.
                        groups = [[model] for model in group] + groups
                        note = "a level failed in the common pass, so each was scored by itself"
        return LadderResult(results, failures, note)

    def _free_memory_bytes(self) -> float:
        """Return the memory that models can be loaded into, the smallest pool in use."""
        devices = self.describe().devices
        pools = [device.memory_free_bytes for device in devices if device.type == "GPU"]
        return float(min([psutil.virtual_memory().available, *(pool for pool in pools if pool)]))

    def _score_group(
        self, base: LocatedModel, models: Sequence[LocatedModel], at_most: int | None
    ) -> dict[ModelRef, LevelResult]:
        names = {model.ref.title: model for model in models}
        label = f"PPL {', '.join(names)} vs {base.ref.title}"
        worker = self._worker_with([base, *models])
        self._require_context(base, PPL_N_CTX, "PPL")
        for model in models:
            require_same_start(base, self._loaded[base.ref], model, self._loaded[model.ref])
        chunks, text = self._chunks(worker, base.ref.title, base.ref.spec, at_most)
        scores = score_ladder(
            worker,
            [base.ref.title, *names],
            chunks,
            concurrency=self._concurrency(base),
            progress=lambda done, total: self._notify.progress(label, done, total),
        )
        base_chunks, base_context = scores[base.ref.title]
        base_ran = self._ran(base, self._loaded[base.ref], base_context)
        work = work_of(base, chunks)
        return {
            model.ref: LevelResult(
                scored,
                base_chunks,
                model.size_bytes,
                text,
                self._ran(model, self._loaded[model.ref], context),
                base_ran,
                shown_same(base, model),
                why_lossless(base, model),
                context.peak_rss_bytes,
                work,
            )
            for name, model in names.items()
            for scored, context in [scores[name]]
        }

    def _concurrency(self, base: LocatedModel) -> int:
        """Return how many levels are scored at a time: as many as leave each its own cores."""
        loaded = self._loaded[base.ref]
        if loaded.layers_offloaded:
            return 1
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        return max(1, (usable or os.cpu_count() or 1) // max(1, loaded.threads))

    def _worker_with(self, models: Sequence[LocatedModel]) -> Worker:
        """Return a worker in which exactly these models are loaded."""
        # Not by label: files in two folders may share a name, and settings differ by marker.
        wanted = {model.ref: model.sha256 for model in models}
        if self._worker is not None and self._worker.alive and self._loaded_sha256 == wanted:
            return self._worker
        self.close()
        worker = self._worker = Worker(self.build, call_timeout_s=self.plan.call_timeout_s)
        for model in models:
            self._load(worker, model)
        return worker

    def _load(self, worker: Worker, model: LocatedModel) -> None:
        ref = model.ref
        loaded = worker.load(ref.title, model.path, ref.spec.settings)
        self._ran(model, loaded, None)  # what is not what was asked for need not be measured
        self._loaded[ref], self._loaded_sha256[ref] = loaded, model.sha256

    def _reload(self, worker: Worker, model: LocatedModel) -> None:
        del self._loaded[model.ref], self._loaded_sha256[model.ref]
        worker.unload(model.ref.title)
        self._load(worker, model)

    def _require_context(self, model: LocatedModel, n_ctx: int, what: str) -> None:
        n_ctx_train = self._loaded[model.ref].n_ctx_train
        if n_ctx > n_ctx_train:
            raise ConfigError(
                f"{what} needs a context of {n_ctx} tokens, and {model.ref.label} was trained "
                f"on {n_ctx_train}",
                why="what a model does beyond its context is not what its users see",
                remedy=f"stay within {n_ctx_train} tokens, depth included, or take another model",
            )

    def _chunks(
        self, worker: Worker, name: str, spec: ModelSpec, at_most: int | None = None
    ) -> tuple[list[Sequence[int]], ScoredText]:
        """Return the chunks that a model's PPL is taken over, and which of its corpus they are."""
        corpus = read_corpus(spec, self._corpus)
        tokens = worker.tokenize(name, corpus.text)
        every = split_chunks(tokens, n_ctx=PPL_N_CTX, corpus=str(corpus.path))
        chunks = every[: self.plan.chunks][:at_most]
        return chunks, corpus.section(chunks, len(every))

    def _ran(
        self, model: LocatedModel, loaded: LoadedFacts, context: ContextFacts | None
    ) -> Provenance:
        require_unchanged(model)
        return require_path(
            Provenance(
                model.ref.title,
                model.path,
                model.sha256,
                self.describe(),
                loaded,
                context,
                model.ref.spec.settings,
                title=model.title,
            )
        )
