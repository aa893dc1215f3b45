"""What runs in the arms of a comparison while the machine is held for it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pytest_asperf.hardware.watch import MachineWatch
from pytest_asperf.measure.corpus import read_corpus
from pytest_asperf.measure.metered import EnergyMeter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.config.progress import Progress
    from pytest_asperf.measure.ab_arms import Arm
    from pytest_asperf.measure.corpus import Corpus
    from pytest_asperf.measure.noise_store import NoiseStore

Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True)
class MachineLease:
    """What an experiment measures with.

    Attributes:
        sides: the arms, baseline first; of each side one for every model that it runs.
        shipped_corpus: the text for models that name none of their own.
        call_timeout_s: deadline of one call to an engine.
        progress: takes a label, steps done, steps at most, and what is known so far.
        noise: opens the record of this machine's noise.
        watch: samples the machine as long as it is held.
        energy_meter: opens the energy counters of this machine.
        chunks: chunks of the corpus that PPL is taken over, or None for all.
        self_check_every: gates of this machine of which one is preceded by a self-check, or None.
    """

    sides: tuple[tuple[Arm, ...], ...]
    shipped_corpus: Path
    call_timeout_s: float
    progress: Progress
    noise: Callable[[], NoiseStore]
    watch: MachineWatch = field(default_factory=MachineWatch)
    chunks: int | None = None
    self_check_every: int | None = None
    energy_meter: Callable[[], EnergyMeter] = EnergyMeter.here

    @cached_property
    def corpus(self) -> Corpus:
        """The text that the first model is fed from."""
        return read_corpus(self.sides[0][0].model.ref.spec, self.shipped_corpus)


def shown(estimate: Estimate) -> str:
    """An estimate for a progress line: without a word about an interval that is not there yet."""
    return estimate.text() if estimate.has_interval else estimate.text().partition(" (")[0]


class Experiment(Protocol[Result_co]):
    """A measurement of one or two sides.

    It is hashable: equal experiments on equal sides are run once a session.
    """

    def __hash__(self) -> int:
        """Tell it from experiments that measure something else."""

    def run(self, lease: MachineLease) -> Result_co:
        """Measure.

        Raises:
            EngineError: an arm died or refused.
            MeasurementError: what was measured is broken.
        """


@dataclass(frozen=True, slots=True)
class Visit(Generic[Result_co]):
    """One of the measurements that continue each other until something is decided.

    What it may cost depends on the clock, and so makes it no other measurement.

    Attributes:
        number: from 0.
        max_seconds: seconds of it after which nothing further is begun.
        earlier: what the visit before came to, None for the first.
    """

    number: int = 0
    max_seconds: float = field(default=math.inf, compare=False)
    earlier: Result_co | None = field(default=None, compare=False)

    def seed(self, seed: int) -> int:
        """The seed of this visit's random order: no visit repeats the coins of another."""
        return seed + 1_000_003 * self.number


class PairedExperiment(Experiment[Result_co], Protocol[Result_co]):
    """An experiment of two sides, of which either can be tried by itself."""

    def attempt(self, lease: MachineLease) -> None:
        """Do the smallest unit of it with the lease's one side.

        Raises:
            EngineError: the side cannot do it.
        """


@dataclass(frozen=True, slots=True)
class Trial:
    """Whether one side can do the smallest unit of an experiment.

    Attributes:
        experiment: the experiment.
        number: tells it from earlier ones: a result is kept for the session.
        patience_s: deadline of one call to the engine, if that is less than the lease's.
    """

    experiment: PairedExperiment[object]
    number: int
    patience_s: float = math.inf

    def run(self, lease: MachineLease) -> float:
        """Try it; gives the time that it took in seconds.

        Raises:
            EngineError: the side cannot do it.
        """
        began = time.monotonic()
        timeout_s = min(self.patience_s, lease.call_timeout_s)
        self.experiment.attempt(replace(lease, call_timeout_s=timeout_s))
        return time.monotonic() - began
