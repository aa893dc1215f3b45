"""What this machine's noise is: gates of a build against itself, kept for the gates to come.

What a busy machine shows is printed and not kept: every later gate would be held to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.estimate import percent_text
from pytest_asperf.analysis.stats.pairs_needed import detectable_tolerance, is_fit, unfit_text
from pytest_asperf.errors import printable
from pytest_asperf.measure.ab_speed import Budget, SpeedExperiment
from pytest_asperf.measure.calibration import calibration_of
from pytest_asperf.report.sections import CheckLine, Section, condition_check

if TYPE_CHECKING:
    from pytest_asperf.config.spec import Build, ModelRef
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.hardware.conditions import Condition
    from pytest_asperf.measure.runner import MeasurementRunner
    from pytest_asperf.measure.surroundings import Calibration

#: Budgets that the table speaks of: a short gate's, and the default.
_BUDGETS = (20, 60)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What a calibration found.

    Attributes:
        sections: it, in words, with what disturbed.
        is_kept: whether gates will be held to it.
    """

    sections: tuple[Section, ...]
    is_kept: bool


def calibrate(
    runner: MeasurementRunner,
    build: Build,
    ref: ModelRef,
    workloads: tuple[Workload, ...],
    *,
    pairs: int,
    tolerance: float,
    seed: int,
) -> Calibrated:
    """Hold a build against itself, and keep what the pairs show of the machine's noise.

    Nothing is kept where other processes kept cores busy, or where it is too noisy for any gate.

    Args:
        runner: measures.
        build: the build.
        ref: the model.
        workloads: what is timed.
        pairs: how many pairs, whatever they show.
        tolerance: slowdown that gates accept.
        seed: of the pairs' order.

    Raises:
        AsperfError: it cannot be measured, or kept.
        KeyboardInterrupt: it was stopped; nothing is kept.
    """
    budget = Budget(tolerance, pairs, math.inf, seed, min_pairs=pairs)
    experiment = SpeedExperiment(workloads, budget, len(workloads))
    result = runner.compare(runner.under((ref,), (build, build)), experiment)
    if result.interrupted:
        raise KeyboardInterrupt
    found = [calibration_of(pairs, result, ref.label) for pairs in result.by_workload]
    conditions = result.surroundings.conditions
    refused = _refused(found, conditions)
    if not refused:
        runner.noise.keep(found)
    disturbing = tuple(condition_check(c) for c in conditions if c.state == "disturbing")
    sections = (
        *(calibration_section(calibration, tolerance) for calibration in found),
        *([Section("disturbing", disturbing)] if disturbing else []),
        *([Section("not kept", refused)] if refused else []),
    )
    return Calibrated(sections, is_kept=not refused)


def _refused(found: list[Calibration], conditions: tuple[Condition, ...]) -> tuple[CheckLine, ...]:
    """Return why this machine cannot be calibrated now."""
    reasons = [c.detail for c in conditions if (c.name, c.state) == ("load", "disturbing")]
    reasons += [f"{c.workload}: {unfit_text(c.spread)}" for c in found if not is_fit(c.spread)]
    remedy = "stop other work (asperf doctor names what disturbs), then calibrate again"
    return tuple(
        CheckLine(
            "busy", "impossible", f"this machine is too busy to be calibrated: {reason}", remedy
        )
        for reason in map(printable, reasons)
    )


def calibration_section(found: Calibration, tolerance: float) -> Section:
    """Return what a calibration found, in words, and whether gates of a tolerance can use it."""
    position = (
        f"the second run of a pair takes {100 * found.position:+.2f} % "
        f"[{100 * found.position_low:.2f}, {100 * found.position_high:.2f}] against the first"
    )
    return Section(
        f"{found.workload} {found.model}, {printable(found.engine)}",
        (
            CheckLine(
                "spread", "ok", f"{percent_text(found.spread)} from pair to pair ({found.pairs})"
            ),
            CheckLine("position", "ok", position),
            _load_check(found),
            _detectable_check(found, tolerance),
        ),
    )


def _detectable_check(found: Calibration, tolerance: float) -> CheckLine:
    least = [detectable_tolerance(found.spread, pairs) for pairs in _BUDGETS]
    told = [f"{percent_text(t)} in {n} pairs" for t, n in zip(least, _BUDGETS, strict=True)]
    detail = f"a tolerance of {', '.join(told)}"
    if least[-1] <= tolerance:
        return CheckLine("detectable", "ok", detail)
    remedy = (
        f"gates here accept {percent_text(tolerance)}: quieten the machine (asperf doctor), allow "
        "more pairs, or accept more"
    )
    return CheckLine("detectable", "warning", detail, remedy)


def _load_check(found: Calibration) -> CheckLine:
    if found.load_sd is None:
        detail = "cannot be told: needs a load for each run, and several repeats in it"
        remedy = (
            "calibrate a shorter workload too, such as --workload=tg32, of a model quick to load"
        )
        return CheckLine("loads", "unknown", detail, remedy)
    return CheckLine("loads", "ok", f"{percent_text(found.load_sd)} from load to load")
