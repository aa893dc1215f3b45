"""The `energy` fixture and `assert_energy`: joules per token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from pytest_asperf.analysis.limit_verdict import LimitForm, judge_within
from pytest_asperf.analysis.stats.estimate import RATIO
from pytest_asperf.analysis.stats.intervals import independent_change
from pytest_asperf.analysis.verdict import Subject, guarded
from pytest_asperf.api.figure import Figure
from pytest_asperf.api.measurement_context import (
    FixtureValue,
    NoTruthValue,
    require_kind,
    settle,
    unknown_word,
)
from pytest_asperf.config.workload import DEFAULT_WORKLOAD, metered, parse_workload
from pytest_asperf.errors import HardwareError
from pytest_asperf.hardware.meters.meter import RAILS
from pytest_asperf.measure.energy import EnergyExperiment
from pytest_asperf.measure.runner import ComparedSide
from pytest_asperf.measure.validity import require_valid
from pytest_asperf.report.energy_row import energy_row
from pytest_asperf.verdicts.energy import (
    busy_host,
    coverage_findings,
    disagreements,
    energy_notes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_asperf.analysis.guards import GuardFinding
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.api.measurement_context import MeasurementContext
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.hardware.meters.meter import Rail
    from pytest_asperf.measure.energy import EnergyResult

_EXAMPLE: Final = 'assert_energy(energy("tg128"), at_most="0.5 J/token")'
#: All rails together, where they are the machine's.
_MACHINE: Final = "machine"
_JOULES: Final = LimitForm(
    "assert_energy",
    "an energy of a token",
    {"mJ/token": 1e-3, "J/token": 1.0},
    '"0.5 J/token", "20 mJ/token" or 0.5, which is in J',
)


@dataclass(frozen=True)
class Energy(FixtureValue):
    """The `energy` fixture: call it with the name of one phase, `tg128` or `pp512`.

    Attributes:
        of: the same of another model, by its address or role.
    """

    ref: ModelRef
    measurement: MeasurementContext
    of: Callable[[str], Energy]

    example: ClassVar = _EXAMPLE

    def __repr__(self) -> str:
        return f"<Energy of {self.ref.title}>"

    def __call__(self, workload: str = DEFAULT_WORKLOAD) -> EnergyReading:
        """Measure a workload; skips the test where no energy counter can be read.

        Raises:
            AsperfError: it cannot be measured.
        """
        parsed = metered(parse_workload(workload, where="energy", any_cost=True), where="energy")
        runner = self.measurement.runner
        try:
            runner.energy_meter()
        except HardwareError as error:
            self.measurement.skip(f"{error.what}; {error.remedy}")
        experiment = EnergyExperiment(parsed, runner.plan.repetitions)
        result = runner.compare((ComparedSide(runner, (self.ref,)),), experiment)
        guard_findings = (*result.watched.guard_findings, *disagreements(result.phases))
        require_valid(f"{parsed.name} {result.ran.model}", guard_findings, result.watched)
        remarks = (*energy_notes(result.phases), *map(str, guard_findings))
        self.measurement.record(energy_row(result, "\n".join(remarks)))
        return EnergyReading(result, self.measurement)


@dataclass(frozen=True)
class EnergyReading(NoTruthValue):
    """The energy of one workload on one model, by rail.

    Attributes:
        measured: every window of every counter, for what only shows or combines them.
    """

    measured: EnergyResult
    measurement: MeasurementContext

    example: ClassVar = _EXAMPLE

    def __repr__(self) -> str:
        what = f"{self.measured.workload.name}, {', '.join(self.rails)}"
        return f"<EnergyReading {what}: {self.measured.joules_per_token(None).text()}>"

    @property
    def result(self) -> EnergyResult:
        """Every window of every counter."""
        self.measurement.record.used()
        return self.measured

    @property
    def rails(self) -> tuple[Rail, ...]:
        """The rails that have a figure, of `package`, `cpu`, `gpu`, `ane` and `dram`."""
        return self.measured.rails

    @property
    def unmeasured(self) -> dict[str, str]:
        """Why each other rail has none."""
        return {m.rail: m.reason for m in self.measured.phases[-1].unmeasured}

    def joules_per_token(self, rail: str | None = None, *, net: bool = False) -> Estimate:
        """J per token of a rail, or of all that have a figure.

        Args:
            rail: its name.
            net: without what the idle machine, with the model loaded, takes in the same time.

        Raises:
            ConfigError: no such rail.
            HardwareError: the rail has no figure.
        """
        return self.result.joules_per_token(self.known(rail), net=net)

    def watts(self, rail: str | None = None) -> Estimate:
        """Mean power of a rail, or of all that have a figure.

        Raises:
            ConfigError: no such rail.
            HardwareError: the rail has no figure.
        """
        return self.result.watts(self.known(rail))

    def power(self, rail: str | None = None, *, over: EnergyReading | None = None) -> Figure:
        """Mean power of a rail, or of all, in W; or as a multiple of another reading's.

        Raises:
            ConfigError: no such rail.
            HardwareError: the rail has no figure, or the two readings have not the same rails.
        """
        return _figure("power", [self] if over is None else [self, over], rail)

    def energy(self, *, over: EnergyReading) -> Figure:
        """The energy of a token, all rails counted, as a multiple of another reading's.

        Raises:
            HardwareError: the two readings have not the same rails.
        """
        return _figure("energy", [self, over])

    def known(self, rail: str | None) -> Rail | None:
        """The rail of a name; None for all.

        Raises:
            ConfigError: no such rail.
            HardwareError: it has no figure.
        """
        if rail is None:
            return None
        if rail not in RAILS:
            raise unknown_word("rail", rail, RAILS)
        for known in self.rails:
            if known == rail:
                return known
        raise HardwareError(
            f"{rail} has no figure: {self.unmeasured.get(rail, 'nothing here measures it')}",
            why="no estimate stands for a measurement",
            remedy=f"claim a rail that has one: {', '.join(self.rails)}",
        )


def assert_energy(
    reading: EnergyReading,
    *,
    at_most: str | float | None = None,
    at_least: str | float | None = None,
    rail: str | None = None,
    net: bool = False,
) -> Verdict:
    """Claim that a token's energy lies within limits.

    Without a rail, the measured rails together are judged, and the claim names them.

    Args:
        reading: a measurement, `energy("tg128")`.
        at_most: upper limit, `"0.5 J/token"`, `"20 mJ/token"` or a number of J.
        at_least: lower limit, likewise.
        rail: `package`, `cpu`, `gpu`, `ane` or `dram`; `machine` for all of them, which is INVALID
            where the processor, or a GPU that works, is not measured.
        net: judge the energy without what the idle machine takes in the same time.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no measurement, no limit, one that is no energy of a token, or no such rail.
        HardwareError: the rail has no figure here.
    """
    __tracebackhide__ = True
    require_kind(reading, EnergyReading, _EXAMPLE)
    low, high = _JOULES.read(at_least, "at_least"), _JOULES.read(at_most, "at_most")
    result = reading.result
    estimate = reading.joules_per_token(None if rail == _MACHINE else rail, net=net)
    of = rail or " + ".join(reading.rails)
    kind = "net of idle" if net else "gross"
    name = f"energy of {_phase_name(result)} {result.ran.model} ({of}, {kind})"
    subject = Subject(name, "live", result.ran.rows())
    verdict = judge_within(estimate, subject, at_least=low, at_most=high)
    verdict = replace(verdict, details=energy_notes(result.phases))
    findings = _findings(result, rail or "", reading.rails)
    return settle(guarded(verdict, findings), reading.measurement.record)


def _phase_name(result: EnergyResult) -> str:
    return replace(result.workload, metered=False).name


def _figure(what: str, readings: Sequence[EnergyReading], rail: str | None = None) -> Figure:
    """The power or energy of a reading, or its ratio to that of another."""
    rails = [rail] if rail else _shared_rails(readings)
    found = [_found(what, r, rail) for r in readings]
    estimate = found[0]
    if len(found) > 1:
        estimate = replace(independent_change(found[1], found[0]).as_ratio(), unit=RATIO)
    phases = " / ".join(f"{_phase_name(r.measured)} {r.measured.ran.model}" for r in readings)
    findings = [finding for r in readings for finding in busy_host(rails, r.measured.watched)]
    ran = readings[0].measured.ran.rows()
    subject = Subject(f"{what} of {phases} ({' + '.join(rails)})", "live", ran)
    return Figure(subject, estimate, readings[0].measurement.record, tuple(findings))


def _found(what: str, reading: EnergyReading, rail: str | None) -> Estimate:
    if what == "power":
        return reading.measured.watts(reading.known(rail))
    return reading.measured.joules_per_token(None)


def _shared_rails(readings: Sequence[EnergyReading]) -> list[str]:
    """The rails of readings together.

    A counter that stood still in one and moved in another is alive, and counts as 0 W there.
    """
    rails = [rail for rail in RAILS if any(rail in reading.rails for reading in readings)]
    for reading in readings:
        idle = {counter.rail for counter in reading.measured.phases[-1].still}
        for rail in rails:
            if rail not in reading.rails and rail not in idle:
                reading.known(rail)  # refuses it, and says why
    return list(rails)


def _findings(result: EnergyResult, rail: str, rails: Sequence[Rail]) -> list[GuardFinding]:
    """What voids a claim about a rail, about the machine, or about all rails that there are."""
    on_gpu = result.ran.loaded.layers_offloaded > 0
    coverage = coverage_findings(result.phases, on_gpu=on_gpu) if rail == _MACHINE else ()
    judged = (rail,) if rail in rails else rails
    return [*busy_host(judged, result.watched), *coverage]
