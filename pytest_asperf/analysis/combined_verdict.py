"""Verdicts on several figures: one assertion on all of them, an order, the Pareto front."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal, Protocol

from pytest_asperf.analysis.limit_verdict import (
    Figure,
    advice_for,
    judge_above,
    judge_below,
    nearest_to_decided,
    outcome_of,
)
from pytest_asperf.analysis.metrics import Metric
from pytest_asperf.analysis.results import (
    Every,
    JudgedFigure,
    Limit,
    Ordered,
    ParetoFront,
    Part,
    WithinLimits,
)
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict


class Judge(Protocol):
    """Judges one figure."""

    def __call__(self, estimate: Estimate, /, *, subject: Subject) -> Verdict:
        """The verdict on one figure."""
        ...


def judge_each(figures: Sequence[Figure], judge: Judge, subject: Subject) -> Verdict:
    """Judge the assertion that every one of several figures meets a limit.

    PASS if each is shown to, FAIL if one is shown not to. The estimates share their error; a single
    figure may have an empty label.
    """
    if not figures:
        raise ValueError("nothing to judge")
    verdicts = [(label, judge(estimate, subject=subject)) for label, estimate in figures]
    if len(verdicts) == 1 and not verdicts[0][0]:
        return verdicts[0][1]
    return joined(verdicts, subject)


def judge_implication(
    cases: Sequence[tuple[str, Estimate, Estimate]], limit: float, subject: Subject
) -> Verdict:
    """Judge the assertion that there is an effect from a limit on, and none below it.

    A case is a label, the deciding quantity (in the limit's unit), and the effect.
    """
    if not cases:
        raise ValueError("nothing to judge")
    verdicts = [(label, _case(where, effect, limit, subject)) for label, where, effect in cases]
    return joined(verdicts, subject, Every(from_limit=Limit(">=", limit, cases[0][1].unit)))


def _case(where: Estimate, effect: Estimate, limit: float, subject: Subject) -> Verdict:
    if where.shown_at_least(limit):
        return judge_above(effect, 0.0, subject)
    none = judge_below(effect, 0.0, subject)
    if where.shown_below(limit):
        # "None" allows exactly 0, which is not below it.
        exactly_none = effect.shown_at_most(0.0)
        return replace(none, outcome=Outcome.PASS) if exactly_none else none
    result = WithinLimits(limits=(Limit("<", 0.0, effect.unit),), where=where)
    return replace(none, outcome=Outcome.INCONCLUSIVE, result=result)


def joined(
    verdicts: Sequence[tuple[str, Verdict]], subject: Subject, about: Every | None = None
) -> Verdict:
    """The verdict on an assertion that is true only if several parts are all true.

    A figure has its part's label. `about` has the further facts of the whole.
    """
    failed = [one for _, one in verdicts if one.outcome is Outcome.FAIL]
    unshown = [one for _, one in verdicts if one.outcome is not Outcome.PASS]
    outcome = Outcome.FAIL if failed else Outcome.INCONCLUSIVE if unshown else Outcome.PASS
    advice = (advice for one in failed or unshown for advice in one.advice)
    return subject.verdict(
        outcome,
        replace(about or Every(), parts=tuple(part(label, one) for label, one in verdicts)),
        figures=tuple(
            replace(figure, label=label) for label, one in verdicts for figure in one.figures
        ),
        advice=tuple(dict.fromkeys(advice)),
    )


def part(label: str, verdict: Verdict) -> Part:
    """A verdict as one of several conditions."""
    overruled = verdict.overruled.found if verdict.overruled else ""
    return Part(
        label=label,
        outcome=verdict.outcome,
        result=verdict.result,
        n_figures=len(verdict.figures),
        problem=overruled or verdict.problem,
    )


def judge_monotonic(
    labels: Sequence[str],
    differences: Sequence[Estimate],
    subject: Subject,
    *,
    direction: Literal["rising", "falling"],
) -> Verdict:
    """Judge the assertion that a quantity rises (or falls) strictly from each label to the next.

    The differences of k labels are k - 1 estimates of next minus previous, or of the relative
    change, with the error shared among them (`stats.intervals.neighbour_estimates`).
    """
    if len(labels) < 2 or len(differences) != len(labels) - 1:
        raise ValueError(f"{len(differences)} differences for {len(labels)} labels")
    names = [f"{a} → {b}" for a, b in pairwise(labels)]
    figures = tuple(zip(names, differences, strict=True))
    up = direction == "rising"
    holds = [_shown(d, up=up) for d in differences]
    broken = [_excluded(d, up=up) for d in differences]
    not_shown = [figure for figure, shown in zip(figures, holds, strict=True) if not shown]
    outcome = outcome_of(holds=all(holds), broken=any(broken))
    limits = (0.0, None) if up else (None, 0.0)
    return subject.verdict(
        outcome,
        Ordered(direction=direction, labels=tuple(labels)),
        figures=tuple(JudgedFigure(*figure, *limits) for figure in figures),
        advice=advice_for(outcome, subject, [(figure, (0.0,)) for figure in not_shown]),
    )


def judge_pareto(
    others: Mapping[str, Sequence[Estimate]], objectives: Sequence[Metric], subject: Subject
) -> Verdict:
    """Judge the assertion that no other candidate is as good in every objective and better in one.

    PASS if each other is shown worse than the subject in at least one objective, or better in none;
    FAIL if one is shown at least as good in all objectives and better in one.

    For each other candidate there is, by objective, the estimate of its difference (or relative
    change) from the subject, the other's minus the subject's, with the error shared among all of
    them (`stats.quantiles.shared_confidence`).
    """
    if not others or not objectives:
        raise ValueError("nothing to compare with")
    figures = {
        label: [(f"{label} {m.name}", e) for m, e in zip(objectives, differences, strict=True)]
        for label, differences in others.items()
    }
    higher = [metric.direction == "higher" for metric in objectives]
    undecided = [label for label, rival in others.items() if not _harmless(rival, higher)]
    dominating = [label for label in undecided if _dominates(others[label], higher)]
    outcome = outcome_of(holds=not undecided, broken=bool(dominating))
    return subject.verdict(
        outcome,
        ParetoFront(
            objectives=tuple(metric.name for metric in objectives),
            others=tuple(others),
            against=tuple(dominating or undecided),
        ),
        figures=tuple(JudgedFigure(*figure) for own in figures.values() for figure in own),
        advice=advice_for(
            outcome, subject, nearest_to_decided(figures[label] for label in undecided)
        ),
    )


def _shown(difference: Estimate, *, up: bool) -> bool:
    """True if the whole interval is on the named side of 0."""
    return difference.shown_above(0) if up else difference.shown_below(0)


def _excluded(difference: Estimate, *, up: bool) -> bool:
    """True if no part of the interval is on the named side of 0."""
    return difference.shown_at_most(0) if up else difference.shown_at_least(0)


def _harmless(rival: Sequence[Estimate], higher: Sequence[bool]) -> bool:
    """True if a rival is shown not to dominate: worse somewhere, or better nowhere."""
    return any(_shown(e, up=not h) for e, h in zip(rival, higher, strict=True)) or all(
        _excluded(e, up=h) for e, h in zip(rival, higher, strict=True)
    )


def _dominates(rival: Sequence[Estimate], higher: Sequence[bool]) -> bool:
    """True if a rival is shown at least as good in every objective and better in one."""
    return all(_excluded(e, up=not h) for e, h in zip(rival, higher, strict=True)) and any(
        _shown(e, up=h) for e, h in zip(rival, higher, strict=True)
    )
