"""Measures each distinct request once a session, one at a time on the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Self, TypeVar

from pytest_asperf.builds.build_cache import BuildCache, ReadyBuild
from pytest_asperf.config.progress import NOTHING_YET, Notify, SoFar
from pytest_asperf.config.spec import Build, ModelRef, ModelSpec
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import EngineBuild, EngineFacts, EngineRefusedError
from pytest_asperf.errors import NOTE_ERROR, AsperfError, BuildError, EngineError
from pytest_asperf.hardware.in_force import detect
from pytest_asperf.hardware.machine_lock import MachineQueue
from pytest_asperf.hardware.watch import MachineWatch
from pytest_asperf.measure.ab_speed import ABResult, Budget, SpeedExperiment, continued
from pytest_asperf.measure.experiment import (
    Arm,
    Experiment,
    KeptProcesses,
    MachineLease,
    MeasurementPlan,
    SharedProcess,
    takes_encoders,
)
from pytest_asperf.measure.ladder import LadderExperiment
from pytest_asperf.measure.metered import EnergyMeter
from pytest_asperf.measure.noise import NoiseStore
from pytest_asperf.measure.results import LadderResult, ThroughputResult
from pytest_asperf.measure.running_arms import most_parts
from pytest_asperf.measure.throughput import ThroughputExperiment
from pytest_asperf.modelfiles.locate import LocatedModel, ModelLocator, same_model, source_state

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One variant of a comparison."""

    runner: MeasurementRunner  #: of the engine
    refs: tuple[ModelRef, ...]  #: the models that run together: one, or a target and its draft
    build: Build | None = None  #: the build, None for the runner's own
    #: its own workload if it differs from the experiment's, otherwise None
    workload: Workload | None = None


class _ArmFactory:
    """Makes the builds and model files of variants; those that name no build have the `own` one."""

    def __init__(self, own: EngineBuild, locator: ModelLocator, build_cache: BuildCache) -> None:
        self._own = own
        self._build_cache = build_cache
        self._locators = {own: locator}

    def require(self, build: Build | None) -> None:
        """Reject a build that can neither be found nor made, and one that is there and unusable.

        Raises:
            BuildError: it does not exist.
            EngineError: its engine is not installed, or has other libraries than it needs.
        """
        if build is not None and (found := self._build_cache.existing(build, self._own.engine)):
            self.require_set_up(self._keyed(found))

    def require_set_up(self, ready: ReadyBuild) -> None:
        """Start a build once, so that a missing part is an error before anything waits for it.

        A build that crashes is an observation, which the experiment makes.

        Raises:
            BuildError: no server answers at its address.
            EngineError: a part of it is missing, or does not fit the others.
        """
        try:
            self._described(ready)
        except EngineRefusedError as error:
            if error.is_of_setup:
                raise
            if ready.engine.url is not None:
                remedy = "start the server, or correct its address or key"
                raise BuildError(error.what, remedy=remedy) from error
        except EngineError:
            return

    def _described(self, ready: ReadyBuild) -> EngineFacts:
        locator = self._locators.get(ready.engine) or self._locators[self._own].on(ready.engine)
        return self._locators.setdefault(ready.engine, locator).describe()

    def known(self, build: Build) -> EngineFacts | None:
        """The facts of a build; None if it is not made, or does not start."""
        try:
            found = self._build_cache.existing(build, self._own.engine)
            return self._described(self._keyed(found)) if found else None
        except AsperfError:
            return None

    def ready(self, build: Build | None) -> ReadyBuild:
        """Make a build; the own one is there; BuildError if it cannot be made."""
        if build is None:
            return ReadyBuild(self._own)
        return self._keyed(self._build_cache.ready(build, self._own.engine))

    def _keyed(self, ready: ReadyBuild) -> ReadyBuild:
        return replace(ready, engine=replace(ready.engine, key_variable=self._own.key_variable))

    def model(
        self, ref: ModelRef, build: Build | None, baseline: Callable[[], ReadyBuild]
    ) -> LocatedModel:
        """Locate a model of a build, by default the own one.

        `baseline` gives the build that makes the file where the own engine is missing.
        """
        own = self._locators[self._own]
        try:
            return own.locate(ref)
        except EngineError:
            if build is None or self._is_usable(own):
                raise
        engine = baseline().engine
        return self._locators.setdefault(engine, own.on(engine)).locate(ref)

    @staticmethod
    def _is_usable(locator: ModelLocator) -> bool:
        try:
            locator.describe()
        except EngineError:
            return False
        return True


