"""From the pairs and chunks of a gate to the verdicts on them."""

import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.combined_verdict import joined
from pytest_asperf.analysis.facts import ComparedPairs, ComparedVariants
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.limit_verdict import judge_above, judge_below
from pytest_asperf.analysis.results import (
    Every,
    JudgedFigure,
    Limit,
    VariantValues,
    WithinLimits,
    WithinTolerance,
)
from pytest_asperf.analysis.stats.estimate import (
    CHANGE,
    DECISION_CONFIDENCE,
    SHARE,
    Estimate,
    counted_text,
    number_text,
    percent_text,
)
from pytest_asperf.analysis.stats.intervals import mean_interval_t, shared_confidence
from pytest_asperf.analysis.stats.ppl_sequential import ChunksTest, DriftTest
from pytest_asperf.analysis.stats.ratio_test import RatioTest
from pytest_asperf.analysis.stats.sequential import PairedTest
from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, guarded, judge_invalid
from pytest_asperf.errors import Advice
from pytest_asperf.measure.ab_logits import Drift, LogitsComparison
from pytest_asperf.measure.ab_ppl import PplComparison
from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs
from pytest_asperf.measure.speculation_result import Counts, SpeculationComparison
from pytest_asperf.records.taken import compared_chunks, compared_pairs, middles
from pytest_asperf.verdicts.energy import energy_findings, energy_notes
from pytest_asperf.verdicts.paired import (
    AGAIN,
    advice_on_pairs,
    build_subject,
    coverage,
    detectable,
    disturbances,
    examined_verdict,
    fitness,
    nothing_finished,
    ratio_of,
)
from pytest_asperf.verdicts.ratio import gain_verdict
from pytest_asperf.verdicts.speculation import output_verdict

#: Effects that more pairs do not decide.
_WITHIN: Final = "near the tolerance"

