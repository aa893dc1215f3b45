"""From the pairs and chunks of a gate to the verdicts on them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.combined_verdict import joined
from pytest_asperf.analysis.facts import ComparedPairs, ComparedSides
from pytest_asperf.analysis.limit_verdict import judge_above, judge_below, threshold_text
from pytest_asperf.analysis.stats.estimate import (
    DECISION_CONFIDENCE,
    SHARE,
    Estimate,
    counted_text,
    limit_text,
    number_text,
    percent_text,
)
from pytest_asperf.analysis.stats.intervals import mean_interval_t, shared_confidence
from pytest_asperf.analysis.stats.ratio_test import RatioTest
from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.analysis.verdict import (
    JudgedFigure,
    Outcome,
    Subject,
    Verdict,
    guarded,
    judge_invalid,
)
from pytest_asperf.errors import Advice
from pytest_asperf.records.taken import compared_chunks, compared_pairs, side_texts
from pytest_asperf.verdicts.energy import energy_findings, energy_notes
from pytest_asperf.verdicts.paired import (
    AGAIN,
    advice_on_pairs,
    build_subject,
    coverage,
    detectable,
    differences,
    disturbances,
    examined_verdict,
    fitness,
    nothing_finished,
    ratio_of,
    uncovered,
)
from pytest_asperf.verdicts.ratio import gain_verdict
from pytest_asperf.verdicts.speculation import divergence_text, parting_text

if TYPE_CHECKING:
    from pytest_asperf.analysis.guards import GuardFinding
    from pytest_asperf.analysis.stats.ppl_sequential import ChunksTest
    from pytest_asperf.analysis.stats.sequential import PairedTest
    from pytest_asperf.measure.ab_logits import Drift, LogitsComparison
    from pytest_asperf.measure.ab_ppl import PplComparison
    from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs
    from pytest_asperf.measure.speculation_result import Counts, SpeculationComparison


#: Effects that more pairs do not decide.
_WITHIN: Final = "near the tolerance"

#: Mean and largest KLD, nats, of batched logits from those of single tokens that is accepted for
#: any baseline. In healthy builds the mean was at most 0.005 and the largest 0.18; a corrupt
#: prefill has nats (docs/benchmarks.md).
MEAN_HEALTHY_KLD: Final = 0.02
LARGEST_HEALTHY_KLD: Final = 1.0
#: Share of the output that the draft supplies: so much less is accepted, and not more than half of
#: the baseline's.
_LESS_SUPPLIED: Final = 0.10


def speed_verdict(pairs: WorkloadPairs, result: ABResult) -> Verdict:
    """The verdict on a workload's pairs, and on the work that was timed in them."""
    if isinstance(pairs.test, RatioTest):
        return gain_verdict(pairs, result)
    return examined_verdict(_time_verdict(pairs, pairs.test, result), pairs, result)