class MeasurementRunner:
    """Measures on one engine; a context manager that ends its workers.

    `corpus` is for models that name no text of their own.
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
        self._arm_factory = _ArmFactory(
            build,
            self._locator,
            BuildCache(
                cache,
                lock_path=lock_path,
                notify=notify,
                wait_s=plan.wait_s,
                nice=build.nice,
                python=build.python,
            ),
        )
        self._kept = KeptProcesses()
        self._energy_meter: EnergyMeter | None = None
        self._done: dict[object, object] = {}
        #: For each two variants, the assertions about them and their pairs so far.
        self._pairs: dict[object, tuple[int, ABResult]] = {}
        self._stopwatch = _Stopwatch()

    @cached_property
    def noise(self) -> NoiseStore:
        """The measured noise of this machine."""
        return NoiseStore(self._cache, detect())

    def describe(self) -> EngineFacts:
        """The engine's report about itself."""
        return self._locator.describe()

    def locate(self, ref: ModelRef) -> LocatedModel:
        """A model's file, made if need be."""
        return self._locator.locate(ref)

    def source_sha256(self, spec: ModelSpec) -> str | None:
        """The hash of a model's source files, None if it is unknown."""
        return self._locator.source_sha256(spec)

    def throughput(self, ref: ModelRef, workload: Workload) -> ThroughputResult:
        """Time one workload on one model."""
        return self.throughputs((ref,), workload)[ref]

    def throughputs(
        self, refs: tuple[ModelRef, ...], workload: Workload
    ) -> dict[ModelRef, ThroughputResult]:
        """Time one workload on several models, interleaved."""
        return self.measure(refs, ThroughputExperiment(workload))

    def measure(self, refs: tuple[ModelRef, ...], experiment: Experiment[Result]) -> Result:
        """Run an experiment on models under the runner's own build."""
        return self.compare((ComparedSide(self, refs),), experiment)

    def ladder(
        self, base: ModelRef, rungs: tuple[ModelRef, ...], at_most: int | None = None
    ) -> LadderResult:
        """Score variants of a model against a baseline, on at most so many chunks."""

        def measure() -> LadderResult:
            located = self.locate(base)
            failures: dict[ModelRef, AsperfError] = {}
            for ref in rungs:
                try:
                    same_model(located, self.locate(ref))
                except AsperfError as err:
                    failures[ref] = err
            usable = tuple(ref for ref in rungs if ref not in failures)
            if not usable:
                return LadderResult({}, failures)
            result = self.measure((base, *usable), LadderExperiment(at_most))
            return replace(result, failures={**failures, **result.failures})

        return self._once((base, *rungs), ("ladder", at_most), measure)

    def compare(
        self,
        sides: tuple[ComparedSide, ...],
        experiment: Experiment[Result],
        status: Callable[[], tuple[str, float | None]] = lambda: ("", None),
    ) -> Result:
        """Run an experiment; if it starts processes of its own, asperf loads nothing else.

        Args:
            sides: baseline and candidate; or one variant, for experiments that compare its runs.
            experiment: the measurement.
            status: gives which of several comparisons it is, and seconds until all are over.
        """

        def measure() -> Result:
            arms = _arms(sides)
            for arm in chain(*arms):
                if not takes_encoders(experiment, arm.build.engine.engine):
                    arm.model.require_causal()
            is_shared = isinstance(experiment, SharedProcess)
            if not is_shared:
                # Idle processes would use memory and cache that the variants need.
                self._kept.close()
            for side in sides:
                if side.runner is not self:
                    side.runner.close()
            names = [arm.name for arm, *_ in reversed(arms)] if len(arms) > 1 else []

            def progress(label: str, done: int, total: int, so_far: SoFar = NOTHING_YET) -> None:
                place, left_s = status()
                what = sides[0].refs[0].title if left_s is not None else " vs ".join(names)
                so_far = replace(so_far, place=place, left_s=left_s)
                self._notify.progress(f"{label} {what}".rstrip(), done, total, so_far)

            watch = MachineWatch()
            watching = nullcontext() if is_shared else watch
            with self._queue.turn(), self._stopwatch, watching:
                lease = MachineLease(
                    arms,
                    self._corpus,
                    self.plan,
                    progress,
                    lambda: self.noise,
                    watch,
                    self.energy_meter,
                    self._kept,
                )
                return experiment.run(lease)

        refs = tuple(ref for side in sides for ref in side.refs)
        return self._once(refs, (sides, experiment), measure)

    def paired(self, sides: tuple[ComparedSide, ComparedSide], budget: Budget) -> ABResult:
        """Pairs of two variants until the budget's assertion is decided.

        Pairs of an earlier assertion about the same variants, in either order, count, and are not
        run again.

        Args:
            sides: baseline and candidate, each with its workload.
            budget: the assertion's limits, and the cost limit of all pairs together.
        """
        key, swapped = (
            (order, tuple(source_state(ref) for side in order for ref in side.refs))
            for order in (sides, sides[::-1])
        )
        number, earlier = self._pairs.get(key, (0, None))
        if earlier is None and swapped in self._pairs:
            number, other = self._pairs[swapped]
            earlier = other.swapped()
        if earlier is None:
            # A pair is divided into parts that both variants have.
            workload = min((side.workload for side in sides if side.workload), key=most_parts)
            result = self.compare(sides, SpeedExperiment((workload,), budget))
        else:
            experiment = continued(earlier, budget, number)
            known = experiment.visit.earlier
            is_decided = known is None or known.by_workload[0].test.outcome is not None
            if known is not None and (is_decided or not experiment.visit.max_seconds):
                return known
            result = self.compare(sides, experiment)
        self._pairs[key] = number + 1, result
        return result

    def under(
        self, refs: tuple[ModelRef, ...], builds: tuple[Build, Build]
    ) -> tuple[ComparedSide, ComparedSide]:
        """The same models under two builds, baseline first."""
        base, candidate = builds
        return ComparedSide(self, refs, base), ComparedSide(self, refs, candidate)

    def known(self, builds: Iterable[Build]) -> list[EngineFacts]:
        """The facts of these builds, without those that are not made or do not start."""
        return [facts for build in builds if (facts := self._arm_factory.known(build))]

    def energy_meter(self) -> EnergyMeter:
        """The energy counters of this machine, opened the first time; HardwareError without any."""
        if self._energy_meter is None:
            self._energy_meter = EnergyMeter.here()
        return self._energy_meter

    def measured_s(self) -> float:
        """Seconds that comparisons took so far, without waiting and without making models."""
        return self._stopwatch.seconds()

    def say(self, text: str) -> None:
        """Show a remark at once, if there is one."""
        if text:
            self._notify.say(text)

    def close(self) -> None:
        """End the workers."""
        self._kept.close()
        if self._energy_meter is not None:
            self._energy_meter.close()
            self._energy_meter = None

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
            NOTE_ERROR.get()(done)  # it may be of another test, or of a thread
            raise done.with_traceback(None)  # each test's own, not those before it too
        return done  # type: ignore[return-value]  # stored under this key by this very call