#: Mean and largest KLD, nats, of batched logits from those of single tokens that is accepted for
#: any baseline. In healthy builds the mean was at most 0.005 and the largest 0.18; a corrupt
#: prefill has nats (docs/benchmarks.md).
MEAN_HEALTHY_KLD: Final = 0.02
LARGEST_HEALTHY_KLD: Final = 1.0
#: Mean KLD of a conversation's reply of six tokens that is accepted. Healthy builds of six models
#: at Q8_0 to Q2_K had at most 0.012; a cache with one stale token had 0.09.
_MOST_KLD_OF_REPLY: Final = 0.04
#: Difference of a user's logits in scale that is accepted. Three models at F16 to Q2_K had at most
#: 0.009 for 172 users in the library, and 0.011 for 64 of llama-server.
MOST_HEALTHY_SCALE: Final = 0.05
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
    metered = pairs.workload.metered
    within = WithinTolerance(
        tolerance=test.tolerance, fails_above=test.fails_above, cost="energy" if metered else "time"
    )
    details = (
        *_before(pairs),
        *(energy_notes(result.phases) if metered else total_time_notes(pairs)),
        coverage(pairs, result),
        *disturbances(result),
        # A machine's noise is measured for workloads of one model.
        *([] if pairs.workload.kind == "sd" else [detectable(pairs, result)]),
        *fitness(result),
    )
    if not pairs.pairs:
        return nothing_finished(subject, within, details, stopped=result.interrupted)
    outcome, decisive, label = test.outcome_if_stopped, test, pairs.workload.name
    is_total = isinstance(test, TotalTimeTest) and test.decisive is test.total
    if isinstance(test, TotalTimeTest):
        if is_total:
            decisive, label = test.total, "total time"
        if not metered:
            other = None if _is_plain(pairs) else (test if is_total else test.total).estimate
            within = replace(within, cost="total time" if is_total else "time", other=other)
        if outcome is Outcome.INCONCLUSIVE and test.is_held_up:
            within = replace(within, mean=math.expm1(sum(test.mean)))
    values = middles(pairs, in_total=is_total)
    within = replace(within, variants=VariantValues(values=values, unit=pairs.workload.unit))
    if test.wald_bound is not None:
        details = (f"Wald's bound: {test.wald_bound} pairs, for any sequential test", *details)
    verdict = subject.verdict(
        outcome,
        within,
        figures=(JudgedFigure(label, ratio_of(pairs, decisive), at_most=1 + test.tolerance),),
        advice=advice_on_pairs(
            outcome, subject, test.expected_pairs_left, _WITHIN, stopped=result.interrupted
        ),
        details=details,
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
    below = _below(test, CHANGE)
    details = _drawn(comparison, test.n, test.n_chunks_total)
    if not test.n:
        return nothing_finished(subject, below, details, stopped=comparison.interrupted)
    estimate = test.estimate
    outcome = test.outcome_if_stopped
    verdict = subject.verdict(
        outcome,
        below,
        figures=(JudgedFigure("ΔPPL", estimate, at_most=test.limit),),
        advice=_advice(outcome, subject, comparison, test),
        details=details,
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
    parts = ("mean KLD", drift.kld, drift.own_kld), ("top tokens changed", drift.changed, None)
    details = _drawn(comparison, drift.n, drift.n_chunks_total)
    if not drift.n:
        below = _below(drift.kld, drift.kld.unit)
        return nothing_finished(subject, below, details, stopped=comparison.interrupted)
    judged = [
        (
            label,
            replace(
                judge_below(test.estimate, test.limit, subject),
                result=_below(test, test.unit, own),
            ),
        )
        for label, test, own in parts
    ]
    outcome = drift.outcome_if_stopped
    verdict = replace(
        joined(judged, subject, Every(of="quantities")),
        outcome=outcome,
        advice=_advice(outcome, subject, comparison, drift.kld),
        details=(
            f"largest KLD of a position {number_text(drift.largest, 2)} nats",
            *_own_limits(drift),
            *details,
        ),
        compared=ComparedVariants(ran=(comparison.ran[0].facts(), comparison.ran[1].facts())),
    )
    if outcome is not Outcome.FAIL or drift.own_kld is None:
        return verdict
    drifts = {"the mean KLD": (drift.kld.estimate.point, drift.own_kld, drift.kld.limit)}
    shared = guards.baseline_drifts(drifts)
    return guarded(verdict, [shared] if shared else [])


def _own_limits(drift: DriftTest) -> tuple[str, ...]:
    """The limits that the baseline's own drift gives, and their reason."""
    if drift.own_kld is None:
        return ()
    own, kld = (number_text(value, 2) for value in (drift.own_kld, drift.kld.limit))
    text = f"limits {kld} nats and {percent_text(drift.changed.limit, 2)} of the top tokens: "
    return (f"{text}the baseline's logits of a batch and of single tokens are {own} nats apart",)


def _below(test: ChunksTest, unit: str, baseline: float | None = None) -> WithinLimits:
    limits = (Limit("<", test.limit, unit),)
    total = test.n_chunks_total
    return WithinLimits(limits=limits, counted="chunk", out_of=total, baseline=baseline)


def _of_text(comparison: PplComparison, what: str, complaint: str) -> Subject:
    after = f" after {comparison.depth} tokens," if comparison.depth else ""
    subject = build_subject(f"{what}{after}", comparison.ran, complaint)
    return replace(subject, ran=(*subject.ran, ("text", str(comparison.text))))


def _drawn(comparison: PplComparison, n: int, n_total: int) -> tuple[str, ...]:
    scored = f"{n} of {n_total} chunks in random order"
    return (f"{scored}, seed {comparison.seed}",)


def _advice(
    outcome: Outcome, subject: Subject, comparison: PplComparison, test: ChunksTest
) -> tuple[Advice, ...]:
    """The advice after a verdict on chunks."""
    if outcome is Outcome.PASS:
        return ()
    if outcome is Outcome.FAIL:
        return (Advice(subject.if_failed),)
    if comparison.interrupted:
        return (AGAIN,)
    if (left := test.n_chunks_total - test.n) and test.n_chunks_total >= test.min_chunks:
        other = counted_text(left, "chunks")
        return (Advice(f"allow more time, for up to {other} more", "max_seconds"),)
    at_least = counted_text(test.min_chunks, "chunks")
    return (Advice(f"score {at_least} at least", "max_seconds", chunks="all"),)


def logit_ways(drift: Drift) -> tuple[str, str, str]:
    """The two ways in which logits were computed, both by name, and their accepted difference."""
    ways, both = "prefill against decoding", "prefill and decoding"
    cause = "a kernel that is used for one of them alone"
    if drift.users > 1:
        ways, both = f"{drift.users} users together against each alone", "users together and alone"
        cause = "a kernel that is used for several sequences"
    if drift.are_turns:
        ways, both = (
            f"{len(drift.firsts)} conversations against fresh prompts",
            "conversations and fresh prompts",
        )
        cause = "what the cache keeps of an earlier prompt"
    after = f" after {drift.first} tokens" if drift.first else ""
    return f"{ways}{after}", both, cause


def logits_verdict(comparison: LogitsComparison) -> Verdict:
    """The verdict on logits that the candidate computes in two ways."""
    base, candidate = comparison.drifts
    ways, both, cause = logit_ways(base)
    does = "do as well" if base.mean_kld >= MEAN_HEALTHY_KLD else "agree"
    subject = replace(
        build_subject(f"logits of {ways},", comparison.ran, "corrupt"),
        if_failed=f"{both} disagree: the baseline's {does}; look for {cause}",
    )
    found = [
        ("mean KLD", candidate.mean_kld, base.mean_kld, MEAN_HEALTHY_KLD, "nats"),
        ("largest KLD", candidate.largest_kld, base.largest_kld, LARGEST_HEALTHY_KLD, "nats"),
    ]
    of_one, base_of_one = candidate.mean_kld_of_one, base.mean_kld_of_one
    if of_one is not None and base_of_one is not None:
        label = "mean KLD of one reply" if base.are_turns else "mean KLD of one user"
        healthy = _MOST_KLD_OF_REPLY if base.are_turns else MEAN_HEALTHY_KLD
        found.append((label, of_one, base_of_one, healthy, "nats"))
    scale, base_scale = candidate.scale_error, base.scale_error
    if scale is not None and base_scale is not None:
        label = "scale error of one user's logits"
        found.append((label, scale, base_scale, MOST_HEALTHY_SCALE, SHARE))
    limits = [guards.drift_limit(healthy, own) for *_, own, healthy, _ in found]
    shared = guards.baseline_drifts(
        {
            f"the {label} of {ways}": (kld, own, limit)
            for (label, kld, own, *_), limit in zip(found, limits, strict=True)
        }
    )
    judged = [
        (label, judge_below(Estimate.exact(value, unit), limit, subject))
        for (label, value, *_, unit), limit in zip(found, limits, strict=True)
    ]
    if (unlike := comparison.unlike_baseline) is not None:
        n = max(base.end) + 1
        lost = replace(subject, if_failed=f"look for a context that is lost within {n} tokens")
        # With other kernels or a q8_0 cache it was at most 0.009 in 72 texts of two models; without
        # all but the last 900 of 1,024 tokens 0.16 to 1.6.
        verdict = judge_below(Estimate.exact(unlike, "nats"), guards.MOST_MEAN_KLD, lost)
        judged.append((f"KLD from the baseline after {n} tokens", verdict))
    below = WithinLimits(limits=(Limit("<", limits[0], "nats"),), baseline=base.mean_kld)
    judged[0] = (judged[0][0], replace(judged[0][1], result=below))
    by_build = tuple(
        f"{side}: mean KLD {number_text(drift.mean_kld, 2)} nats, largest "
        f"{number_text(drift.largest_kld, 2)} at {drift.place}, same likeliest token at "
        f"{100 * drift.same_top:.1f} %"
        for side, drift in (("baseline", base), ("candidate", candidate))
    )
    if base.end and unlike is None:
        sizes = " and ".join(str(max(drift.end, default=-1) + 1) for drift in comparison.drifts)
        by_build += (f"no long text was compared: the servers have room for {sizes} tokens",)
    verdict = replace(
        joined(judged, subject, Every(of="quantities")),
        details=by_build,
        compared=ComparedVariants(ran=(comparison.ran[0].facts(), comparison.ran[1].facts())),
    )
    return guarded(verdict, [shared] if shared else [])


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
    accepted_of = tuple(
        f"{side}: {counts.accepted} of {counts.drafted} drafted tokens accepted"
        for side, counts in (("baseline", base), ("candidate", candidate))
    )
    details = (*accepted_of, *speed.details)
    if not base.accepted:
        problem = f"the baseline accepts none of {base.drafted} drafted tokens"
        advice = "use another draft, or another baseline"
        verdict = judge_invalid(subject, [problem], advice=advice, result=speed.result)
        return replace(verdict, details=details)
    categories = comparison.categories
    verdicts = [
        ("time", speed),
        (
            "change of the share that the draft supplies",
            _supplied_verdict(comparison.counts, limit, subject, comparisons),
        ),
        ("output", output_verdict(comparison.divergences, categories, len(categories), subject)),
    ]
    accepted = (base.accepted, base.drafted), (candidate.accepted, candidate.drafted)
    by_prompt = tuple(side.by_prompt for side in comparison.counts)
    compared = speed.compared
    if isinstance(compared, ComparedPairs):
        compared = replace(compared, drafted_and_accepted=by_prompt)
    return replace(
        joined(verdicts, subject, Every(of="checks", accepted=accepted)),
        details=details,
        guards=speed.guards,
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


def total_time_notes(pairs: WorkloadPairs) -> tuple[str, ...]:
    """The kind of times that are compared, and a build that runs at two speeds, one remark each."""
    test = pairs.test
    if not isinstance(test, TotalTimeTest) or not pairs.pairs:
        return ()
    if percentile := pairs.workload.percentile:
        counted = "tokens" if pairs.workload.generates else "requests"
        return (f"of each build's {counted} in a pair the p{percentile} is compared",)
    if _is_plain(pairs):
        return ("one run of each build a pair: only their mean shows a minority of slow runs",)
    if not test.parts:
        return ()
    arm, ratio = _uneven_arm(pairs)
    return (f"two speeds: the {arm}'s slowest quarter of runs needs {ratio:.2f} times its median",)


def _is_plain(pairs: WorkloadPairs) -> bool:
    """True if the total time shows nothing further: percentiles, or single runs."""
    single = all(len(pair.baseline_costs) == 1 for pair in pairs.pairs)
    return single or bool(pairs.workload.percentile)


def _uneven_arm(pairs: WorkloadPairs) -> tuple[str, float]:
    """The build whose slow runs are slowest against its median, and their ratio."""
    ratios = []
    for runs in pairs.arms_costs:
        slowest = sorted(runs)[-max(1, len(runs) // 4) :]
        ratios.append(statistics.median(slowest) / statistics.median(runs))
    return max(zip(("baseline", "candidate"), ratios, strict=True), key=lambda arm: arm[1])
