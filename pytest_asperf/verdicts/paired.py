"""The common part of verdicts on two variants in pairs; remarks on the machine's noise."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import Consequence, GuardFinding
from pytest_asperf.analysis.results import AnyResult
from pytest_asperf.analysis.stats.estimate import Estimate, counted_text, percent_text
from pytest_asperf.analysis.stats.ratio_test import RatioTest
from pytest_asperf.analysis.stats.sequential import PairedTest, detectable_tolerance
from pytest_asperf.analysis.stats.sequential_frame import GATE_ALPHA
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, guarded
from pytest_asperf.errors import Advice
from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs
from pytest_asperf.measure.noise import Calibration
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.served_answers import ExaminedAnswers
from pytest_asperf.measure.timed_work import NOT_EXAMINED, ExaminedRun

Examined: TypeAlias = ExaminedRun | ExaminedAnswers


def examined_verdict(verdict: Verdict, pairs: WorkloadPairs, result: ABResult) -> Verdict:
    """The verdict on pairs, unless the timed runs of a variant did not do their work.

    INVALID if they did not; FAIL if only the candidate's did not and both had the same work. An
    unbelievable gain of runs that were not examined is INCONCLUSIVE.
    """
    if not pairs.pairs or pairs.workload.kind == "sd" or pairs.workload.is_load:
        return verdict  # the output of speculation is judged itself
    base, candidate = pairs.examined or (None, None)
    of_base = base.findings if base else ()
    of_candidate = candidate.findings if candidate else ()
    if base and candidate and _same_logits(result):
        unlike = _unlike(base, candidate)
        of_candidate = (*of_candidate, *([unlike] if unlike else []))
    verdict = replace(verdict, details=(*verdict.details, *_shown(base, candidate)))
    found = (*_named("baseline", of_base), *_named("candidate", of_candidate))
    guarded_verdict = guarded(verdict, found)
    if _same_logits(result) and _invalidates(of_candidate) and not _invalidates(of_base):
        return replace(guarded_verdict, outcome=Outcome.FAIL)
    if _same_settings(result) and not (base and candidate):
        finding = guards.unchecked_gain(1 / pairs.typical_ratio)
        return guarded(guarded_verdict, [finding] if finding else [])
    return guarded_verdict


def _unlike(base: Examined, candidate: Examined) -> GuardFinding | None:
    """Signs that the candidate's results are not the baseline's."""
    if isinstance(base, ExaminedRun) and isinstance(candidate, ExaminedRun):
        return candidate.unlike(base)
    if isinstance(base, ExaminedAnswers) and isinstance(candidate, ExaminedAnswers):
        return candidate.unlike(base)
    return None


def _named(side: str, findings: Iterable[GuardFinding]) -> Iterator[GuardFinding]:
    return (replace(finding, found=f"{side}: {finding.found}") for finding in findings)


def _invalidates(findings: Iterable[GuardFinding]) -> bool:
    return any(finding.consequence is Consequence.INVALID for finding in findings)


def _same_logits(result: ABResult) -> bool:
    """True if both variants compute one text with equal weights and types of cache."""
    base, candidate = result.ran
    types = base.requested.kv_types == candidate.requested.kv_types
    return types and base.sha256 == candidate.sha256 and result.same_tokens


def _same_settings(result: ABResult) -> bool:
    """True if only the builds differ, and their requested slowdowns."""
    base, candidate = (replace(ran.requested, slow_by=None) for ran in result.ran)
    return base == candidate and _same_logits(result)


def _shown(*sides: Examined | None) -> Iterator[str]:
    """The result of examining each variant's run, one line each."""
    for side, run in zip(("baseline", "candidate"), sides, strict=True):
        yield f"{side} timed work: {run or NOT_EXAMINED}"


#: The advice if Ctrl-C ended a measurement.
AGAIN: Final = Advice("run it again to its end")


