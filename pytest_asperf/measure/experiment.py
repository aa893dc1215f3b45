"""Experiments, and the lease of this machine that they run on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pytest_asperf.hardware.watch import MachineWatch
from pytest_asperf.measure.feeding import Corpus, read_corpus
from pytest_asperf.measure.metered import EnergyMeter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.builds.build_cache import ReadyBuild
    from pytest_asperf.config.engine_settings import EngineSettings
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.progress import Progress
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.engine_process import Worker
    from pytest_asperf.measure.noise import NoiseStore
    from pytest_asperf.modelfiles.locate import LocatedModel

Result_co = TypeVar("Result_co", covariant=True)
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Arm:
    """A model and the build that runs it."""

    name: str  #: its name for readers: the model, and the build if that distinguishes it
    build: ReadyBuild  #: its engine, ready to be started
    settings: EngineSettings  #: engine settings of the model in this variant
    model: LocatedModel  #: the model file
    #: its own workload if it differs from the pair's, otherwise None
    workload: Workload | None = None
    build_name: str = ""  #: the user's name for the build; empty for asperf's own one

    @property
    def ref(self) -> ModelRef:
        """The model as requested."""
        return self.model.ref


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """How much is measured."""

    repetitions: int = 10
    chunks: int | None = 40  #: number of chunks for PPL, or None for the whole corpus
    seed: int = 0
    call_timeout_s: float = 600.0  #: deadline of one call to an engine
    wait_s: float = 600.0  #: time to wait for another measurement on this machine
    #: gates of a machine of which one is preceded by a self-check, or None
    self_check_every: int | None = None


class KeptProcess(Protocol):
    """A process with models loaded that may stay for the next experiment."""

    worker: Worker

    def close(self) -> None:
        """End it."""


Kept = TypeVar("Kept", bound=KeptProcess)


class KeptProcesses:
    """Processes that stay for the next experiment of the same use, one for each use."""

    def __init__(self) -> None:
        self._by_use: dict[str, KeptProcess] = {}

    def get(self, use: str, fits: Callable[[Kept], bool], start: Callable[[], Kept]) -> Kept:
        """The process of a use, if it fits; otherwise a new one in its place."""
        kept: Kept | None = self._by_use.get(use)  # type: ignore[assignment]  # put by this use
        if kept is None or not kept.worker.alive or not fits(kept):
            self._close(use)
            kept = self._by_use[use] = start()
        return kept

    def close(self) -> None:
        """End all of them."""
        for use in list(self._by_use):
            self._close(use)

    def _close(self, use: str) -> None:
        if (kept := self._by_use.pop(use, None)) is not None:
            kept.close()


@dataclass(frozen=True)
class MachineLease:
    """The lease with which an experiment measures."""

    #: the variants, baseline first; each with one entry for every model that it runs
    sides: tuple[tuple[Arm, ...], ...]
    shipped_corpus: Path  #: the text for models that name none of their own
    plan: MeasurementPlan  #: how much is measured
    #: called with a label, steps done, the maximum of steps, and the figure so far
    progress: Progress
    noise: Callable[[], NoiseStore]  #: opens the record of this machine's noise
    #: samples the machine during the lease
    watch: MachineWatch = field(default_factory=MachineWatch)
    #: opens the energy counters of this machine
    energy_meter: Callable[[], EnergyMeter] = EnergyMeter.here
    kept: KeptProcesses = field(default_factory=KeptProcesses)  #: processes of earlier experiments

    @cached_property
    def corpus(self) -> Corpus:
        """The text that the first model is fed from."""
        return self.corpus_of(self.sides[0][0])

    def corpus_of(self, arm: Arm) -> Corpus:
        """The text that a model is fed from."""
        return read_corpus(arm.ref.spec, self.shipped_corpus)


def shown(estimate: Estimate) -> str:
    """An estimate for a progress line: without a word about an interval that is not there yet."""
    return estimate.text() if estimate.has_interval else estimate.text().partition(" (")[0]


class Experiment(Protocol[Result_co]):
    """A measurement of one or two variants.

    It is hashable: equal experiments on equal variants are run once a session.
    """

    def __hash__(self) -> int:
        """A key that differs from the keys of other kinds of experiments."""

    def run(self, lease: MachineLease) -> Result_co:
        """Measure.

        Raises:
            EngineError: a process died or reported an error.
            MeasurementError: the measurement is broken.
        """


class SharedProcess:
    """An experiment whose process may be kept for the next one.

    Other experiments start their own processes, and nothing else is loaded at that time.
    """


class OfAnyModel:
    """An experiment that may have a meaning for an encoder too, which does not continue a text."""

    @property
    def timed(self) -> Sequence[Workload]:
        """The workloads that it times."""
        return ()


@dataclass(frozen=True, slots=True)
class Visit(Generic[Result_co]):
    """One of the measurements that continue each other until something is decided.

    The budget depends on the clock, so it is not part of the experiment's identity.
    """

    number: int = 0  #: from 0
    #: seconds of it after which nothing further is begun
    max_seconds: float = field(default=math.inf, compare=False)
    #: the result of the visit before, None for the first
    earlier: Result_co | None = field(default=None, compare=False)
    #: seconds of it up to which pairs go on if that will decide them
    most_seconds: float = field(default=0.0, compare=False)

    def of_part(self, earlier: Part | None = None, *, spent_s: float = 0.0) -> Visit[Part]:
        """This visit as one to a part of the experiment, less the seconds already spent.

        `earlier` is the part's result in the visit before.
        """
        left = (max(0.0, limit - spent_s) for limit in (self.max_seconds, self.most_seconds))
        max_seconds, most_seconds = left
        return Visit(self.number, max_seconds, earlier, most_seconds)

    def seed(self, seed: int) -> int:
        """The seed of this visit's random order: no visit repeats the order of an earlier one."""
        return seed + 1_000_003 * self.number


class PairedExperiment(Experiment[Result_co], Protocol[Result_co]):
    """An experiment of two variants, either of which can be tried alone."""

    def attempt(self, lease: MachineLease) -> None:
        """Run its smallest unit in the lease's only variant; EngineError if that cannot run it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """True if one variant can run the smallest unit of an experiment."""

    experiment: PairedExperiment[object]  #: the experiment
    number: int  #: distinguishes it from earlier trials: a result is kept for the session
    #: deadline of one call to the engine, if that is less than the lease's
    patience_s: float = math.inf

    def run(self, lease: MachineLease) -> float:
        """Run the trial; returns its seconds. EngineError if the variant cannot run it."""
        began = time.monotonic()
        timeout_s = min(self.patience_s, lease.plan.call_timeout_s)
        plan = replace(lease.plan, call_timeout_s=timeout_s)
        self.experiment.attempt(replace(lease, plan=plan))
        return time.monotonic() - began


def takes_encoders(experiment: Experiment[object], engine: Engine) -> bool:
    """True if an experiment, or the one that is tried, has a meaning for an encoder.

    Only the library times an encoder's prompt: programs and servers want logits of it.
    """
    tried = experiment.experiment if isinstance(experiment, Trial) else experiment
    return isinstance(tried, OfAnyModel) and all(
        engine == "llama_cpp" and workload.is_of_encoders for workload in tried.timed
    )
