"""The arms of a comparison: a build and a model file each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_asperf.builds.build_cache import ReadyBuild
from pytest_asperf.errors import EngineError
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.validity import require_path, require_unchanged

if TYPE_CHECKING:
    from pytest_asperf.builds.build_cache import BuildCache
    from pytest_asperf.config.engine_settings import EngineSettings
    from pytest_asperf.config.spec import Build, ModelRef
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.engine_process import (
        ContextFacts,
        EngineBuild,
        EngineFacts,
        LoadedFacts,
    )
    from pytest_asperf.measure.model_locator import LocatedModel, ModelLocator


@dataclass(frozen=True, slots=True)
class Arm:
    """A model and the build that runs it.

    Attributes:
        name: what a reader calls it: the model, and the build where that tells it apart.
        build: its engine, ready to be started.
        settings: engine settings of the model in this arm.
        model: the model file.
        workload: what it runs in place of what a pair is named by, None for the same.
        build_name: what the user calls the build; empty for the own one.
    """

    name: str
    build: ReadyBuild
    settings: EngineSettings
    model: LocatedModel
    workload: Workload | None = None
    build_name: str = ""


class ArmFactory:
    """Makes the builds and model files of arms.

    Args:
        own: the build of arms that name none.
        locator: its models.
        build_cache: makes the builds that gates name.
    """

    def __init__(self, own: EngineBuild, locator: ModelLocator, build_cache: BuildCache) -> None:
        self._own = own
        self._build_cache = build_cache
        self._locators = {own: locator}

    def require(self, build: Build | None) -> None:
        """Raise BuildError for a build that is neither made nor can be found."""
        if build is not None:
            self._build_cache.require(build)

    def ready(self, build: Build | None) -> ReadyBuild:
        """Make a build; the own one is there.

        Raises:
            BuildError: it cannot be made.
        """
        if build is None:
            return ReadyBuild(self._own)
        ready = self._build_cache.ready(build, self._own.engine)
        keyed = replace(ready.engine, key_variable=self._own.key_variable)
        return replace(ready, engine=keyed)

    def arm(
        self, ref: ModelRef, build: Build | None, ready: ReadyBuild, baseline: ReadyBuild
    ) -> Arm:
        """Locate a model for a build that is made.

        Args:
            ref: the model.
            build: the build, None for the own one.
            ready: the same build, made.
            baseline: makes the model's file where the own engine is missing.

        Raises:
            AsperfError: the model cannot be made.
        """
        settings = ref.spec.settings
        if build is None:
            return Arm(ref.title, ready, settings, self._locators[self._own].locate(ref))
        model = self._locator(baseline.engine).locate(ref)
        name, settings = f"{ref.title} in {build.name}", settings.merged(build.settings)
        return Arm(name, ready, settings, model, build_name=build.name)

    def _locator(self, baseline: EngineBuild) -> ModelLocator:
        own = self._locators[self._own]
        try:
            own.describe()
        except EngineError:
            return self._locators.setdefault(baseline, own.on(baseline))
        return own


def require_ran(
    arm: Arm, described: EngineFacts, loaded: LoadedFacts, context: ContextFacts | None
) -> Provenance:
    """An arm's proof of path, if what ran is what was asked for.

    Args:
        arm: what was to run.
        described: what the engine reports of itself.
        loaded: what the load resolved to.
        context: what the last run's context resolved to.

    Raises:
        MeasurementError: the engine did something else, or the model's files have changed.
    """
    model = arm.model
    require_unchanged(model)
    return require_path(
        Provenance(
            arm.name,
            model.path,
            model.sha256,
            described,
            loaded,
            context,
            arm.settings,
            arm.build.rows(),
            model.title,
            model.ref,
            arm.build_name,
        )
    )