def coverage(pairs: WorkloadPairs, result: ABResult) -> str:
    """The variance that fresh processes cover, and how the order can be repeated."""
    cores = "cores drawn for each pair; " if result.draws_cores else ""
    fresh = "new processes for each pair; " if pairs.is_fresh else ""
    return f"{fresh}{cores}random order, seed {result.budget.seed}"


def ratio_of(pairs: WorkloadPairs, test: PairedTest | RatioTest) -> Estimate:
    """The ratio of a test, with its number of processes if some ran several pairs."""
    ratio = test.estimate.as_ratio()
    return ratio if pairs.is_fresh else replace(ratio, counted=f"pairs of {_processes(pairs)}")


def _processes(pairs: WorkloadPairs) -> str:
    n = pairs.n_processes
    return f"{n} process{'es' * (n > 1)}"


def build_subject(what: str, ran: tuple[Provenance, Provenance], complaint: str) -> Subject:
    """The subject of an assertion about two builds, with the run record of both."""
    base, candidate = ran
    return Subject(
        f"{what} {candidate.model} / {base.model}",
        "live",
        ran_rows(("baseline", "candidate"), ran),
        if_failed=f"the candidate is {complaint}: find the change between the builds, or accept it "
        "with another limit",
    )


def ran_rows(
    sides: tuple[str, str], ran: tuple[Provenance, Provenance]
) -> tuple[tuple[str, str], ...]:
    """The run records of two variants, with the variant's name before each label."""
    named = zip(sides, ran, strict=True)
    return tuple((f"{side} {label}", text) for side, arm in named for label, text in arm.rows())


def nothing_finished(
    subject: Subject, result: AnyResult, details: tuple[str, ...], *, stopped: bool
) -> Verdict:
    """The verdict if not one unit was finished: it was stopped from outside, or time ran out."""
    advice = AGAIN if stopped else Advice("allow more time", "max_seconds")
    return subject.verdict(Outcome.INCONCLUSIVE, result, advice=(advice,), details=details)


def advice_on_pairs(
    outcome: Outcome | None, subject: Subject, pairs_left: int | None, reason: str, *, stopped: bool
) -> tuple[Advice, ...]:
    """The advice after a verdict on pairs; the reason is why more of them might not decide."""
    if outcome is Outcome.PASS:
        return ()
    if outcome is Outcome.FAIL:
        return (Advice(subject.if_failed),)
    if stopped:
        return (AGAIN,)
    if pairs_left is None:
        text = (
            f"more pairs will not decide this: the effect lies {reason}, or the machine is too "
            "noisy. Run `asperf doctor`, or change the tolerance"
        )
        return (Advice(text),)
    more = counted_text(pairs_left, "more pairs")
    text = f"about {more} would decide it, fewer on a quieter machine (asperf doctor)"
    return (Advice(text, "max_pairs", "max_seconds"),)


def gate_note(pairs: WorkloadPairs, result: ABResult) -> str:
    """Remarks on this machine for any verdict, one a line.

    They report an unknown noise, or one above the tolerance, and the results of self-checks.
    """
    known = result.surroundings.calibrations.get(pairs.workload.name)
    suffices = known is not None and _suffices(known, result)
    # The effect of noise on decisions is known per tolerance.
    remarks = [] if suffices or not result.budget.is_gate else [detectable(pairs, result)]
    checks = result.surroundings.self_checks
    if checks.n:
        remarks.append(f"A/A self-checks on this machine: {checks.fails} FAIL of {checks.n}")
    return "\n".join((*fitness(result), *remarks))


def disturbances(result: ABResult) -> tuple[str, ...]:
    """The disturbances of the machine during the pairs, or just before them, one remark each.

    The samples during the runs make a remark on the moment before superfluous.
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
        # For all workloads at once, so that the remark comes once.
        names = [p.workload.name for p in result.by_workload if p.workload.name not in calibrations]
        options = " ".join(f"--workload={name}" for name in names)
        command = f"`asperf calibrate {options}`"
        return f"this machine is not calibrated for {', '.join(names)}: run {command}"
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
