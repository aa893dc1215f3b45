"""This machine's noise, from a build compared with itself, kept for later gates.

The noise of a busy machine is printed but not kept: every later gate would rely on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.estimate import percent_text
from pytest_asperf.analysis.stats.sequential import detectable_tolerance, is_fit, unfit_text
from pytest_asperf.commands.gate_request import GateOptions, read_request
from pytest_asperf.errors import ConfigError, printable
from pytest_asperf.gate.schedule import cost_text, expected_costs
from pytest_asperf.measure.ab_speed import Budget, SpeedExperiment, calibration_of
from pytest_asperf.report.sections import CheckLine, Section, condition_check

if TYPE_CHECKING:
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.spec import Build, ModelRef
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.hardware.conditions import Condition
    from pytest_asperf.measure.noise import Calibration
    from pytest_asperf.measure.runner import MeasurementRunner
    from pytest_asperf.measure.workspace import Workspace

#: Pairs that the table speaks of: a short gate's, and a long one's.
_BUDGETS = (20, 60)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The result of a calibration in words, its disturbances, and whether gates will use it."""

    sections: tuple[Section, ...]
    is_kept: bool


def measured_noise(
    runner: MeasurementRunner,
    build: Build,
    ref: ModelRef,
    workloads: tuple[Workload, ...],
    *,
    pairs: int,
    tolerance: float,
    seed: int,
) -> Calibrated:
    """Compare a build with itself in so many pairs, and keep the machine's noise that they show.

    Nothing is kept where other processes kept cores busy, or if it is too noisy for any gate.
    """
    budget = Budget(tolerance, pairs, math.inf, seed, min_pairs=pairs)
    experiment = SpeedExperiment(workloads, budget, len(workloads))
    result = runner.compare(runner.under((ref,), (build, build)), experiment)
    if result.interrupted:
        raise KeyboardInterrupt
    calibrations = [calibration_of(pairs, result, ref.label) for pairs in result.by_workload]
    conditions = result.surroundings.conditions
    refused = _refused(calibrations, conditions)
    if not refused:
        runner.noise.keep(calibrations)
    disturbing = tuple(condition_check(c) for c in conditions if c.state == "disturbing")
    sections = (
        *(calibration_section(calibration, tolerance) for calibration in calibrations),
        *([Section("disturbing", disturbing)] if disturbing else []),
        *([Section("not kept", refused)] if refused else []),
    )
    return Calibrated(sections, is_kept=not refused)


def gate_cost(runner: MeasurementRunner, project: Workspace, engine: Engine) -> tuple[Section, ...]:
    """The cost of the default gate by the stored noise; empty without default models."""
    options = GateOptions("current", "current", engine=engine)
    try:
        request = read_request(options, project)
    except ConfigError:  # as of an engine that runs no shipped model
        return ()
    cells = request.plan(runner).cells
    costs = expected_costs(cells, runner.noise.calibrations, request.limits.budget)
    return (Section("the default gate", (CheckLine("cost", "ok", cost_text(cells, costs)),)),)


def _refused(
    calibrations: list[Calibration], conditions: tuple[Condition, ...]
) -> tuple[CheckLine, ...]:
    """Why this machine cannot be calibrated now."""
    reasons = [c.detail for c in conditions if (c.name, c.state) == ("load", "disturbing")]
    reasons += [
        f"{c.workload}: {unfit_text(c.spread)}" for c in calibrations if not is_fit(c.spread)
    ]
    remedy = "stop other work (asperf doctor names what disturbs), then calibrate again"
    return tuple(
        CheckLine(
            "busy", "impossible", f"this machine is too busy to be calibrated: {reason}", remedy
        )
        for reason in map(printable, reasons)
    )


def calibration_section(calibration: Calibration, tolerance: float) -> Section:
    """The result of a calibration, and whether gates of a tolerance can use it."""
    position = (
        f"the second run of a pair costs {100 * calibration.position:+.2f} % "
        f"[{100 * calibration.position_low:.2f}, {100 * calibration.position_high:.2f}] "
        "against the first"
    )
    return Section(
        f"{calibration.workload} {calibration.model}, {printable(calibration.engine)}",
        (
            CheckLine(
                "spread",
                "ok",
                f"{percent_text(calibration.spread)} from pair to pair ({calibration.pairs})",
            ),
            CheckLine("position", "ok", position),
            _load_check(calibration),
            _detectable_check(calibration, tolerance),
        ),
    )


def _detectable_check(calibration: Calibration, tolerance: float) -> CheckLine:
    tolerances = [detectable_tolerance(calibration.spread, pairs) for pairs in _BUDGETS]
    texts = [f"{percent_text(t)} in {n} pairs" for t, n in zip(tolerances, _BUDGETS, strict=True)]
    detail = f"a tolerance of {', '.join(texts)}"
    if tolerances[-1] <= tolerance:
        return CheckLine("detectable", "ok", detail)
    remedy = (
        f"gates here accept {percent_text(tolerance)}: quieten the machine (asperf doctor), allow "
        "more pairs, or accept more"
    )
    return CheckLine("detectable", "warning", detail, remedy)


def _load_check(calibration: Calibration) -> CheckLine:
    if calibration.load_sd is None:
        detail = "unknown: it needs a load for each run, and several repeats in it"
        remedy = (
            "calibrate a shorter workload too, such as --workload=tg32, of a model quick to load"
        )
        return CheckLine("loads", "unknown", detail, remedy)
    return CheckLine("loads", "ok", f"{percent_text(calibration.load_sd)} from load to load")
