"""The arms of a comparison: a build and a model file each, in a process each."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from pytest_asperf.builds.build_cache import ReadyBuild
from pytest_asperf.engine_process import Worker
from pytest_asperf.errors import EngineError
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.throughput import time_workload, workload_tokens
from pytest_asperf.measure.validity import require_numbers, require_path, require_unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from contextlib import ExitStack

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

#: What the model is called inside an arm's process.
MODEL: Final = "model"


@dataclass(frozen=True, slots=True)
class Arm:
    """A model and the build that runs it.

    Attributes:
        name: what a reader calls it: the model, and the build where that tells it apart.
        build: its engine, ready to be started.
        settings: engine settings of the model in this arm.
        model: the model file.
        workload: what it runs in place of what a pair is named by, None for the same.
    """

    name: str
    build: ReadyBuild
    settings: EngineSettings
    model: LocatedModel
    workload: Workload | None = None


class TimedArm(Protocol):
    """A running arm, as the pairs of a comparison see it."""

    @property
    def worker(self) -> Worker:
        """The process."""

    @property
    def loaded(self) -> LoadedFacts:
        """What the last load resolved to."""

    def fed(self, workload: Workload) -> object:
        """The tokens or prompts of the workload, to compare between the arms."""

    def run(self, workload: Workload, turn: int, parts: int) -> RawRun:
        """Time one run, or one of its parts; the same turn is the same work in both arms."""

    def reload(self) -> float:
        """Load the model again; gives the time that took in seconds."""

    def ran(self, context: ContextFacts | None) -> Provenance:
        """The proof of path, with what the last run's context resolved to.

        Raises:
            MeasurementError: the engine did something else than was asked for.
        """


Opened = TypeVar("Opened", bound="TimedArm | RunningArm")


def open_together(stack: ExitStack, open_arms: Sequence[Callable[[], Opened]]) -> list[Opened]:
    """Start arms at once, as nothing is timed yet; the stack ends them.

    Raises:
        EngineError: one could not be started; the others are ended too.
    """
    pool = ThreadPoolExecutor(len(open_arms))
    futures = [pool.submit(open_arm) for open_arm in open_arms]
    pool.shutdown(wait=False)
    try:
        wait(futures)
    except BaseException:  # as Ctrl-C, which is not to wait for a load
        for future in futures:
            future.add_done_callback(_end_arm)
        raise
    for future in futures:
        stack.callback(_end_arm, future)
    return [future.result() for future in futures]


def _end_arm(opened: Future[Opened]) -> None:
    if not opened.exception():
        opened.result().worker.close()


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

    def ready(self, build: Build | None) -> ReadyBuild:
        """Make a build; the own one is there.

        Raises:
            BuildError: it cannot be made.
        """
        if build is None:
            return ReadyBuild(self._own)
        return self._build_cache.ready(build, self._own.engine)

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
        return Arm(f"{ref.title} in {build.name}", ready, settings.merged(build.settings), model)

    def _locator(self, baseline: EngineBuild) -> ModelLocator:
        own = self._locators[self._own]
        try:
            own.describe()
        except EngineError:
            return self._locators.setdefault(baseline, own.on(baseline))
        return own


class RunningArm:
    """An arm's process, with the model loaded.

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
        """Load the model; gives the time that took in seconds."""
        began = time.perf_counter()
        self.loaded = self.worker.load(MODEL, self._arm.model.path, self._arm.settings)
        elapsed_s = time.perf_counter() - began
        self.ran(None)
        return elapsed_s

    def reload(self) -> float:
        """Load the model again; gives the time that took in seconds."""
        self.worker.unload(MODEL)
        return self.load()

    def fed(self, workload: Workload) -> Sequence[int]:
        """The tokens that a workload is fed with."""
        workload = self._arm.workload or workload
        if workload not in self._tokens:
            self._tokens[workload] = workload_tokens(self.worker, MODEL, self._corpus, workload)
        return self._tokens[workload]

    def run(self, workload: Workload, turn: int, parts: int) -> RawRun:
        """Time one run of a workload; of a generation in parts the next one, in turn."""
        workload = self._arm.workload or workload
        tokens = self.fed(workload)
        if parts == 1:
            run = time_workload(self.worker, MODEL, tokens, workload)
        else:
            n_tokens = workload.n_tokens // parts
            first = workload.depth + turn % parts * n_tokens
            part = tokens[: first + n_tokens]
            run = self.worker.generate(MODEL, part, first, n_ctx=workload.n_ctx)
        return require_numbers(f"{workload.name} {self._arm.name}", run)

    def ran(self, context: ContextFacts | None) -> Provenance:
        """The proof of path, with what the last run's context resolved to.

        Raises:
            MeasurementError: the engine did something else than was asked for.
        """
        return require_ran(self._arm, self._described, self.loaded, context)


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
        )
    )