def _time_verdict(pairs: WorkloadPairs, test: PairedTest, result: ABResult) -> Verdict:
    complaint = "using more energy" if pairs.workload.metered else "slower"
    subject = build_subject(pairs.workload.name, result.ran, complaint)
    threshold = f"within +{percent_text(test.tolerance)}"
    details = (
        *_before(pairs),
        zone_text(test),
        *(energy_notes(result.phases) if pairs.workload.metered else total_time_notes(pairs)),
        coverage(pairs, result),
        *differences(*result.ran),
        *disturbances(result),
        # A machine's noise is measured for workloads of one model.
        *([] if pairs.workload.kind == "sd" else [detectable(pairs, result)]),
        *fitness(result),
    )
    if not pairs.pairs:
        return nothing_finished(subject, threshold, "pair", details, stopped=result.interrupted)
    outcome = test.outcome_if_stopped
    label, decisive = "", test
    if isinstance(test, TotalTimeTest) and test.decisive is test.total:
        label, decisive = "total time", test.total
    base, candidate, unit = side_texts(pairs, in_total=bool(label))
    brief = f"{base} → {candidate} {unit}, " + time_text(
        decisive.estimate, test.tolerance, "energy" if pairs.workload.metered else label or "time"
    )
    why = ""
    if isinstance(test, TotalTimeTest) and outcome is Outcome.INCONCLUSIVE and test.is_held_up:
        why = f"up to {percent_text(math.expm1(sum(test.mean)))} on average over the pairs"
    said = "; ".join(filter(None, (f"{brief}, but {why}" if why else brief, uncovered(pairs))))
    if test.wald_bound is not None:
        details = (f"Wald's bound: {test.wald_bound} pairs, for any sequential test", *details)
    name, ratio = label or pairs.workload.name, ratio_of(pairs, decisive)
    verdict = subject.verdict(
        outcome,
        threshold=threshold,
        measured=said,
        figures=(JudgedFigure(name, ratio, at_most=1 + test.tolerance),),
        advice=advice_on_pairs(
            outcome, subject, test.expected_pairs_left, _WITHIN, stopped=result.interrupted
        ),
        details=details,
        brief=brief,
        bound=f"≤ +{percent_text(test.tolerance)}",
        why=why,
        compared=compared_pairs(pairs, result, ("baseline", "candidate")),
    )
    findings = (*energy_findings(pairs, result), *_queued(pairs, result))
    return guarded(verdict, findings)


def _before(pairs: WorkloadPairs) -> Iterator[str]:
    """The result of other processes before these pairs, if that was a FAIL."""
    if before := pairs.failed_before:
        change = before.test.estimate.text()
        yield f"{len(before.pairs)} pairs of other processes before showed a FAIL, {change}"


def _queued(pairs: WorkloadPairs, result: ABResult) -> Iterator[GuardFinding]:
    """The builds with fewer slots than users: a warning, as the wait is compared."""
    for side, ran in zip(("baseline", "candidate"), result.ran, strict=True):
        slots = ran.context.n_slots if ran.context else None
        found = guards.queueing([], pairs.workload.users, slots, is_compared=True)
        if found:
            yield replace(found, found=f"{side}: {found.found}")


def ppl_verdict(comparison: PplComparison) -> Verdict:
    """The verdict on the PPL of chunks that two builds scored."""
    test = comparison.test
    if test is None:
        raise ValueError("PPL was not requested")
    subject = _of_text(comparison, "ΔPPL", "worse")
    threshold = f"below {percent_text(test.limit)}"
    details = _drawn(comparison, test.n, test.n_chunks_total)
    if not test.n:
        return nothing_finished(
            subject, threshold, "chunk", details, stopped=comparison.interrupted
        )
    estimate = test.estimate
    outcome = test.outcome or Outcome.INCONCLUSIVE
    advice = "" if outcome is Outcome.PASS else subject.if_failed
    why = ""
    if outcome is Outcome.INCONCLUSIVE:
        why, advice = _undecided(comparison, test)
    verdict = subject.verdict(
        outcome,
        threshold=threshold,
        measured=estimate.text(apart_from=(test.limit,)),
        figures=(JudgedFigure("ΔPPL", estimate, at_most=test.limit),),
        advice=advice,
        details=details,
        brief=estimate.brief(apart_from=(test.limit,)),
        bound=f"< {percent_text(test.limit)}",
        why=why,
        compared=compared_chunks(comparison),
    )
    guard_finding = guards.impossible_gain(estimate.point)
    return guarded(verdict, [guard_finding] if guard_finding else [])


