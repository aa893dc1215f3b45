"""From the pairs and chunks of a gate to the verdicts on them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_asperf.stats.sequential import ALPHA, detectable_tolerance
from pytest_asperf.verdict import Outcome, Subject, Verdict, judge_within

if TYPE_CHECKING:
    from pytest_asperf.handles import EngineDuel
    from pytest_asperf.measure.gate import Contest, Duel
    from pytest_asperf.measure.noise import Calibration
    from pytest_asperf.measure.ppl_gate import PplDuel
    from pytest_asperf.measure.results import Ran

#: Where an effect can lie that more pairs do not decide.
_WITHIN: Final = "between none and the tolerance"
_AT_THE_LIMIT: Final = "at the limit"


def speed_verdict(contest: Contest, duel: Duel) -> Verdict:
    """Return the verdict that a workload's pairs came to."""
    test = contest.test
    subject = _subject(contest.workload.name, duel.ran, "slower")
    threshold = f"within +{100 * test.tolerance:g} %"
    details = (
        f"covers the variance of {duel.covers}; order by coin, --asperf-seed={duel.budget.seed}",
        *_differences(*duel.ran),
        *_disturbances(duel),
        _detectable(contest, duel),
        *_fitness(duel),
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
        _advice(test.outcome, subject, test.expected_pairs_left, _WITHIN),
        details,
    )


def faster_verdict(versus: EngineDuel) -> Verdict:
    """Return the verdict that two engines' pairs came to, with what is matched between them."""
    duel = versus.duel
    (contest,) = duel.contests
    engines, test = versus.engines, contest.test
    base, candidate = duel.ran
    subject = Subject(
        f"{contest.workload.name} {candidate.model} / {base.model}",
        "live",
        _ran_rows(engines, duel.ran),
        if_failed=f"on this machine {engines[1]} is not: claim less, or see what is not matched",
    )
    threshold = f"faster by {100 * versus.by:g} % or more" if versus.by else "faster"
    details = (
        f"matched: {_terms(versus, is_matched=True)}",
        f"not matched: {_terms(versus, is_matched=False) or 'nothing'}",
        f"covers the variance of {duel.covers}; order by coin, --asperf-seed={duel.budget.seed}",
        *_disturbances(duel),
        *_fitness(duel),
    )
    if not contest.pairs:
        return _nothing(subject, threshold, "pair", details)
    ratio = test.estimate.as_ratio().inverted()
    measured = f"{ratio.text(apart_from=(1 + versus.by,))} times as fast, {contest.elapsed_s:.0f} s"
    return Verdict(
        test.outcome or Outcome.INCONCLUSIVE,
        subject,
        threshold,
        measured,
        ((contest.workload.name, ratio),),
        _advice(test.outcome, subject, test.expected_pairs_left, _AT_THE_LIMIT),
        details,
    )


def equivalence_verdict(duel: Duel) -> Verdict:
    """Return the verdict that the pairs of two models came to, that were to be equally fast."""
    (contest,) = duel.contests
    base, candidate = duel.ran
    within = contest.test.tolerance
    subject = Subject(
        f"{contest.workload.name} of {candidate.model} against {base.model}",
        "live",
        _ran_rows((candidate.model, base.model), (candidate, base)),
        if_failed="one is slower: claim less, or see in which the two differ",
    )
    details = (
        f"covers the variance of {duel.covers}; order by coin, --asperf-seed={duel.budget.seed}",
        *_disturbances(duel),
        *_fitness(duel),
    )
    if not contest.pairs:
        return _nothing(subject, f"within ±{100 * within:g} %", "pair", details)
    rate = contest.test.estimate.as_ratio().inverted()
    # A rate is the inverse of a cost: the same limits, the other way round.
    verdict = judge_within(rate, subject, at_least=1 / (1 + within), at_most=1 + within)
    return replace(verdict, details=details)


def _terms(versus: EngineDuel, *, is_matched: bool) -> str:
    chosen = (term for term in versus.terms if term.is_matched == is_matched)
    return "; ".join(term.text(versus.engines) for term in chosen)


