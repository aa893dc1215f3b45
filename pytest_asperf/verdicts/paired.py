"""The common part of verdicts on two sides that ran in pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.stats.estimate import counted_text
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict
from pytest_asperf.errors import Advice

if TYPE_CHECKING:
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.analysis.stats.ratio_test import RatioTest
    from pytest_asperf.analysis.stats.sequential import PairedTest
    from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs
    from pytest_asperf.measure.results import Provenance

#: The advice if Ctrl-C ended a measurement.
AGAIN: Final = "run it again, and let it end"


def coverage(pairs: WorkloadPairs, result: ABResult) -> str:
    """The variance that the pairs cover, and how their order can be repeated."""
    cores = "cores drawn for each pair; " if result.draws_cores else ""
    processes = uncovered(pairs) or "new processes for each pair"
    return f"{processes}; {cores}random order, seed {result.budget.seed}"


def uncovered(pairs: WorkloadPairs) -> str:
    """The number of processes, if some ran several pairs; otherwise empty."""
    if pairs.is_fresh:
        return ""
    return f"{_processes(pairs)} of each build, how processes differ is not covered"


def ratio_of(pairs: WorkloadPairs, test: PairedTest | RatioTest) -> Estimate:
    """The ratio of a test, which says on how many processes it rests if some ran several pairs."""
    ratio = test.estimate.as_ratio()
    return ratio if pairs.is_fresh else replace(ratio, counted=f"pairs of {_processes(pairs)}")


def _processes(pairs: WorkloadPairs) -> str:
    n = pairs.n_processes
    return f"{n} process{'es' * (n > 1)}"


def build_subject(what: str, ran: tuple[Provenance, Provenance], complaint: str) -> Subject:
    """The subject of a claim about two builds, with the run record of both."""
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
    """The run records of two sides, with the side's name before each label."""
    named = zip(sides, ran, strict=True)
    return tuple((f"{side} {label}", text) for side, arm in named for label, text in arm.rows())


def nothing_finished(
    subject: Subject, threshold: str, what: str, details: tuple[str, ...], *, stopped: bool
) -> Verdict:
    """The verdict if not one unit was finished: it was stopped from outside, or time ran out."""
    advice = AGAIN if stopped else str(Advice("allow more time", "max_seconds"))
    return Verdict(
        Outcome.INCONCLUSIVE, subject, threshold, f"no {what} was finished", (), advice, details
    )


def advice_on_pairs(
    outcome: Outcome | None,
    subject: Subject,
    pairs_left: int | None,
    reason: str,
    *,
    stopped: bool,
) -> str:
    """The advice after a verdict on pairs; the reason is why more of them might not decide."""
    if outcome is Outcome.PASS:
        return ""
    if outcome is Outcome.FAIL:
        return subject.if_failed
    if stopped:
        return AGAIN
    if pairs_left is None:
        return (
            f"more pairs will not decide this: the effect lies {reason}, or the machine is too "
            "noisy. Run `asperf doctor`, or change the tolerance"
        )
    more = counted_text(pairs_left, "more pairs")
    advice = Advice(
        f"about {more} would decide it, fewer on a quieter machine (asperf doctor)",
        "max_pairs",
        "max_seconds",
    )
    return str(advice)


def differences(base: Provenance, candidate: Provenance) -> tuple[str, ...]:
    """The facts that differ between the arms, one line each; the model's row names the arm.

    The cost of a client is measured in each arm, and differs by chance.
    """
    before, after = (
        {label: text for label, text in ran.rows()[1:] if label != "client"}
        for ran in (base, candidate)
    )
    # How a build was made, for one, is not known of both.
    sides = ((label, before.get(label), after.get(label)) for label in {**before, **after})
    differing = [
        f"differs: {label} {a or 'not known'} -> {b or 'not known'}"
        for label, a, b in sides
        if a != b
    ]
    return tuple(differing) or ("nothing in the proof of path differs between the arms",)
