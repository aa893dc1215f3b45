"""J per token of one workload on one model: windows one after the other, and the idle machine."""

import random
from dataclasses import dataclass, replace
from typing import Final

from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.stats.intervals import mean_interval_t
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import MeasurementError
from pytest_asperf.hardware.meters.meter import Rail
from pytest_asperf.hardware.watch import Watched
from pytest_asperf.measure.experiment import MachineLease
from pytest_asperf.measure.metered import MeteredRun, PhaseEnergy
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.running_arms import RunningArm
from pytest_asperf.measure.validity import require_valid

#: Total length of a measurement's windows; they are never fewer than the minimum.
_ALL_WINDOWS_S: Final = 30.0
_LEAST_WINDOWS: Final = 3


@dataclass(frozen=True)
class EnergyResult:
    """The energy of one workload on one model."""

    workload: Workload
    idle: PhaseEnergy  #: the machine with the model loaded and nothing to do, just before
    phases: tuple[PhaseEnergy, ...]  #: of the workload, in the order they ran
    ran: Provenance  #: the run record
    watched: Watched  #: the machine during them

    @property
    def rails(self) -> tuple[Rail, ...]:
        """The rails that every phase has a figure of."""
        every = [set(phase.rails) for phase in self.phases]
        return tuple(rail for rail in self.phases[0].rails if all(rail in one for one in every))

    def watts(self, rail: Rail | None = None, *, net: bool = False) -> Estimate:
        """Mean power of a rail, or of all that were measured, in W; net of the idle machine's."""
        idle_w = self.idle.watts(rail) if net else 0.0
        return self._over_windows([phase.watts(rail) - idle_w for phase in self.phases], "W")

    @property
    def token_s(self) -> list[float]:
        """Time of a token, by phase."""
        return [phase.wall_s / phase.n_tokens for phase in self.phases]

    def why_unmeasured(self, rail: Rail) -> str:
        """Why a rail has no figure."""
        reasons = {missing.rail: missing.reason for missing in self.phases[-1].unmeasured}
        return reasons.get(rail, "nothing here measures it")

    def joules_per_token(self, rail: Rail | None = None, *, net: bool = False) -> Estimate:
        """Energy per token; net of the idle machine's energy in the same time."""
        idle_w = self.idle.watts(rail) if net else 0.0
        values = [phase.joules_per_token(rail, idle_w=idle_w) for phase in self.phases]
        return self._over_windows(values, "J/token")

    def _over_windows(self, values: list[float], unit: str) -> Estimate:
        estimate = mean_interval_t(values, unit=unit, counted="windows")
        covers = "it covers the windows of one load, not how loads differ"
        return replace(estimate, method=f"{estimate.method}; {covers}")


@dataclass(frozen=True, slots=True)
class EnergyExperiment:
    """Measures the energy of a workload in the lease's only variant."""

    workload: Workload  #: one that is metered
    most_windows: int  #: windows at most

    def run(self, lease: MachineLease) -> EnergyResult:
        """Measure; a HardwareError if no counter can be read here."""
        ((arm,),) = lease.sides
        meter = lease.energy_meter()
        with RunningArm(arm, lease) as running:
            running.warm_up(self.workload, 0, 1)
            idle = meter.idle()
            running.warm_up(self.workload, 0, 1)  # clocks fell
            phases: list[PhaseEnergy] = []
            while not phases or len(phases) < self._n_windows(phases[0]):
                lease.progress(self.workload.name, len(phases), self.most_windows)
                run = running.run(self.workload, 0, 1)
                if not isinstance(run, MeteredRun):
                    raise MeasurementError(
                        f"{self.workload.name} has no energy", remedy="use jtg128 or jpp512"
                    )
                phases.append(run.phase)
            ran = running.ran(run.context)
            examined = running.examine_last(random.Random(len(phases)))  # noqa: S311  # no secret
        if examined:
            require_valid(f"{self.workload.name} {ran.model}", examined.findings)
        return EnergyResult(self.workload, idle, tuple(phases), ran, lease.watch.seen())

    def _n_windows(self, first: PhaseEnergy) -> int:
        fitting = int(_ALL_WINDOWS_S / first.wall_s)
        return max(_LEAST_WINDOWS, min(self.most_windows, fitting))
