"""The two sides of a gate: a build and a model file each, in a process each."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from pytest_asperf.builds.build_cache import ReadyBuild
from pytest_asperf.engine_process import Worker
from pytest_asperf.errors import EngineError
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.throughput import time_workload, workload_tokens
from pytest_asperf.measure.validity import require_numbers, require_path, require_unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_asperf.builds.build_cache import BuildCache
    from pytest_asperf.config.engine_settings import EngineSettings
    from pytest_asperf.config.spec import Build, ModelRef
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.engine_process import (
        ContextFacts,
        EngineBuild,
        EngineFacts,
        LoadedFacts,
        RawRun,
    )
    from pytest_asperf.measure.corpus import Corpus
    from pytest_asperf.measure.model_locator import LocatedModel, ModelLocator

#: What the model is called inside a side's process.
MODEL: Final = "model"


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a gate, before it runs.

    Attributes:
        name: what a reader calls it: the model, and the build where that tells it apart.
        build: its engine, ready to be started.
        settings: engine settings of the model in this arm.
        model: the model file.
    """

    name: str
    build: ReadyBuild
    settings: EngineSettings
    model: LocatedModel


@dataclass(frozen=True, slots=True)
class MachineLease:
    """What measuring two arms needs of the machine, while it is held for that.

    Attributes:
        arms: baseline and candidate of each model.
        corpus: the text that the first model is fed from.
        timeout_s: deadline of one call to an engine.
        progress: told a label, steps done and steps at most.
    """

    arms: tuple[tuple[Arm, Arm], ...]
    corpus: Corpus
    timeout_s: float
    progress: Callable[[str, int, int], None]


class TimedArm(Protocol):
    """One arm at work, as the pairs of a gate see it."""

    @property
    def worker(self) -> Worker:
        """The process."""

    @property
    def loaded(self) -> LoadedFacts:
        """What the last load resolved to."""

    def fed(self, workload: Workload) -> object:
        """Return what the workload is fed with, to be compared with the other arm's."""

    def run(self, workload: Workload, turn: int) -> RawRun:
        """Time one run; the same turn is the same work in both arms."""

    def reload(self) -> float:
        """Load the model anew, and return how long that took in seconds."""

    def ran(self, context: ContextFacts | None) -> Provenance:
        """Return the proof of path, given what the last run's context resolved to.

        Raises:
            MeasurementError: the engine says that it did something else than was asked.
        """


class ArmFactory:
    """Fits out the two sides of gates: their builds made, and one model file for both.

    Args:
        own: the build that measures what is no gate.
        locator: its models.
        build_cache: makes the builds that gates name.
    """

    def __init__(self, own: EngineBuild, locator: ModelLocator, build_cache: BuildCache) -> None:
        self._own = own
        self._build_cache = build_cache
        self._shelves = {own: locator}

    def own_arm(self, ref: ModelRef) -> Arm:
        """Return a side that is a model under the own build."""
        model = self._shelves[self._own].locate(ref)
        return Arm(ref.title, ReadyBuild(self._own), ref.spec.settings, model)

    def arms(self, ref: ModelRef, builds: tuple[Build, Build]) -> tuple[Arm, Arm]:
        """Return the sides that hold two builds against each other on one model.

        Raises:
            AsperfError: a build or the model cannot be made.
        """
        ready = [self._build_cache.ready(build, self._own.engine) for build in builds]
        model = self._locator(ready[0].engine).locate(ref)
        base, candidate = (
            Arm(
                f"{ref.title} in {build.name}",
                each,
                ref.spec.settings.merged(build.settings),
                model,
            )
            for build, each in zip(builds, ready, strict=True)
        )
        return base, candidate

    def _locator(self, baseline: EngineBuild) -> ModelLocator:
        """Return what makes models: the own engine, or the baseline where there is none."""
        own = self._shelves[self._own]
        try:
            own.describe()
        except EngineError:
            return self._shelves.setdefault(baseline, own.on(baseline))
        return own


class RunningArm:
    """One arm at work: its process, with the model loaded.

    Args:
        arm: what runs.
        timeout_s: deadline of one call to the engine.
        corpus: the text that workloads are fed from.

    Attributes:
        worker: the process.
        loaded: what the last load resolved to.
    """

    def __init__(self, arm: Arm, timeout_s: float, corpus: Corpus) -> None:
        self._arm = arm
        self._corpus = corpus
        self._tokens: dict[Workload, list[int]] = {}
        self.worker = Worker(arm.build.engine, call_timeout_s=timeout_s)
        try:
            self._described = self.worker.describe()
            self.load()
        except BaseException:
            self.worker.close()
            raise

    def load(self) -> float:
        """Load the model, and return how long that took in seconds."""
        began = time.perf_counter()
        self.loaded = self.worker.load(MODEL, self._arm.model.path, self._arm.settings)
        elapsed_s = time.perf_counter() - began
        self.ran(None)
        return elapsed_s

    def reload(self) -> float:
        """Load the model anew, and return how long that took in seconds."""
        self.worker.unload(MODEL)
        return self.load()

    def fed(self, workload: Workload) -> Sequence[int]:
        """Return the tokens that a workload is fed with."""
        if workload not in self._tokens:
            self._tokens[workload] = workload_tokens(self.worker, MODEL, self._corpus, workload)
        return self._tokens[workload]

    def run(self, workload: Workload, turn: int) -> RawRun:  # noqa: ARG002  # all turns are alike
        """Time one run of a workload."""
        run = time_workload(self.worker, MODEL, self.fed(workload), workload)
        return require_numbers(f"{workload.name} {self._arm.name}", run)

    def ran(self, context: ContextFacts | None) -> Provenance:
        """Return the proof of path.

        Args:
            context: what the last run's context resolved to.

        Raises:
            MeasurementError: the engine says that it did something else than was asked.
        """
        return require_ran(self._arm, self._described, self.loaded, context)


def require_ran(
    arm: Arm, described: EngineFacts, loaded: LoadedFacts, context: ContextFacts | None
) -> Provenance:
    """Return an arm's proof of path.

    Args:
        arm: what was to run.
        described: what the engine says of itself.
        loaded: what the load resolved to.
        context: what the last run's context resolved to.

    Raises:
        MeasurementError: the engine says that it did something else than was asked, or the model's
            files have changed.
    """
    require_unchanged(arm.model)
    model, made = arm.model, arm.build.rows()
    return require_path(
        Provenance(
            arm.name,
            model.path,
            model.sha256,
            described,
            loaded,
            context,
            arm.settings,
            made,
            model.title,
        )
    )
