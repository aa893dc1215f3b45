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
    """Loads models for one build, all of a request in one worker."""

    def __init__(self, build: EngineBuild, locator: ModelLocator, call_timeout_s: float) -> None:
        self._build = build
        self._locator = locator
        self._call_timeout_s = call_timeout_s
        self._worker: Worker | None = None
        self._facts: dict[ModelRef, LoadedFacts] = {}
        self._sha256: dict[ModelRef, str] = {}

    def only(self, models: Sequence[LocatedModel]) -> Worker:
        """A worker in which exactly these models are loaded; a new one where others are."""
        # Not by label: files in two folders may share a name, and settings differ by marker.
        wanted = {model.ref: model.sha256 for model in models}
        if self._worker is not None and self._worker.alive and self._sha256 == wanted:
            return self._worker
        self.close()
        worker = self._worker = Worker(self._build, call_timeout_s=self._call_timeout_s)
        for model in models:
            self._load(worker, model)
        return worker

    def reload(self, worker: Worker, model: LocatedModel) -> None:
        """Load one of them again."""
        del self._facts[model.ref], self._sha256[model.ref]
        worker.unload(model.ref.title)
        self._load(worker, model)

    def facts(self, model: LocatedModel) -> LoadedFacts:
        """What a model's last load resolved to."""
        return self._facts[model.ref]

    def ran(self, model: LocatedModel, context: ContextFacts | None) -> Provenance:
        """A model's proof of path, with what its last context resolved to."""
        settings = model.ref.spec.settings
        arm = Arm(model.ref.title, ReadyBuild(self._build), settings, model)
        return require_ran(arm, self._locator.describe(), self.facts(model), context)

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

    def _load(self, worker: Worker, model: LocatedModel) -> None:
        self._facts[model.ref] = worker.load(model.ref.title, model.path, model.ref.spec.settings)
        self.ran(model, None)  # what is not what was asked for need not be measured
        self._sha256[model.ref] = model.sha256