class _Stopwatch:
    """Adds up the seconds of its `with` blocks."""

    def __init__(self) -> None:
        self._total_s = 0.0
        self._began: float | None = None

    def seconds(self) -> float:
        """Seconds so far, those of an open block too."""
        return self._total_s + (0.0 if self._began is None else time.monotonic() - self._began)

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._total_s, self._began = self.seconds(), None


def _arms(sides: tuple[ComparedSide, ...]) -> tuple[tuple[Arm, ...], ...]:
    """The builds and models of the variants.

    Builds are looked up and models located before a build is made, and the machine is waited for.
    """
    factories = [side.runner._arm_factory for side in sides]  # noqa: SLF001  # its own module
    for factory, side in zip(factories, sides, strict=True):
        factory.require(side.build)
    baseline = partial(factories[0].ready, sides[0].build)
    models = [
        [factory.model(ref, side.build, baseline) for ref in side.refs]
        for factory, side in zip(factories, sides, strict=True)
    ]
    ready = [factory.ready(side.build) for factory, side in zip(factories, sides, strict=True)]
    for factory, side, build in zip(factories, sides, ready, strict=True):
        if side.build is not None:
            factory.require_set_up(build)
    return tuple(
        tuple(_arm(side, build, model) for model in located)
        for side, build, located in zip(sides, ready, models, strict=True)
    )


def _arm(side: ComparedSide, ready: ReadyBuild, model: LocatedModel) -> Arm:
    title, settings, build = model.ref.title, model.ref.spec.settings, side.build
    if build is None:
        return Arm(title, ready, settings, model, side.workload)
    settings = settings.merged(build.settings)
    return Arm(f"{title} in {build.name}", ready, settings, model, side.workload, build.name)
