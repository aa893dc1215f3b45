"""What this machine's noise is: gates of a build against itself, kept for the gates to come."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_asperf.checks import Check, Section, condition_check
from pytest_asperf.errors import printable
from pytest_asperf.measure.gate import Budget
from pytest_asperf.measure.noise import calibration_of
from pytest_asperf.stats.pairs_needed import detectable_tolerance

if TYPE_CHECKING:
    from pytest_asperf.measure.lab import Lab
    from pytest_asperf.measure.noise import Calibration
    from pytest_asperf.spec import Build, ModelRef, Workload

#: Budgets that the table speaks of: a short gate's, and the default.
_BUDGETS = (20, 60)


def calibrate(
    lab: Lab,
    build: Build,
    ref: ModelRef,
    workloads: tuple[Workload, ...],
    *,
    pairs: int,
    tolerance: float,
    seed: int,
) -> tuple[Section, ...]:
    """Hold a build against itself, keep what the pairs show of the machine's noise, and return it.

    Args:
        lab: measures.
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
    duel = lab.duel(ref, workloads, (build, build), budget, len(workloads))
    if duel.interrupted:
        raise KeyboardInterrupt
    found = [calibration_of(contest, duel, ref.label) for contest in duel.contests]
    lab.noise.keep(found)
    conditions = duel.surroundings.conditions
    disturbing = tuple(condition_check(c) for c in conditions if c.state == "disturbing")
    return (
        *(calibration_section(calibration) for calibration in found),
        *([Section("disturbing", disturbing)] if disturbing else []),
    )


def calibration_section(found: Calibration) -> Section:
    """Return what a calibration found, in words."""
    position = (
        f"the second run of a pair takes {100 * found.position:+.2f} % "
        f"[{100 * found.position_low:.2f}, {100 * found.position_high:.2f}] against the first"
    )
    least = [
        f"{100 * detectable_tolerance(found.spread, pairs):.2g} % in {pairs} pairs"
        for pairs in _BUDGETS
    ]
    return Section(
        f"{found.workload} {found.model}, {printable(found.engine)}",
        (
            Check("spread", "ok", f"{100 * found.spread:.2g} % from pair to pair ({found.pairs})"),
            Check("position", "ok", position),
            _load_check(found),
            Check("detectable", "ok", f"a tolerance of {', '.join(least)}"),
        ),
    )


def _load_check(found: Calibration) -> Check:
    if found.load_sd is None:
        detail = "cannot be told: needs a load for each run, and several repeats in it"
        remedy = (
            "calibrate a shorter workload too, such as --workload=tg32, of a model quick to load"
        )
        return Check("loads", "unknown", detail, remedy)
    return Check("loads", "ok", f"{100 * found.load_sd:.2g} % from load to load")