def gate_note(contest: Contest, duel: Duel) -> str:
    """Return what a reader is to be told of this machine whatever the verdict, one remark a line.

    It is told where the machine's noise is not known or exceeds the tolerance, and where equal
    builds were checked here.
    """
    known = duel.surroundings.calibrations.get(contest.workload.name)
    remarks = [] if known and _suffices(known, contest, duel) else [_detectable(contest, duel)]
    checks = duel.surroundings.self_checks
    if checks.n:
        remarks.append(f"A/A self-checks on this machine: {checks.fails} FAIL of {checks.n}")
    return "\n".join((*remarks, *_fitness(duel)))


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
    return Subject(
        f"{what} {candidate.model} / {base.model}",
        "live",
        _ran_rows(("baseline", "candidate"), ran),
        if_failed=f"the candidate is {complaint}: find the change between the builds, or accept it "
        "with another limit",
    )


def _ran_rows(sides: tuple[str, str], ran: tuple[Ran, Ran]) -> tuple[tuple[str, str], ...]:
    named = zip(sides, ran, strict=True)
    return tuple((f"{side} {label}", text) for side, arm in named for label, text in arm.rows())


def _nothing(subject: Subject, threshold: str, what: str, details: tuple[str, ...]) -> Verdict:
    advice = "allow more time with --asperf-max-seconds"
    return Verdict(
        Outcome.INCONCLUSIVE, subject, threshold, f"no {what} was finished", (), advice, details
    )


def _advice(outcome: Outcome | None, subject: Subject, pairs_left: int | None, reason: str) -> str:
    if outcome is Outcome.PASS:
        return ""
    if outcome is Outcome.FAIL:
        return subject.if_failed
    if pairs_left is None:
        return (
            f"more pairs would not: the effect lies {reason}, or is lost in the machine's noise; "
            "quieten it (asperf doctor), or claim another"
        )
    return (
        f"about {pairs_left} more pairs would decide it (--asperf-max-pairs, "
        "--asperf-max-seconds), or a quieter machine; see asperf doctor"
    )


def _differences(base: Ran, candidate: Ran) -> tuple[str, ...]:
    """Return what differs between the arms, one line each; the model's row names the arm."""
    sides = zip(base.rows()[1:], candidate.rows()[1:], strict=True)
    differing = [f"differs: {label} {a} -> {b}" for (label, a), (_, b) in sides if a != b]
    return tuple(differing) or ("nothing in the proof of path differs between the arms",)


def _disturbances(duel: Duel) -> tuple[str, ...]:
    disturbing = [c for c in duel.surroundings.conditions if c.state == "disturbing"]
    return tuple(f"disturbing before the gate: {c.name}: {c.detail}" for c in disturbing)


def _suffices(known: Calibration, contest: Contest, duel: Duel) -> bool:
    """Tell whether the budget suffices for the tolerance on a machine of this noise."""
    least = detectable_tolerance(known.spread, duel.budget.max_pairs)
    return contest.test.tolerance >= least


def _detectable(contest: Contest, duel: Duel) -> str:
    """Return which tolerance this machine can decide within the budget."""
    calibrations = duel.surroundings.calibrations
    known = calibrations.get(contest.workload.name)
    if known is None:
        # Of all workloads at once, so that it is told once.
        names = [c.workload.name for c in duel.contests if c.workload.name not in calibrations]
        options = " ".join(f"--workload={name}" for name in names)
        return (
            f"the tolerance that this machine can decide is not known for {', '.join(names)}: "
            f"asperf calibrate {options} would tell"
        )
    pairs = duel.budget.max_pairs
    least = f"{100 * detectable_tolerance(known.spread, pairs):.3g} %"
    basis = (
        f"A/A spread {100 * known.spread:.2g} % on {known.model}, {known.pairs} pairs of "
        f"{known.measured_on}"
    )
    if _suffices(known, contest, duel):
        return f"{pairs} pairs can decide a tolerance of {least} on this machine ({basis})"
    return (
        f"the tolerance of {100 * contest.test.tolerance:g} % is below {least}, the least that "
        f"{pairs} pairs of {contest.workload.name} can decide on this machine ({basis})"
    )


def _fitness(duel: Duel) -> tuple[str, ...]:
    checks = duel.surroundings.self_checks
    if checks.floor <= ALPHA:
        return ()
    rate = f"{100 * checks.floor:.2g} % of its gates ({checks.fails} of {checks.n} self-checks)"
    verdict = f"this machine is not fit for gating: equal builds FAIL in at least {rate}"
    return (f"{verdict}, and a gate allows {100 * ALPHA:g} %; do not trust its verdicts",)
