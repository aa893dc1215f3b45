"""Verdicts on pairs of two sides whose ratio is claimed: engines, levels, workloads, builds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.limit_verdict import judge_within, range_text
from pytest_asperf.analysis.stats.estimate import (
    RATIO,
    counted_text,
    limit_text,
    number_text,
    percent_text,
)
from pytest_asperf.analysis.verdict import Subject, Verdict, judge_invalid
from pytest_asperf.report.pair_data import pair_data, side_texts
from pytest_asperf.verdicts.energy import energy_notes
from pytest_asperf.verdicts.noise_notes import disturbances, fitness
from pytest_asperf.verdicts.paired import (
    advice_on_pairs,
    build_subject,
    coverage,
    differences,
    nothing_finished,
    ran_rows,
    ratio_of,
    uncovered,
)
from pytest_asperf.verdicts.timed_work import examined_verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs
    from pytest_asperf.measure.engine_matching import EngineComparison

#: Where a ratio can lie that more pairs do not decide.
_AT_THE_LIMIT: Final = "at the limit"


@dataclass(frozen=True, slots=True)
class RatioClaim:
    """What is claimed of two sides.

    Attributes:
        names: of the side above the line, and of the side below.
        what: the quantity, and the model where both sides have the same.
        at_least: lower limit of the ratio, None for none.
        at_most: upper limit, likewise.
        is_rate: whether the ratio is one of rates; else of times.
    """

    names: tuple[str, str]
    what: str
    at_least: float | None
    at_most: float | None
    is_rate: bool

    @property
    def costs(self) -> tuple[float, float]:
        """The same limits, of the ratio of costs; 0 and infinity where there is none."""
        low, high = self.at_least or 0.0, self.at_most or float("inf")
        if not self.is_rate:
            return low, high
        return 1 / high, 1 / low if low else float("inf")


def ratio_verdict(result: ABResult, claim: RatioClaim, twins: str = "") -> Verdict:
    """The verdict on the ratio of two sides; INVALID where they are shown to be one."""
    base, candidate = result.ran
    subject = Subject(
        f"{' / '.join(claim.names)} in {claim.what}",
        "live",
        ran_rows(claim.names, (candidate, base)),
        if_failed="claim less, or see in which the two sides differ",
    )
    (pairs,) = result.by_workload
    remarks: tuple[str, ...] = ()
    if pairs.pairs:
        below, above, unit = side_texts(pairs)
        names = zip(claim.names, (above, below), strict=True)
        listed = ", ".join(f"{name} {middle} {unit}" for name, middle in names)
        remarks = (f"medians of the runs: {listed}",)
    if not result.same_tokens:
        remarks += ("the sides are fed different tokens",)
    verdict = _judged(pairs, result, subject, claim, remarks)
    if twins:
        return judge_invalid(subject, verdict.threshold, [twins], remedy="name two that differ")
    return verdict


def faster_verdict(versus: EngineComparison, by: float) -> Verdict:
    """The verdict on the pairs of two engines of which one is claimed to be faster."""
    verdict = _engines_verdict(versus, 1 + by, None)
    return replace(verdict, threshold=faster_text(by), bound=f"> {limit_text(1 + by, RATIO)}")


def alike_verdict(versus: EngineComparison, within: float) -> Verdict:
    """The verdict on the pairs of two engines that are claimed to be equally fast."""
    return _engines_verdict(versus, 1 / (1 + within), 1 + within)


def _engines_verdict(versus: EngineComparison, at_least: float, at_most: float | None) -> Verdict:
    """The verdict on a ratio of two engines' rates, with what is matched between them."""
    result, engines = versus.result, versus.engines
    (pairs,) = result.by_workload
    base, candidate = result.ran
    subject = Subject(
        f"{pairs.workload.name} {candidate.model} / {base.model}",
        "live",
        ran_rows(engines, result.ran),
        if_failed=f"on this machine {engines[1]} is not: claim less, or see what is not matched",
    )
    terms = (
        f"matched: {_terms(versus, is_matched=True)}",
        f"not matched: {_terms(versus, is_matched=False) or 'nothing'}",
        *cost_of_serving(versus),
    )
    claim = RatioClaim(engines[::-1], pairs.workload.name, at_least, at_most, is_rate=True)
    return _judged(pairs, result, subject, claim, terms)