def kld_verdict(comparison: PplComparison) -> Verdict:
    """The verdict on the candidate's distributions against the baseline's."""
    drift = comparison.drift
    if drift is None:
        raise ValueError("KLD was not requested")
    subject = replace(
        _of_text(comparison, "KLD", "other answers"),
        if_failed="the candidate prefers other tokens than the baseline: look for the kernel, "
        "template or default that changed; a change of PPL alone is what ppl judges",
    )
    parts = ("mean KLD", drift.kld), ("changed top tokens", drift.changed)
    threshold = " and ".join(
        f"{label} {threshold_text('<', test.limit, test.unit)}" for label, test in parts
    )
    details = _drawn(comparison, drift.n, drift.n_chunks_total)
    if not drift.n:
        return nothing_finished(
            subject, threshold, "chunk", details, stopped=comparison.interrupted
        )
    figures = tuple((label, test.estimate) for label, test in parts)
    verdict = joined(
        [(label, judge_below(test.estimate, test.limit, subject)) for label, test in parts],
        figures,
        subject,
        threshold,
    )
    outcome = drift.outcome or Outcome.INCONCLUSIVE
    why, advice = "", "" if outcome is Outcome.PASS else subject.if_failed
    if outcome is Outcome.INCONCLUSIVE:
        why, advice = _undecided(comparison, drift.kld)
    shown = [
        estimate.text(apart_from=(t.limit,))
        for (_, t), (_, estimate) in zip(parts, figures, strict=True)
    ]
    measured = f"mean KLD {shown[0]}, top tokens changed {shown[1]}"
    return replace(
        verdict,
        outcome=outcome,
        measured=measured,
        advice=advice,
        details=(f"largest KLD of a position {number_text(drift.largest, 2)} nats", *details),
        brief=f"KLD {number_text(figures[0][1].point, 2)} nats, "
        f"tops changed {percent_text(figures[1][1].point, 2)}",
        bound=f"< {limit_text(drift.kld.limit, drift.kld.unit)}",
        why=why,
        compared=ComparedSides(ran=(comparison.ran[0].facts(), comparison.ran[1].facts())),
    )


def _of_text(comparison: PplComparison, what: str, complaint: str) -> Subject:
    after = f" after {comparison.depth} tokens," if comparison.depth else ""
    subject = build_subject(f"{what}{after}", comparison.ran, complaint)
    return replace(subject, ran=(*subject.ran, ("text", str(comparison.text))))


def _drawn(comparison: PplComparison, n: int, n_total: int) -> tuple[str, ...]:
    scored = f"{n} of {n_total} chunks in random order"
    return (f"{scored}, seed {comparison.seed}", *differences(*comparison.ran))


def _undecided(comparison: PplComparison, test: ChunksTest) -> tuple[str, str]:
    """The reason why chunks decided nothing, and the advice."""
    why = f"{test.n} of {counted_text(test.n_chunks_total, 'chunks')} scored"
    if comparison.interrupted:
        return why, AGAIN
    at_least = counted_text(test.min_chunks, "chunks")
    return why, str(Advice(f"score {at_least} at least", "max_seconds", chunks="all"))


def logit_ways(drift: Drift) -> tuple[str, str, str]:
    """The two ways in which logits were computed, both by name, and their accepted difference."""
    ways, both = "prefill against decoding", "prefill and decoding"
    cause = "a kernel that is used for one of them alone"
    if drift.users > 1:
        ways, both = f"{drift.users} users together against each alone", "users together and alone"
        cause = "a kernel that is used for several sequences"
    if drift.turns:
        ways, both = (
            f"{len(drift.turns)} conversations against fresh prompts",
            "conversations and fresh prompts",
        )
        cause = "what the cache keeps of an earlier prompt"
    after = f" after {drift.first} tokens" if drift.first else ""
    return f"{ways}{after}", both, cause


