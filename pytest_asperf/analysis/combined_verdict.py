"""Verdicts on claims that several figures carry together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from pytest_asperf.analysis.limit_verdict import judge_above, judge_below
from pytest_asperf.analysis.stats.estimate import limit_text
from pytest_asperf.analysis.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.analysis.verdict import Figure, Subject


class Judge(Protocol):
    """Judges one figure."""

    def __call__(self, estimate: Estimate, /, *, subject: Subject) -> Verdict:
        """The verdict on one figure."""
        ...


#: Figures that the one-line result names.
_NAMED: Final = 3


def judge_each(figures: Sequence[Figure], judge: Judge, subject: Subject) -> Verdict:
    """Judge the claim that every one of several figures meets a limit.

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
    """Judge the claim that there is an effect from a limit on, and none below it.

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
    """The verdict on a claim that holds if several parts all hold."""
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
    accepted = tuple(limits for _, verdict in verdicts for limits in verdict.accepted)
    measured = f"{head}; {shown}{more}"
    return Verdict(
        outcome, subject, threshold, measured, figures, advice, accepted=accepted, brief=head
    )