def cost_of_serving(versus: EngineComparison) -> Iterator[str]:
    """What a server adds to a library: ms of a request, us of each token."""
    base, candidate = (ran.loaded.served is not None for ran in versus.result.ran)
    (pairs,) = versus.result.by_workload
    if base == candidate or not pairs.pairs:
        return
    server = versus.engines[candidate]
    turns = (zip(pair.baseline_costs, pair.candidate_costs, strict=True) for pair in pairs.pairs)
    more_ns = sorted(median((other - own) * (1 if candidate else -1) for own, other in turn)
                     for turn in turns)  # fmt: skip
    low, middle, high = (ns / 1e6 for ns in (more_ns[0], median(more_ns), more_ns[-1]))
    n_tokens, counted = pairs.workload.n_tokens, counted_text(len(more_ns), "pairs")
    yield (
        f"{server} takes {middle:+.3g} ms a request, {1e3 * middle / n_tokens:+.3g} us a token of "
        f"{n_tokens} (median of {counted}, {low:+.3g} to {high:+.3g} ms)"
    )


def equivalence_verdict(result: ABResult, within: float) -> Verdict:
    """The verdict on the pairs of two models that are claimed to be equally fast."""
    (pairs,) = result.by_workload
    base, candidate = result.ran
    subject = Subject(
        f"{pairs.workload.name} of {candidate.model} against {base.model}",
        "live",
        ran_rows((candidate.model, base.model), (candidate, base)),
        if_failed="one is slower: claim less, or see in which the two differ",
    )
    names = candidate.model, base.model
    claim = RatioClaim(names, pairs.workload.name, 1 / (1 + within), 1 + within, is_rate=True)
    return _judged(pairs, result, subject, claim)


def gain_verdict(pairs: WorkloadPairs, result: ABResult) -> Verdict:
    """The verdict on a workload of a candidate build that is claimed to be faster."""
    cost = "energy" if pairs.workload.metered else "time"
    subject = build_subject(pairs.workload.name, result.ran, "not better by that much")
    by = result.budget.least_gain
    names, most = ("candidate", "baseline"), 1 / (1 + by)
    # Of times, as everything in a gate.
    claim = RatioClaim(names, pairs.workload.name, None, most, is_rate=False)
    verdict = _judged(pairs, result, subject, claim, differences(*result.ran))
    threshold = "less energy" if pairs.workload.metered else faster_text(by)
    return replace(verdict, threshold=f"{threshold} ({number_text(most)}x the {cost})")


def faster_text(by: float) -> str:
    """The threshold of a claim to be faster by a fraction."""
    return f"faster by {percent_text(by)} or more" if by else "faster"


def _judged(
    pairs: WorkloadPairs,
    result: ABResult,
    subject: Subject,
    claim: RatioClaim,
    remarks: tuple[str, ...] = (),
) -> Verdict:
    """The verdict on one workload of a result."""
    energy = energy_notes(result.phases) if pairs.workload.metered else ()
    details = (*remarks, *energy, coverage(pairs, result), *disturbances(result), *fitness(result))
    if not pairs.pairs:
        threshold = range_text(claim.at_least, claim.at_most, RATIO)
        return nothing_finished(subject, threshold, "pair", details)
    test = pairs.test
    ratio = replace(ratio_of(pairs, test), unit=RATIO)
    if claim.is_rate:
        ratio = ratio.inverted()
    verdict = judge_within(ratio, subject, at_least=claim.at_least, at_most=claim.at_most)
    outcome = test.outcome_if_stopped
    below, above, unit = side_texts(pairs)
    sides = f"{above} / {below}" if claim.is_rate else f"{below} → {above}"
    verdict = replace(
        verdict,
        outcome=outcome,
        measured="; ".join(filter(None, (verdict.measured, uncovered(pairs)))),
        brief=f"{sides} {unit}, {verdict.brief}",
        why="",
        figures=((pairs.workload.name, ratio),),
        advice=advice_on_pairs(outcome, subject, test.expected_pairs_left, _AT_THE_LIMIT),
        details=details,
        raw=pair_data(pairs, result, claim.names[::-1], is_rate_ratio=claim.is_rate),
    )
    return examined_verdict(verdict, pairs, result)


def _terms(versus: EngineComparison, *, is_matched: bool) -> str:
    chosen = (term for term in versus.terms if term.is_matched == is_matched)
    return "; ".join(term.text(versus.engines) for term in chosen)