def logits_verdict(comparison: LogitsComparison) -> Verdict:
    """The verdict on logits that the candidate computes in two ways."""
    base, candidate = comparison.drifts
    ways, both, cause = logit_ways(base)
    subject = replace(
        build_subject(f"logits of {ways},", comparison.ran, "corrupt"),
        if_failed=f"{both} disagree: "
        + ("the baseline's do as well" if _is_corrupt(base.mean_kld) else "the baseline's agree")
        + f"; look for {cause}",
    )
    mean = guards.drift_limit(MEAN_HEALTHY_KLD, base.mean_kld)
    largest = guards.drift_limit(LARGEST_HEALTHY_KLD, base.largest_kld)
    shared = guards.baseline_drifts(
        {
            f"the mean KLD of {ways}": (candidate.mean_kld, base.mean_kld, mean),
            f"the largest KLD of {ways}": (candidate.largest_kld, base.largest_kld, largest),
        }
    )
    figures = (
        ("mean KLD", Estimate.exact(candidate.mean_kld, "nats")),
        ("largest KLD", Estimate.exact(candidate.largest_kld, "nats")),
    )
    verdicts = [
        (label, judge_below(estimate, limit, subject))
        for (label, estimate), limit in zip(figures, (mean, largest), strict=True)
    ]
    by_build = tuple(
        f"{side}: mean KLD {number_text(drift.mean_kld, 2)} nats, largest "
        f"{number_text(drift.largest_kld, 2)} at {drift.place}, same likeliest token at "
        f"{100 * drift.same_top:.1f} %"
        for side, drift in (("baseline", base), ("candidate", candidate))
    )
    threshold = f"mean KLD below {number_text(mean, 2)} nats, none above {number_text(largest, 2)}"
    verdict = joined(verdicts, figures, subject, threshold)
    shown, of_base = (number_text(d.mean_kld, 2) for d in (candidate, base))
    tail = f"largest {number_text(candidate.largest_kld, 2)}"
    verdict = replace(
        verdict,
        measured=f"mean KLD {shown} nats ({of_base} in the baseline), {tail}",
        details=(*by_build, *differences(*comparison.ran)),
        brief=f"mean KLD {shown} nats, {tail}",
        bound=f"< {number_text(mean, 2)} nats",
        compared=ComparedSides(ran=(comparison.ran[0].facts(), comparison.ran[1].facts())),
    )
    return guarded(verdict, [shared] if shared else [])


def _is_corrupt(mean_kld: float) -> bool:
    return mean_kld >= MEAN_HEALTHY_KLD


def speculation_verdict(comparison: SpeculationComparison, comparisons: int) -> Verdict:
    """The verdict on speculation: its time, the draft's share, and its output.

    Args:
        comparison: the measurement.
        comparisons: tests that share the error of a FAIL, of which there are these two.
    """
    (pairs,) = comparison.speed.by_workload
    speed = speed_verdict(pairs, comparison.speed)
    base, candidate = comparison.counts
    subject = replace(
        build_subject(f"speculation {comparison.pairing.label},", comparison.speed.ran, "worse"),
        ran=speed.facts,
    )
    limit = -min(_LESS_SUPPLIED, sum(base.supplied) / len(base.supplied) / 2)
    threshold = (
        f"{speed.threshold}, not {number_text(-100 * limit, 2)} points less supplied, lossless"
    )
    accepted_of = tuple(
        f"{side}: {counts.accepted} of {counts.drafted} drafted tokens accepted"
        for side, counts in (("baseline", base), ("candidate", candidate))
    )
    output = tuple(divergence_text(comparison.categories, d) for d in comparison.divergences)
    details = (*accepted_of, *output, *speed.details)
    if not base.accepted:
        problem = f"the baseline accepts none of {base.drafted} drafted tokens"
        remedy = "use another draft, or another baseline"
        return replace(judge_invalid(subject, threshold, [problem], remedy=remedy), details=details)
    verdicts = [
        ("time", speed),
        (
            "change of the share that the draft supplies",
            _supplied_verdict(comparison.counts, limit, subject, comparisons),
        ),
        ("output", _output_verdict(comparison, subject)),
    ]
    figures = tuple((label, one.estimate) for label, own in verdicts for one in own.figures)
    verdict = joined(verdicts, figures, subject, threshold)
    accepted = ", ".join(f"{c.accepted}/{c.drafted}" for c in comparison.counts)
    measured = f"{verdict.measured}; accepted {accepted}"
    by_prompt = tuple(side.by_prompt for side in comparison.counts)
    compared = speed.compared
    if isinstance(compared, ComparedPairs):
        compared = replace(compared, drafted_and_accepted=by_prompt)
    return replace(
        verdict,
        measured=measured,
        details=details,
        guards=speed.guards,
        brief=speed.brief,
        bound=speed.bound,
        compared=compared,
    )


