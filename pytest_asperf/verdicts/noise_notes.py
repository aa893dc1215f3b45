"""Remarks on the machine's noise beside a verdict on pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.estimate import percent_text
from pytest_asperf.analysis.stats.sequential import detectable_tolerance
from pytest_asperf.analysis.stats.sequential_frame import GATE_ALPHA

if TYPE_CHECKING:
    from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs
    from pytest_asperf.measure.noise import Calibration


def gate_note(pairs: WorkloadPairs, result: ABResult) -> str:
    """Remarks on this machine whatever the verdict, one a line.

    They say when its noise is not known or exceeds the tolerance, and how self-checks came out.
    """
    known = result.surroundings.calibrations.get(pairs.workload.name)
    suffices = known is not None and _suffices(known, result)
    # What a noise lets be decided is known of a tolerance.
    remarks = [] if suffices or not result.budget.is_gate else [detectable(pairs, result)]
    checks = result.surroundings.self_checks
    if checks.n:
        remarks.append(f"A/A self-checks on this machine: {checks.fails} FAIL of {checks.n}")
    return "\n".join((*fitness(result), *remarks))


def disturbances(result: ABResult) -> tuple[str, ...]:
    """The disturbances of the machine during the pairs, or just before them, one remark each.

    What was watched during them needs no remark on the moment before.
    """
    watched = result.surroundings.watched
    disturbing = [c for c in result.surroundings.conditions if c.state == "disturbing"]
    before = [c for c in disturbing if c.name not in watched.knows]
    return (
        *(f"disturbing before the gate: {c.name}: {c.detail}" for c in before),
        *watched.remarks_on_pairs,
    )


def _suffices(known: Calibration, result: ABResult) -> bool:
    """True if the budget can decide the tolerance on a machine of this noise."""
    return result.budget.tolerance >= detectable_tolerance(known.spread, result.budget.max_pairs)


def detectable(pairs: WorkloadPairs, result: ABResult) -> str:
    """The tolerance that this machine can decide within the budget."""
    calibrations = result.surroundings.calibrations
    known = calibrations.get(pairs.workload.name)
    if known is None:
        # Of all workloads at once, so that the remark comes once.
        names = [p.workload.name for p in result.by_workload if p.workload.name not in calibrations]
        options = " ".join(f"--workload={name}" for name in names)
        return (
            f"this machine is not calibrated for {', '.join(names)}: run asperf calibrate {options}"
        )
    max_pairs = result.budget.max_pairs
    least = percent_text(detectable_tolerance(known.spread, max_pairs))
    basis = (
        f"A/A spread {percent_text(known.spread)} on {known.model}, {known.pairs} pairs of "
        f"{known.measured_on}"
    )
    if _suffices(known, result):
        return f"{max_pairs} pairs can decide a tolerance of {least} on this machine ({basis})"
    return (
        f"the tolerance of {percent_text(result.budget.tolerance)} is below {least}, the least "
        f"that {max_pairs} pairs of {pairs.workload.name} can decide on this machine ({basis})"
    )


def fitness(result: ABResult) -> tuple[str, ...]:
    """A warning where self-checks show that this machine FAILs equal builds too often."""
    checks = result.surroundings.self_checks
    if checks.floor <= GATE_ALPHA:
        return ()
    rate = (
        f"{percent_text(checks.floor, 2)} of its gates ({checks.fails} of {checks.n} self-checks)"
    )
    verdict = f"this machine is not fit for gating: equal builds FAIL in at least {rate}"
    return (f"{verdict}, and a gate allows {100 * GATE_ALPHA:g} %; do not trust its verdicts",)
