"""The models in one worker: what is loaded together, and what each load resolved to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.builds.build_cache import ReadyBuild
from pytest_asperf.engine_process import Worker
from pytest_asperf.errors import UnfitError
from pytest_asperf.measure.ab_arms import Arm, require_ran

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.engine_process import ContextFacts, EngineBuild, LoadedFacts
    from pytest_asperf.measure.model_locator import LocatedModel, ModelLocator
    from pytest_asperf.measure.results import Provenance


class LoadedModels:
    """Loads models for one build, all of a request in one worker.

    Args:
        build: the engine.
        locator: its models.
        call_timeout_s: deadline of one call to the engine.
        keeps_worker: whether a request for other models goes to the same process.
    """

    def __init__(
        self,
        build: EngineBuild,
        locator: ModelLocator,
        call_timeout_s: float,
        *,
        keeps_worker: bool = False,
    ) -> None:
        self._build = build
        self._locator = locator
        self._call_timeout_s = call_timeout_s
        self._keeps_worker = keeps_worker
        self._worker: Worker | None = None
        self._facts: dict[ModelRef, LoadedFacts] = {}
        self._sha256: dict[ModelRef, str] = {}

    def only(self, models: Sequence[LocatedModel]) -> Worker:
        """A worker in which exactly these models are loaded; as a rule a new one for others."""
        # Not by label: files in two folders may share a name, and settings differ by marker.
        wanted = {model.ref: model.sha256 for model in models}
        if self._worker is not None and self._worker.alive:
            if self._sha256 == wanted:
                return self._worker
            if self._keeps_worker:
                return self._exchange(self._worker, models)
        self.close()
        worker = self._worker = Worker(self._build, call_timeout_s=self._call_timeout_s)
        for model in models:
            self._load(worker, model)
        return worker

    def reload(self, worker: Worker, model: LocatedModel) -> None:
        """Load one of them again."""
        self._unload(worker, model.ref)
        self._load(worker, model)

    def name(self, ref: ModelRef) -> str:
        """What a model is called in the worker."""
        # Settings tell apart what one address may be loaded as at the same time.
        return f"{ref.title} {ref.spec.settings.as_dict()}" if self._keeps_worker else ref.title

    def facts(self, model: LocatedModel) -> LoadedFacts:
        """What a model's last load resolved to."""
        return self._facts[model.ref]

    def ran(self, model: LocatedModel, context: ContextFacts | None) -> Provenance:
        """A model's proof of path, with what its last context resolved to."""
        settings = model.ref.spec.settings
        arm = Arm(model.ref.title, ReadyBuild(self._build), settings, model)
        return require_ran(arm, self._locator.describe(self._worker), self.facts(model), context)

    def require_context(self, model: LocatedModel, n_ctx: int, what: str) -> None:
        """Refuse a context that is longer than the model was trained on."""
        n_ctx_train = self.facts(model).n_ctx_train
        if n_ctx > n_ctx_train:
            raise UnfitError(
                f"{what} needs a context of {n_ctx} tokens, and {model.ref.label} was trained "
                f"on {n_ctx_train}",
                why="what a model does beyond its context is not what its users see",
                remedy=f"stay within {n_ctx_train} tokens, depth included, or take another model",
            )

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
        self._worker, self._facts, self._sha256 = None, {}, {}

    def _exchange(self, worker: Worker, models: Sequence[LocatedModel]) -> Worker:
        wanted = {model.ref: model for model in models}
        for ref, sha256 in list(self._sha256.items()):
            if ref not in wanted or wanted[ref].sha256 != sha256:
                self._unload(worker, ref)
        for ref, model in wanted.items():
            if ref not in self._sha256:
                self._load(worker, model)
        return worker

    def _unload(self, worker: Worker, ref: ModelRef) -> None:
        del self._facts[ref], self._sha256[ref]
        worker.unload(self.name(ref))

    def _load(self, worker: Worker, model: LocatedModel) -> None:
        name, settings = self.name(model.ref), model.ref.spec.settings
        self._facts[model.ref] = worker.load(name, model.path, settings)
        self.ran(model, None)  # what is not what was asked for need not be measured
        self._sha256[model.ref] = model.sha256
