"""Verdicts on several figures: one assertion on all of them, an order, the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, Protocol

from pytest_asperf.analysis.limit_verdict import (
    Figure,
    advice_for,
    judge_above,
    judge_below,
    nearest_to_decided,
    outcome_of,
)
from pytest_asperf.analysis.stats.estimate import Estimate, counted_text, limit_text
from pytest_asperf.analysis.verdict import JudgedFigure, Outcome, Subject, Verdict

if TYPE_CHECKING:
    from pytest_asperf.analysis.metrics import Metric


class Judge(Protocol):
    """Judges one figure."""

    def __call__(self, estimate: Estimate, /, *, subject: Subject) -> Verdict:
        """The verdict on one figure."""
        ...


#: Figures that the one-line result names.
_NAMED: Final = 3


def judge_each(figures: Sequence[Figure], judge: Judge, subject: Subject) -> Verdict:
    """Judge the assertion that every one of several figures meets a limit.

    PASS if each is shown to, FAIL if one is shown not to. The estimates share their error; a single
    figure may have an empty label.
    """
    if not figures:
        raise ValueError("nothing to judge")
    if len(figures) == 1:
        label, estimate = figures[0]
        verdict = judge(estimate, subject=subject)
        if not label:
            return verdict
        return replace(
            verdict, measured=f"{label} {verdict.measured}", brief=f"{label} {verdict.brief}"
        )
    verdicts = [(label, judge(estimate, subject=subject)) for label, estimate in figures]
    verdict = joined(verdicts, tuple(figures), subject, verdicts[0][1].threshold)
    return replace(verdict, bound=verdicts[0][1].bound)


def judge_implication(
    cases: Sequence[tuple[str, Estimate, Estimate]], limit: float, subject: Subject
) -> Verdict:
    """Judge the assertion that there is an effect from a limit on, and none below it.

    A case is a label, the deciding quantity (in the limit's unit), and the effect.
    """
    if not cases:
        raise ValueError("nothing to judge")
    unit = cases[0][1].unit
    threshold = f"above 0 from {limit_text(limit, unit)} on, and not above 0 below"
    verdicts = [(label, _case(where, effect, limit, subject)) for label, where, effect in cases]
    figures = tuple((label, effect) for label, _, effect in cases)
    return joined(verdicts, figures, subject, threshold)


def _case(where: Estimate, effect: Estimate, limit: float, subject: Subject) -> Verdict:
    if where.shown_at_least(limit):
        return judge_above(effect, 0.0, subject)
    none = judge_below(effect, 0.0, subject)
    if where.shown_below(limit):
        # "None" allows exactly 0, which is not below it.
        exactly_none = effect.shown_at_most(0.0)
        return replace(none, outcome=Outcome.PASS) if exactly_none else none
    measured = f"{none.measured} at {where.text(apart_from=(limit,))}"
    return replace(none, outcome=Outcome.INCONCLUSIVE, measured=measured)


def joined(
    verdicts: Sequence[tuple[str, Verdict]],
    figures: tuple[Figure, ...],
    subject: Subject,
    threshold: str,
) -> Verdict:
    """The verdict on an assertion that is true only if several parts are all true."""
    failed = [pair for pair in verdicts if pair[1].outcome is Outcome.FAIL]
    unshown = [pair for pair in verdicts if pair[1].outcome is not Outcome.PASS]
    outcome = Outcome.FAIL if failed else Outcome.INCONCLUSIVE if unshown else Outcome.PASS
    named = failed or unshown or list(verdicts)
    shown = ", ".join(f"{label} {verdict.measured}" for label, verdict in named[:_NAMED])
    more = f", and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    count = f"of {len(verdicts)}"
    if failed:
        head = f"fails in {len(failed)} {count}"
    else:
        head = f"{len(verdicts) - len(unshown)} {count} shown"
    advice = "; ".join(dict.fromkeys(v.advice for _, v in named if v.advice))
    limits = [(one.at_least, one.at_most) for _, own in verdicts for one in own.figures]
    if len(limits) != len(figures):
        limits = [(None, None)] * len(figures)
    return subject.verdict(
        outcome,
        threshold=threshold,
        measured=f"{head}; {shown}{more}",
        brief=head,
        figures=tuple(
            JudgedFigure(*figure, *own) for figure, own in zip(figures, limits, strict=True)
        ),
        advice=advice,
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
    reversed_ = [figure for figure, shown in zip(figures, broken, strict=True) if shown]
    outcome = outcome_of(holds=all(holds), broken=any(broken))
    culprits = reversed_ or not_shown
    brief = measured = f"{sum(holds)} of {counted_text(len(holds), 'steps')} shown"
    if culprits:
        measured += "; " + ", ".join(f"{name} {e.text(apart_from=(0,))}" for name, e in culprits)
    limits = (0.0, None) if up else (None, 0.0)
    return subject.verdict(
        outcome,
        threshold=f"{direction} along {', '.join(labels)}",
        measured=measured,
        figures=tuple(JudgedFigure(*figure, *limits) for figure in figures),
        advice=advice_for(outcome, subject, [(figure, (0.0,)) for figure in not_shown]),
        brief=brief,
        bound=direction,
    )


def judge_pareto(
    others: Mapping[str, Sequence[Estimate]],
    objectives: Sequence[Metric],
    subject: Subject,
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
    named = dominating or undecided
    if named:
        values = ", ".join(
            f"{label} {e.text(apart_from=(0,))}" for name in named for label, e in figures[name]
        )
        brief = f"{'dominated by' if dominating else 'open against'} {', '.join(named)}"
        measured = f"{'dominated by' if dominating else 'undecided against'} {values}"
    else:
        brief = measured = f"dominated by none of {len(others)}"
    return subject.verdict(
        outcome,
        threshold=f"on the Pareto front of {', '.join(metric.name for metric in objectives)}",
        measured=measured,
        figures=tuple(JudgedFigure(*figure) for own in figures.values() for figure in own),
        advice=advice_for(
            outcome, subject, nearest_to_decided(figures[label] for label in undecided)
        ),
        brief=brief,
        bound="Pareto front",
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
