"""The `energy` fixture: joules per token, and watts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

from pytest_asperf.analysis.stats.estimate import RATIO
from pytest_asperf.analysis.verdict import Subject, Verdict
from pytest_asperf.api.measurement_context import (
    MeasurementContext,
    ModelUnderTest,
    OfWorkload,
    unknown_word,
)
from pytest_asperf.api.quantity import Apart, Found, Judged, Quantity, Sign, joined_name, noted
from pytest_asperf.api.timed import TimedQuantity
from pytest_asperf.config.workload import Workload, metered, not_one_phase, parse_workload
from pytest_asperf.errors import HardwareError
from pytest_asperf.hardware.compute_plan import DEVICES, Device
from pytest_asperf.hardware.meters.meter import RAILS, Rail
from pytest_asperf.measure.energy import EnergyExperiment, EnergyResult
from pytest_asperf.measure.runner import ComparedSide
from pytest_asperf.measure.validity import require_valid
from pytest_asperf.records.taken import energy_record
from pytest_asperf.verdicts.energy import busy_host, coverage_findings, disagreements, energy_notes
from pytest_asperf.verdicts.placement import ladder, placement_verdict

#: All rails together, if they are the machine's.
_MACHINE: Final = "machine"


@dataclass(frozen=True, eq=False, repr=False)
class EnergyFigure(TimedQuantity):
    """The energy of a workload's token, J/token; or the mean power, W.

    Attributes:
        of_rail: the rail that it is of; `machine` for all of them, which is INVALID if the
            processor, or a GPU that works, is not measured; empty for those that have a figure.
        is_net: True subtracts the idle machine's energy in the same time.
    """

    of_rail: str = ""
    is_net: bool = False

    example: ClassVar = 'assert energy("tg128") <= "0.5 J/token"'

    def rail(self, rail: str) -> EnergyFigure:
        """The energy on one rail, `package`, `cpu`, `gpu`, `ane` or `dram`, or on the `machine`.

        Raises:
            ConfigError: no such rail.
            HardwareError: when it is compared, the rail has no figure.
        """
        if rail not in {*RAILS, _MACHINE}:
            raise unknown_word("rail", rail, (*RAILS, _MACHINE))
        return energy_of(self.variant, self.workload, self.unit, rail, is_net=self.is_net)

    @property
    def net(self) -> EnergyFigure:
        """The energy less that of the idle machine with the model loaded."""
        return energy_of(self.variant, self.workload, self.unit, self.of_rail, is_net=True)

    @property
    def power(self) -> EnergyFigure:
        """The mean power in the phase, or over a whole request, W."""
        return energy_of(self.variant, self.workload, "W", self.of_rail, is_net=self.is_net)

    @property
    def rails(self) -> tuple[Rail, ...]:
        """The rails that have a figure here."""
        rails = measured_energy(self.variant, self.workload).rails
        self.record.used()
        return rails

    def ran_on(self, device: Device, *, unlike: EnergyFigure | None = None) -> Verdict:
        """True if the model ran on a device: energy on its rail, and a GPU near idle.

        Args:
            device: `ANE`, `GPU` or `CPU`.
            unlike: the same work on the GPU, whose time per token must differ.

        Raises:
            ConfigError: no such device.
            AsperfError: it cannot be measured.
        """
        __tracebackhide__ = True
        require_device(device)
        seen = measured_energy(self.variant, self.workload)
        other = None if unlike is None else measured_energy(unlike.variant, unlike.workload)
        rungs = ladder(device, observed=seen, gpu_path=other)
        verdict = placement_verdict(seen.ran.model, rungs, device, None, seen)
        return noted(Judged(verdict), self.record)

    @property
    def side(self) -> ComparedSide:
        """The build or variant that runs for it in pairs. Skips the test without a counter."""
        _require_phase(self.workload, self.unit)
        _require_counter(self.variant.measurement)
        return super().side

    def _in_pairs(self, other: Quantity, sign: Sign) -> Quantity | None:
        if not isinstance(other, EnergyFigure):
            return None
        if not any(e.of_rail or e.is_net or e.unit == "W" for e in (self, other)):
            return super()._in_pairs(other, sign)
        unit = RATIO if sign == "/" else self.unit
        return _OfSameRails(joined_name(self, sign, other), unit, self.record, self, other, sign)


@dataclass(frozen=True, eq=False, repr=False)
class _OfSameRails(Apart):
    """Two figures of energy that were measured apart."""

    def find(self) -> Found:
        """Measure both; an error if a rail has a figure of only one of them.

        If a rail's counter moves for only one of the two, it works, and the other one counts as 0
        W.
        """
        results = {
            side: measured_energy(side.variant, side.workload)
            for side in (self.first, self.second)
            if isinstance(side, EnergyFigure) and not side.of_rail
        }
        rails = {rail for result in results.values() for rail in result.rails}
        for result in results.values():
            idle = {counter.rail for counter in result.phases[-1].still}
            for rail in sorted(rails - {*result.rails, *idle}):
                _known_rail(result, rail)  # raises the error with its reason
        return super().find()


def energy_of(
    variant: ModelUnderTest, workload: Workload, unit: str, rail: str = "", *, is_net: bool = False
) -> EnergyFigure:
    """The energy, or the power, of a variant in one phase."""
    on, net = f" on {rail}" * bool(rail), " net of idle" * is_net
    name = f"{_kind(unit)} of {_phase(workload)} {variant.title}{on}{net}"
    measure = partial(_found, variant, workload, unit, rail, is_net=is_net)
    record, about = variant.measurement.record, variant.ref
    return EnergyFigure(name, unit, record, measure, variant, workload, rail, is_net, about=about)


def measured_energy(variant: ModelUnderTest, workload: Workload) -> EnergyResult:
    """Every window of every counter; skips the test if no energy counter can be read."""
    measurement, runner = variant.measurement, variant.measurement.runner
    _require_counter(measurement)
    experiment = EnergyExperiment(workload, runner.plan.repetitions)
    result = runner.compare((variant.side(),), experiment)
    guard_findings = (*result.watched.guard_findings, *disagreements(result.phases))
    require_valid(f"{workload.name} {result.ran.model}", guard_findings, result.watched)
    note = "\n".join(energy_notes(result.phases))
    measurement.record(energy_record(result, guard_findings, note))
    return result


def _found(
    variant: ModelUnderTest, workload: Workload, unit: str, of: str, *, is_net: bool
) -> Found:
    _require_phase(workload, unit)
    result = measured_energy(variant, workload)
    rail = _known_rail(result, of)
    rails = (rail,) if rail else result.rails
    if unit == "W":
        estimate = result.watts(rail, net=is_net)
    else:
        estimate = result.joules_per_token(rail, net=is_net)
    findings = [*busy_host(rails, result.watched)]
    if of == _MACHINE:
        on_gpu = result.ran.loaded.layers_offloaded > 0
        findings += coverage_findings(result.phases, on_gpu=on_gpu)
    kind = "net of idle" if is_net else "gross"
    name = f"{_kind(unit)} of {_phase(workload)} {result.ran.model}"
    subject = Subject(f"{name} ({of or ' + '.join(rails)}, {kind})", "live", result.ran.rows())
    return Found(estimate, subject, tuple(findings), remarks=tuple(energy_notes(result.phases)))


def _require_phase(workload: Workload, unit: str) -> None:
    """Reject J per token of a whole request, which are of no phase, with a ConfigError."""
    if workload.kind == "request" and unit != "W":
        raise not_one_phase(workload, "energy")


def _require_counter(measurement: MeasurementContext) -> None:
    """Skip the test if no energy counter can be read."""
    try:
        measurement.runner.energy_meter()
    except HardwareError as error:
        measurement.skip(f"{error.what}; {error.remedy}")


def _known_rail(result: EnergyResult, rail: str) -> Rail | None:
    """The rail of a name; None for all that have a figure."""
    if rail in {"", _MACHINE}:
        return None
    for known in result.rails:
        if known == rail:
            return known
    reasons = {missing.rail: missing.reason for missing in result.phases[-1].unmeasured}
    reason = next((text for name, text in reasons.items() if name == rail), "nothing measures it")
    raise HardwareError(
        f"{rail} has no figure: {reason}",
        why="no estimate replaces a measurement",
        remedy=f"name a rail that has one: {', '.join(result.rails)}",
    )


def require_device(device: str) -> None:
    """Reject a name that is no device of Core ML, with a ConfigError."""
    if device not in DEVICES:
        raise unknown_word("device", device, DEVICES)


def _kind(unit: str) -> str:
    return "power" if unit == "W" else "energy"


def _phase(workload: Workload) -> str:
    return replace(workload, metered=False).name


class Energy(OfWorkload[EnergyFigure]):
    """The `energy` fixture: call it with the name of one phase, `tg128` or `pp512`.

    A whole request, `pp512+tg128`, has a `power` only.
    """

    example: ClassVar = EnergyFigure.example

    def _quantity(self, variant: ModelUnderTest, workload: str) -> EnergyFigure:
        return energy_of(variant, metered_phase(workload), "J/token")


def metered_phase(workload: str) -> Workload:
    """The workload of one phase or request, with its energy judged; ConfigError if it is none."""
    timed = parse_workload(workload, where="energy", any_cost=True)
    return metered(timed, where="energy", may_be_request=True)
