"""Verdicts on pairs of two variants whose ratio or difference is compared with a limit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from pytest_asperf.analysis.limit_verdict import ends_of, judge_limits
from pytest_asperf.analysis.results import Limit, Limits, VariantValues, WithinLimits
from pytest_asperf.analysis.stats.estimate import RATIO, Estimate, counted_text, number_text
from pytest_asperf.analysis.verdict import Subject, Verdict, broken
from pytest_asperf.measure.ab_speed import ABResult, Budget, WorkloadPairs
from pytest_asperf.records.taken import compared_pairs, middles
from pytest_asperf.verdicts.energy import energy_notes
from pytest_asperf.verdicts.engine_matching import Term
from pytest_asperf.verdicts.paired import (
    advice_on_pairs,
    build_subject,
    coverage,
    disturbances,
    examined_verdict,
    fitness,
    nothing_finished,
    ran_rows,
    ratio_of,
)

#: Ratios that more pairs do not decide.
_AT_THE_LIMIT: Final = "at the limit"


@dataclass(frozen=True, slots=True)
class PairedClaim:
    """The assertion about two variants that run in pairs."""

    #: of the first variant and of the second, which ran as candidate and baseline
    names: tuple[str, str]
    what: str  #: the quantity, and the model if both variants share it
    limits: Limits  #: of `first / second`, or of `first - second`, in the unit to show
    is_rate: bool  #: whether the figures are rates; otherwise times or energies
    of_difference: bool = False  #: True if the assertion is about `first - second`

    @property
    def sign(self) -> str:
        """The sign between the names."""
        return "-" if self.of_difference else "/"

    def within(self, budget: Budget) -> Budget:
        """The cost of deciding it."""
        least, most = ends_of(self.limits)
        low = (-math.inf if self.of_difference else 0.0) if least is None else least
        high = math.inf if most is None else most
        if self.is_rate and not self.of_difference:
            low, high = 1 / high, 1 / low if low else math.inf
        return replace(budget, claim=(low, high), of_difference=self.of_difference)

    def estimate(self, pairs: WorkloadPairs) -> Estimate:
        """The ratio or difference that the pairs show, in the limit's unit."""
        if self.of_difference:
            return pairs.test.estimate
        ratio = replace(ratio_of(pairs, pairs.test), unit=self.limits[0].unit)
        return ratio.inverted() if self.is_rate else ratio


def paired_verdict(
    result: ABResult, claim: PairedClaim, *, twins: str = "", terms: Sequence[Term] = ()
) -> Verdict:
    """The verdict on two variants; INVALID if they are shown to be one, by `twins`.

    Args:
        result: the pairs; the first variant ran as candidate.
        claim: about both variants.
        twins: how they are shown to be one.
        terms: common and different facts of two engines.
    """
    subject = paired_subject(result, claim)
    (pairs,) = result.by_workload
    remarks = (*terms_texts(terms, claim.names), *cost_of_serving(result, claim.names))
    if pairs.pairs:
        below, above = map(number_text, middles(pairs))
        names = zip(claim.names, (above, below), strict=True)
        listed = ", ".join(f"{name} {middle} {pairs.workload.unit}" for name, middle in names)
        remarks += (f"medians of the runs: {listed}",)
    if not result.same_tokens:
        remarks += ("the two get different tokens",)
    verdict = _judged(pairs, result, subject, claim, remarks)
    if twins:
        return broken(verdict, twins, advice="name two that differ")
    return verdict


def paired_subject(result: ABResult, claim: PairedClaim) -> Subject:
    """The subject of an assertion about two variants, with the run record of both."""
    base, candidate = result.ran
    return Subject(
        f"{f' {claim.sign} '.join(claim.names)} in {claim.what}",
        "live",
        ran_rows(claim.names, (candidate, base)),
        if_failed="assert less, or see the differences of the two",
    )


def terms_texts(terms: Sequence[Term], names: tuple[str, str]) -> tuple[str, ...]:
    """The common and the different facts of two engines, one line each."""
    if not terms:
        return ()
    matched, other = (
        "; ".join(term.text(names) for term in terms if term.is_matched is is_matched)
        for is_matched in (True, False)
    )
    return f"matched: {matched}", f"not matched: {other or 'nothing'}"


def cost_of_serving(result: ABResult, names: tuple[str, str]) -> tuple[str, ...]:
    """The cost of a server over a library: ms of a request, us of each token."""
    base, candidate = (ran.loaded.served is not None for ran in result.ran)
    (pairs,) = result.by_workload
    if base == candidate or not pairs.pairs:
        return ()
    server = names[0] if candidate else names[1]
    turns = (zip(pair.baseline_costs, pair.candidate_costs, strict=True) for pair in pairs.pairs)
    more_ns = sorted(median((other - own) * (1 if candidate else -1) for own, other in turn)
                     for turn in turns)  # fmt: skip
    low, middle, high = (ns / 1e6 for ns in (more_ns[0], median(more_ns), more_ns[-1]))
    n_tokens, counted = pairs.workload.n_tokens, counted_text(len(more_ns), "pairs")
    text = (
        f"{server} takes {middle:+.3g} ms a request, {1e3 * middle / n_tokens:+.3g} us a token of "
        f"{n_tokens} (median of {counted}, {low:+.3g} to {high:+.3g} ms)"
    )
    return (text,)


def gain_verdict(pairs: WorkloadPairs, result: ABResult) -> Verdict:
    """The verdict on a workload of a candidate build that is asserted to be faster."""
    subject = build_subject(pairs.workload.name, result.ran, "not better by that much")
    by = result.budget.least_gain
    names, most = ("candidate", "baseline"), Limit("<=", 1 / (1 + by), RATIO)
    # For times, as everything in a gate.
    claim = PairedClaim(names, pairs.workload.name, (most,), is_rate=False)
    return _judged(pairs, result, subject, claim, faster_by=by)


def _judged(
    pairs: WorkloadPairs,
    result: ABResult,
    subject: Subject,
    claim: PairedClaim,
    remarks: tuple[str, ...] = (),
    *,
    faster_by: float | None = None,
) -> Verdict:
    metered = pairs.workload.metered
    energy = energy_notes(result.phases) if metered else ()
    details = (*remarks, *energy, coverage(pairs, result), *disturbances(result), *fitness(result))
    within = WithinLimits(limits=claim.limits, counted="pair", faster_by=faster_by, metered=metered)
    if not pairs.pairs:
        return nothing_finished(subject, within, details, stopped=result.interrupted)
    test, estimate = pairs.test, claim.estimate(pairs)
    verdict = judge_limits(estimate, claim.limits, subject)
    outcome = test.outcome_if_stopped
    is_change, values = claim.names[0] == "candidate", middles(pairs)
    variants = VariantValues(
        values=values if is_change else values[::-1], unit=pairs.workload.unit, is_change=is_change
    )
    verdict = replace(
        verdict,
        outcome=outcome,
        result=replace(within, variants=variants),
        figures=(replace(verdict.figures[0], label=pairs.workload.name),),
        advice=advice_on_pairs(
            outcome, subject, test.expected_pairs_left, _AT_THE_LIMIT, stopped=result.interrupted
        ),
        details=details,
        compared=compared_pairs(pairs, result, claim.names[::-1], is_rate_ratio=claim.is_rate),
    )
    return examined_verdict(verdict, pairs, result)
