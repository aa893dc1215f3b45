"""From the pairs and chunks of a gate to the verdicts on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.verdict import Outcome, Subject, Verdict

if TYPE_CHECKING:
    from pytest_asperf.measure.gate import Contest, Duel
    from pytest_asperf.measure.ppl_gate import PplDuel
    from pytest_asperf.measure.results import Ran


def speed_verdict(contest: Contest, duel: Duel) -> Verdict:
    """Return the verdict that a workload's pairs came to."""
    test = contest.test
    subject = _subject(contest.workload.name, duel.ran, "slower")
    threshold = f"within +{100 * test.tolerance:g} %"
    details = (
        f"covers the variance of {duel.covers}; order by coin, --asperf-seed={duel.seed}",
        *_differences(*duel.ran),
    )
    if not contest.pairs:
        return _nothing(subject, threshold, "pair", details)
    ratio = test.estimate.as_ratio()
    bound = "" if test.wald_bound is None else f", Wald bound {test.wald_bound}"
    return Verdict(
        test.outcome or Outcome.INCONCLUSIVE,
        subject,
        threshold,
        f"{ratio.text()}, {contest.elapsed_s:.0f} s{bound}",
        ((contest.workload.name, ratio),),
        _advice(test.outcome, subject, test.expected_pairs_left),
        details,
    )


def ppl_verdict(duel: PplDuel) -> Verdict:
    """Return the verdict that a PPL gate's chunks came to."""
    test = duel.test
    subject = _subject("ΔPPL", duel.ran, "worse")
    threshold = f"below {100 * test.limit:g} %"
    details = (
        f"{test.n} of {test.n_chunks_total} chunks in random order, --asperf-seed={duel.seed}",
        *_differences(*duel.ran),
    )
    if not test.n:
        return _nothing(subject, threshold, "chunk", details)
    estimate = test.estimate
    outcome = test.outcome or Outcome.INCONCLUSIVE
    advice = "" if outcome is Outcome.PASS else subject.if_failed
    if outcome is Outcome.INCONCLUSIVE:
        advice = "score more of the corpus: --asperf-chunks=all, --asperf-max-seconds"
    return Verdict(
        outcome,
        subject,
        threshold,
        f"{estimate.text(apart_from=(test.limit,))}, {duel.elapsed_s:.0f} s",
        (("ΔPPL", estimate),),
        advice,
        details,
    )


def _subject(what: str, ran: tuple[Ran, Ran], complaint: str) -> Subject:
    base, candidate = ran
    rows = tuple(
        (f"{side} {label}", text)
        for side, arm in (("baseline", base), ("candidate", candidate))
        for label, text in arm.rows()
    )
    return Subject(
        f"{what} {candidate.model} / {base.model}",
        "live",
        rows,
        if_failed=f"the candidate is {complaint}: find the change between the builds, or accept it "
        "with another limit",
    )


def _nothing(subject: Subject, threshold: str, what: str, details: tuple[str, ...]) -> Verdict:
    advice = "allow more time with --asperf-max-seconds"
    return Verdict(
        Outcome.INCONCLUSIVE, subject, threshold, f"no {what} was finished", (), advice, details
    )


def _advice(outcome: Outcome | None, subject: Subject, pairs_left: int | None) -> str:
    if outcome is Outcome.PASS:
        return ""
    if outcome is Outcome.FAIL:
        return subject.if_failed
    if pairs_left is None:
        return "the effect lies between none and the tolerance: claim another tolerance"
    return (
        f"about {pairs_left} more pairs would decide it (--asperf-max-pairs, "
        "--asperf-max-seconds), or a quieter machine; see asperf doctor"
    )


def _differences(base: Ran, candidate: Ran) -> tuple[str, ...]:
    """Return what differs between the arms, one line each; the model's row names the arm."""
    sides = zip(base.rows()[1:], candidate.rows()[1:], strict=True)
    differing = [f"differs: {label} {a} -> {b}" for (label, a), (_, b) in sides if a != b]
    return tuple(differing) or ("nothing in the proof of path differs between the arms",)
