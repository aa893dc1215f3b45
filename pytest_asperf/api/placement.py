"""`assert_placement`: on which device Core ML runs a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_asperf.analysis.limit_verdict import parse_percent
from pytest_asperf.api.energy import EnergyReading
from pytest_asperf.api.measurement_context import RunningTest, require_kind, settle, unknown_word
from pytest_asperf.errors import ConfigError
from pytest_asperf.hardware.compute_plan import DEVICES, UNITS, read_plan
from pytest_asperf.verdicts.placement import ladder, placement_verdict

if TYPE_CHECKING:
    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.hardware.compute_plan import Device


def assert_placement(
    model: str | Path | EnergyReading,
    device: Device,
    *,
    at_least: str | float | None = None,
    at_most: str | float | None = None,
    observed: EnergyReading | None = None,
    gpu_path: EnergyReading | None = None,
    units: str = "ALL",
    function: str | None = None,
) -> Verdict:
    """Claim that a model's work lies on a device, by Core ML's plan and by what was observed.

    The plan is weighted by Core ML's estimate of each operation's cost. It says what is
    anticipated. With `observed` the claim is that the model ran there: besides the plan, the
    device's rail must take energy and the GPU must be near idle.

    Args:
        model: a .mlpackage, .mlmodel or .mlmodelc; or, of a program whose model has no plan, what
            was observed of it.
        device: `ANE`, `GPU` or `CPU`.
        at_least: share of the estimated cost, `"95%"` or a fraction.
        at_most: likewise.
        observed: `energy("pp512")` of the program that runs the model.
        gpu_path: the same of the same work on the GPU, whose time per token must differ.
        units: what Core ML may use: `ALL`, `CPU_AND_NE`, `CPU_AND_GPU`, `CPU_ONLY`.
        function: of a model with several.

    Raises:
        VerdictError: the verdict is not a PASS; INCONCLUSIVE where evidence that the claim needs
            is unavailable.
        ConfigError: no limit, no such device, or something else than a model.
        ModelError: no such model.
        ElsewhereError: a plan is asked for, and this is no Mac; the test is skipped.
        HardwareError: Core ML made no plan.
    """
    __tracebackhide__ = True
    for what, word, valid in (("device", device, DEVICES), ("units", units, UNITS)):
        if word not in valid:
            raise unknown_word(what, word, valid)
    example = f'assert_placement(energy("pp512"), "{device}")'
    for given in (observed, gpu_path, *([] if isinstance(model, str | Path) else [model])):
        if given is not None:
            require_kind(given, EnergyReading, example)
    limits = tuple(
        None if limit is None else parse_percent(limit, where=f"assert_placement: {name}")
        for name, limit in (("at_least", at_least), ("at_most", at_most))
    )
    seen = model if isinstance(model, EnergyReading) else observed
    plan = None
    if isinstance(model, str | Path) and limits != (None, None):
        plan = read_plan(Path(model), units=units, function=function)
    elif not isinstance(model, EnergyReading) or limits != (None, None):
        raise ConfigError(
            "assert_placement: a share without a plan, or a plan without a share",
            why="limits are of the share that a plan places on the device",
            remedy='write assert_placement("m.mlpackage", "ANE", at_least="95%"), or '
            'assert_placement(energy("pp512"), "ANE") without a limit',
        )
    result = None if seen is None else seen.result
    other = None if gpu_path is None else gpu_path.result
    name = result.ran.model if plan is None and result is not None else Path(str(model)).name
    rungs = ladder(device, plan, (limits[0], limits[1]), result, other)
    verdict = placement_verdict(name, rungs, device, plan, result)
    return settle(verdict, RunningTest() if seen is None else seen.measurement.record)
