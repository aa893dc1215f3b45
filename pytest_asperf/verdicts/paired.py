"""What verdicts on two sides that ran in pairs have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.estimate import counted_text
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict

if TYPE_CHECKING:
    from pytest_asperf.measure.ab_speed import ABResult
    from pytest_asperf.measure.results import Provenance


def coverage(result: ABResult) -> str:
    """Which variance the pairs cover, and how their order can be repeated."""
    return (
        f"covers the variance of {result.covers}; order by coin, --asperf-seed={result.budget.seed}"
    )


def build_subject(what: str, ran: tuple[Provenance, Provenance], complaint: str) -> Subject:
    """The subject of a claim about two builds, with the proof of path of both."""
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
    """The proofs of path of two sides, with the side's name before each label."""
    named = zip(sides, ran, strict=True)
    return tuple((f"{side} {label}", text) for side, arm in named for label, text in arm.rows())


def nothing_finished(
    subject: Subject, threshold: str, what: str, details: tuple[str, ...]
) -> Verdict:
    """The verdict where not one unit was finished."""
    advice = "allow more time with --asperf-max-seconds"
    return Verdict(
        Outcome.INCONCLUSIVE, subject, threshold, f"no {what} was finished", (), advice, details
    )


def advice_on_pairs(
    outcome: Outcome | None, subject: Subject, pairs_left: int | None, reason: str
) -> str:
    """What to do after a verdict on pairs; the reason is why more of them might not decide."""
    if outcome is Outcome.PASS:
        return ""
    if outcome is Outcome.FAIL:
        return subject.if_failed
    if pairs_left is None:
        return (
            f"more pairs will not decide this: the effect lies {reason}, or the machine is too "
            "noisy. Run `asperf doctor`, or change the tolerance"
        )
    more = counted_text(pairs_left, "more pairs")
    return f"about {more} would decide it: --asperf-max-pairs, --asperf-max-seconds, asperf doctor"


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