def _supplied_verdict(
    counts: tuple[Counts, Counts], limit: float, subject: Subject, comparisons: int
) -> Verdict:
    """Judge by how much less of each prompt's output the candidate's draft supplies."""
    base, candidate = (side.supplied for side in counts)
    changes = [c - b for b, c in zip(base, candidate, strict=True)]
    levels = DECISION_CONFIDENCE, shared_confidence(DECISION_CONFIDENCE, comparisons)
    for_pass, for_fail = (
        mean_interval_t(changes, level, unit=SHARE, counted="prompts") for level in levels
    )
    # Only the error of a FAIL, by the upper bound, is shared.
    change = replace(for_fail, low=for_pass.low, confidence=sum(levels) / 2)
    advice = "drafted tokens are rejected: look at the draft's cache, and at how it is rolled back"
    return judge_above(change, limit, replace(subject, if_failed=advice))


def _output_verdict(comparison: SpeculationComparison, subject: Subject) -> Verdict:
    is_changed = any(d.guard_finding for d in comparison.divergences)
    outcome = Outcome.FAIL if is_changed else Outcome.PASS
    measured = parting_text(comparison.divergences, len(comparison.categories))
    advice = str(guards.Guard.DIVERGENT_OUTPUT.remedy) if is_changed else ""
    return subject.verdict(outcome, threshold="lossless", measured=measured, advice=advice)


def zone_text(test: PairedTest) -> str:
    """The meaning of a gate's PASS and FAIL, in words."""
    floor, limit = percent_text(test.floor), percent_text(test.tolerance)
    return f"PASS excludes +{limit}; FAIL does not, and shows more than +{floor}"


def time_text(change: Estimate, tolerance: float, time: str = "time") -> str:
    """A change of a time with its direction: ``+62 % slower [50, 74]``."""
    figure, interval = change.brief_parts(apart_from=(tolerance,))
    is_more, tail = change.shown_above(0), ""
    if time == "energy":
        what = "more energy" if is_more else "energy"
    elif is_more:
        what, tail = "slower", " in all" if time != "time" else ""
    else:
        what, tail = time, ", faster" if change.shown_below(0) else ""
    return " ".join(filter(None, (figure, what, interval))) + tail


def total_time_notes(pairs: WorkloadPairs) -> tuple[str, ...]:
    """The ratio of the total time, and a build that runs at two speeds, one remark each."""
    test = pairs.test
    if not isinstance(test, TotalTimeTest) or not pairs.pairs:
        return ()
    if percentile := pairs.workload.percentile:
        counted = "tokens" if pairs.workload.generates else "requests"
        return (f"of each build's {counted} in a pair the p{percentile} is compared",)
    if all(len(pair.baseline_costs) == 1 for pair in pairs.pairs):
        return ("one run of each build a pair: only their mean shows a minority of slow runs",)
    # The judged one is in the verdict's own line.
    label, beside = ("total time", test.total)
    if test.decisive is test.total:
        label, beside = ("the median pair", test)
    other = f"{label}: {time_text(beside.estimate, test.tolerance)}"
    if not test.parts:
        return (other,)
    arm, ratio = _uneven_arm(pairs)
    return (
        other,
        f"two speeds: the {arm}'s slowest quarter of runs needs {ratio:.2f} times its median",
    )


def _uneven_arm(pairs: WorkloadPairs) -> tuple[str, float]:
    """The build whose slow runs are slowest against its median, and their ratio."""
    ratios = []
    for runs in pairs.arms_costs:
        slowest = sorted(runs)[-max(1, len(runs) // 4) :]
        ratios.append(statistics.median(slowest) / statistics.median(runs))
    return max(zip(("baseline", "candidate"), ratios, strict=True), key=lambda arm: arm[1])
