"""PASS, FAIL, INCONCLUSIVE, INVALID: from estimates and limits to a verdict that renders itself.

A claim holds where its whole interval lies on the claimed side of the limit, fails where the whole
interval lies on the other side, and is open in between. With the two-sided 90 % intervals of
`stats.intervals`, each of the two wrong verdicts has a probability of at most 5 %.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from pytest_asperf.analysis.guards.guard_finding import Consequence
from pytest_asperf.analysis.stats.estimate import Estimate, limit_text
from pytest_asperf.errors import ConfigError, printable, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_asperf.analysis.guards.guard_finding import GuardFinding
    from pytest_asperf.analysis.metrics import Metric

Source = Literal["live", "recorded", "predicted"]
Figure = tuple[str, Estimate]

_PERCENT: Final = re.compile(r"(?P<number>[+-]?(\d+(\.\d*)?|\.\d+))\s*%", re.ASCII)
_LARGEST_FRACTION: Final = 1e6
#: Beyond this many times the observations taken, "measure more" is no advice.
_PRACTICABLE: Final = 100


class Outcome(StrEnum):
    """The four verdicts; neither of the last two ever counts as a pass."""

    PASS = "PASS"  # noqa: S105  # a verdict, not a password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"


_MEANING: Final = {
    Outcome.PASS: "shown to hold",
    Outcome.FAIL: "shown not to hold",
    Outcome.INCONCLUSIVE: "neither shown nor excluded",
    Outcome.INVALID: "the measurement is broken",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What a claim is about and what ran for it.

    Attributes:
        name: metric and models, such as ``ΔPPL asperf-target Q6_K vs F16``.
        source: whether the figures were measured now, come from a published record, or were
            reckoned from sizes.
        ran: proof of path, as rows of label and value.
        if_failed: what to do about a FAIL.
    """

    name: str
    source: Source
    ran: tuple[tuple[str, str], ...] = ()
    if_failed: str = "compare what ran with the last run that passed; the interval excludes noise"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome with everything that led to it.

    Attributes:
        outcome: the verdict.
        subject: what the claim is about.
        threshold: the claim's other half, such as ``below 1 %``.
        measured: what was found, in one phrase.
        figures: every estimate judged, with its label.
        advice: what to do now; empty after a PASS.
        details: further remarks, one line each.
    """

    outcome: Outcome
    subject: Subject
    threshold: str
    measured: str
    figures: tuple[Figure, ...]
    advice: str
    details: tuple[str, ...] = ()

    @property
    def claim(self) -> str:
        """The claim as one phrase."""
        return f"{self.subject.name} {self.threshold}"

    def reworded(self, reword: Callable[[str], str]) -> Verdict:
        """Return the same verdict with its advice and remarks in other words."""
        return replace(
            self, advice=reword(self.advice), details=tuple(reword(text) for text in self.details)
        )

    def line(self) -> str:
        """Return the verdict on one line, safe to print."""
        basis = [
            *_bases(self.figures),
            *([self.subject.source] if self.subject.source != "live" else []),
        ]
        tail = f" ({', '.join(basis)})" if basis else ""
        return f"{self.outcome}  {printable(self.claim)}: {printable(self.measured)}{tail}"

    def note(self) -> str:
        """Return the verdict as a lab note of several lines, safe to print."""
        rows = [("claim", self.claim), ("measured", self.measured)]
        rows += [("", detail) for detail in self.details]
        if len(self.figures) == 1:
            rows += [("interval", _how(self.figures[0][1]))]
        else:
            rows += [("intervals", f"{label} {e}; {_how(e)}") for label, e in self.figures]
        rows += [("threshold", self.threshold)]
        rows += [(f"ran ({self.subject.source})", f"{k}: {v}") for k, v in self.subject.ran]
        if self.advice:
            rows += [("what to do", self.advice)]
        return "\n".join([f"{self.outcome}: {_MEANING[self.outcome]}", *_table(rows)])


def judge_below(estimate: Estimate, limit: float, subject: Subject) -> Verdict:
    """Judge the claim that a quantity is below `limit`, given in the estimate's unit."""
    return _judge(
        estimate,
        subject,
        threshold=f"below {limit_text(limit, estimate.unit)}",
        limits=(limit,),
        holds=estimate.shown_below(limit),
        broken=estimate.shown_at_least(limit),
    )


def judge_above(estimate: Estimate, limit: float, subject: Subject) -> Verdict:
    """Judge the claim that a quantity is above `limit`, given in the estimate's unit."""
    return _judge(
        estimate,
        subject,
        threshold=f"above {limit_text(limit, estimate.unit)}",
        limits=(limit,),
        holds=estimate.shown_above(limit),
        broken=estimate.shown_at_most(limit),
    )


def judge_within(
    estimate: Estimate,
    subject: Subject,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Verdict:
    """Judge the claim that a quantity lies within limits, given in the estimate's unit.

    Raises:
        ConfigError: no limit was given, or no quantity can lie within them.
    """
    low = -math.inf if at_least is None else at_least
    high = math.inf if at_most is None else at_most
    limits = tuple(limit for limit in (at_least, at_most) if limit is not None)
    if not limits or not low <= high:
        raise ConfigError(
            f"{subject.name}: at_least={at_least}, at_most={at_most} is not a range",
            why="such a claim would always or never hold",
            remedy="give at_least, at_most, or both with at_least <= at_most",
        )
    words = [("at least", at_least), ("at most", at_most)]
    return _judge(
        estimate,
        subject,
        threshold=" and ".join(
            f"{w} {limit_text(v, estimate.unit)}" for w, v in words if v is not None
        ),
        limits=limits,
        holds=estimate.shown_at_least(low) and estimate.shown_at_most(high),
        broken=estimate.shown_below(low) or estimate.shown_above(high),
    )


def judge_monotonic(
    labels: Sequence[str],
    differences: Sequence[Estimate],
    subject: Subject,
    *,
    direction: Literal["rising", "falling"],
) -> Verdict:
    """Judge the claim that a quantity rises (or falls) strictly from each label to the next.

    Args:
        labels: k labels in the claimed order.
        differences: k - 1 estimates of next minus previous, or of the relative change, with the
            error shared among them (`stats.intervals.neighbour_estimates`).
        subject: what the claim is about.
        direction: what the claim says.

    Raises:
        ValueError: there are not k - 1 >= 1 differences.
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
    outcome = _outcome(holds=all(holds), broken=any(broken))
    culprits = reversed_ or not_shown
    measured = f"{sum(holds)} of {len(holds)} steps shown"
    if culprits:
        measured += "; " + ", ".join(f"{name} {e.text(apart_from=(0,))}" for name, e in culprits)
    return Verdict(
        outcome,
        subject,
        threshold=f"{direction} along {', '.join(labels)}",
        measured=measured,
        figures=figures,
        advice=_advice(outcome, subject, [(figure, (0.0,)) for figure in not_shown]),
    )


def judge_pareto(
    others: Mapping[str, Sequence[Estimate]],
    objectives: Sequence[Metric],
    subject: Subject,
) -> Verdict:
    """Judge the claim that no other candidate is as good in every objective and better in one.

    PASS where each other is shown worse than the subject in at least one objective, or better in
    none; FAIL where one is shown at least as good in all objectives and better in one.

    Args:
        others: for each other candidate, by objective, the estimate of its difference (or relative
            change) from the subject, the other's minus the subject's, with the error shared among
            all of them (`stats.intervals.shared_confidence`).
        objectives: the metrics, in the order of the estimates.
        subject: the candidate that the claim is about.

    Raises:
        ValueError: nothing to compare with, or an estimate is missing.
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
    outcome = _outcome(holds=not undecided, broken=bool(dominating))
    named = dominating or undecided
    if named:
        values = ", ".join(
            f"{label} {e.text(apart_from=(0,))}" for name in named for label, e in figures[name]
        )
        measured = f"{'dominated by' if dominating else 'undecided against'} {values}"
    else:
        measured = f"dominated by none of {len(others)}"
    return Verdict(
        outcome,
        subject,
        threshold=f"on the Pareto front of {', '.join(metric.name for metric in objectives)}",
        measured=measured,
        figures=tuple(figure for own in figures.values() for figure in own),
        advice=_advice(outcome, subject, _closest(figures[label] for label in undecided)),
    )


def judge_invalid(
    subject: Subject, threshold: str, problems: Iterable[str], *, remedy: str
) -> Verdict:
    """Return the verdict on a measurement that is broken and cannot be judged."""
    first, *rest = problems
    return Verdict(Outcome.INVALID, subject, threshold, first, (), remedy, tuple(rest))


def guarded(verdict: Verdict, guard_findings: Iterable[GuardFinding], *, remedy: str) -> Verdict:
    """Return what tripped guards leave of a verdict: guards come before verdicts.

    INVALID overrules every verdict, INCONCLUSIVE those that decide something; a warning is told.

    Args:
        verdict: the verdict by interval and limit.
        guard_findings: what guards say of the measurement.
        remedy: what to do where they change the outcome.
    """
    told = tuple(guard_findings)
    details = (*verdict.details, *map(str, told))
    outcome, measured, advice = verdict.outcome, verdict.measured, verdict.advice
    broken, doubtful = (
        next(
            (
                guard_finding.found
                for guard_finding in told
                if guard_finding.consequence is consequence
            ),
            "",
        )
        for consequence in (Consequence.INVALID, Consequence.INCONCLUSIVE)
    )
    if broken:
        outcome, measured, advice = Outcome.INVALID, broken, remedy
    elif doubtful and outcome in {Outcome.PASS, Outcome.FAIL}:
        outcome, measured, advice = Outcome.INCONCLUSIVE, f"{measured}, but {doubtful}", remedy
    return replace(verdict, outcome=outcome, measured=measured, advice=advice, details=details)


def parse_percent(value: object, *, where: str, negative: bool = False) -> float:
    """Read a relative limit: ``"1%"`` or the fraction ``0.01``; returns the fraction.

    Args:
        value: text with a percent sign, or a number, which is taken as a fraction.
        where: the argument, option or key that it stands in, for the message.
        negative: whether limits below zero make sense there.

    Raises:
        ConfigError: anything else: no percent sign, not finite, or below zero.
    """
    fraction = math.nan
    if isinstance(value, str):
        if match := _PERCENT.fullmatch(value.strip()):
            fraction = float(match["number"]) / 100
    elif isinstance(value, int | float) and not isinstance(value, bool):
        fraction = value
    least = -_LARGEST_FRACTION if negative else 0
    if not least <= fraction <= _LARGEST_FRACTION:
        below_zero = "" if negative else ", not below zero"
        raise ConfigError(
            f"{where}: {shown(value)} is not a usable limit",
            why="a verdict needs to know whether 1 means one percent or all of it",
            remedy=f'write "1%" or the fraction 0.01{below_zero}',
        )
    return float(fraction)


def _judge(
    estimate: Estimate,
    subject: Subject,
    *,
    threshold: str,
    limits: tuple[float, ...],
    holds: bool,
    broken: bool,
) -> Verdict:
    outcome = _outcome(holds=holds, broken=broken)
    return Verdict(
        outcome,
        subject,
        threshold=threshold,
        measured=estimate.text(apart_from=limits),
        figures=((subject.name, estimate),),
        advice=_advice(outcome, subject, [((subject.name, estimate), limits)]),
    )


def _outcome(*, holds: bool, broken: bool) -> Outcome:
    if broken:
        return Outcome.FAIL
    return Outcome.PASS if holds else Outcome.INCONCLUSIVE


def _advice(
    outcome: Outcome, subject: Subject, undecided: Sequence[tuple[Figure, tuple[float, ...]]]
) -> str:
    """Return what to do: nothing, the subject's remedy, or what would decide the open figures."""
    if outcome is Outcome.PASS:
        return ""
    if outcome is Outcome.FAIL:
        return subject.if_failed
    return "; ".join(_would_decide(figure, limits) for figure, limits in undecided)


def _would_decide(figure: Figure, limits: tuple[float, ...]) -> str:
    label, estimate = figure
    if not estimate.has_interval:
        return f"{label}: measure more than {estimate.n} {estimate.counted} ({estimate.method})"
    total = _needed(estimate, limits)
    if total > _PRACTICABLE * estimate.n:
        return f"{label}: lies too near the limit to decide by measuring more; claim another limit"
    more = math.ceil(total - estimate.n)
    two_digits = round(more, 2 - len(str(more))) if more > 99 else more
    return (
        f"{label}: about {two_digits} more {estimate.counted} would decide it if the figure stays "
        "where it is"
    )


def _needed(estimate: Estimate, limits: tuple[float, ...]) -> float:
    """Return how many observations would bring the interval clear of every limit in it.

    An interval's width goes with ``1 / sqrt(n)``; with few observations t makes this too many.
    """
    needed: float = estimate.n + 1
    for limit in limits:
        if not estimate.low <= limit <= estimate.high:
            continue
        distance = abs(limit - estimate.point)
        half = (
            estimate.high - estimate.point
            if limit > estimate.point
            else estimate.point - estimate.low
        )
        ratio = half / distance if distance else math.inf
        needed = max(needed, estimate.n * ratio * ratio)
    return needed


def _closest(
    candidates: Iterable[Sequence[Figure]],
) -> list[tuple[Figure, tuple[float, ...]]]:
    """Return, of each candidate's figures that 0 lies in, the one that is decided soonest."""
    still_open = (
        [f for f in figures if not f[1].is_exact and f[1].low <= 0 <= f[1].high]
        for figures in candidates
    )
    return [(min(fs, key=lambda f: _needed(f[1], (0.0,))), (0.0,)) for fs in still_open if fs]


def _shown(difference: Estimate, *, up: bool) -> bool:
    """Whether the whole interval lies on the named side of 0."""
    return difference.shown_above(0) if up else difference.shown_below(0)


def _excluded(difference: Estimate, *, up: bool) -> bool:
    """Whether no part of the interval lies on the named side of 0."""
    return difference.shown_at_most(0) if up else difference.shown_at_least(0)


def _harmless(rival: Sequence[Estimate], higher: Sequence[bool]) -> bool:
    """Whether a rival is shown not to dominate: worse somewhere, or better nowhere."""
    return any(_shown(e, up=not h) for e, h in zip(rival, higher, strict=True)) or all(
        _excluded(e, up=h) for e, h in zip(rival, higher, strict=True)
    )


def _dominates(rival: Sequence[Estimate], higher: Sequence[bool]) -> bool:
    """Whether a rival is shown at least as good in every objective and better in one."""
    return all(_excluded(e, up=not h) for e, h in zip(rival, higher, strict=True)) and any(
        _shown(e, up=h) for e, h in zip(rival, higher, strict=True)
    )


def _bases(figures: Sequence[Figure]) -> list[str]:
    """Return what the figures rest on, ``63 chunks``, each once."""
    counts = {(e.n, e.counted): None for _, e in figures if not e.is_exact}
    return [f"{n} {counted}" for n, counted in counts]


def _how(estimate: Estimate) -> str:
    if estimate.is_exact:
        return "exact"
    two_sided, one_sided = 100 * estimate.confidence, 50 * (1 - estimate.confidence)
    return (
        f"{two_sided:.4g} % two-sided, so each bound errs in at most {one_sided:.3g} % of runs; "
        f"{estimate.method}, {estimate.n} {estimate.counted}"
    )


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return rows with their labels aligned, a repeated label printed once."""
    width = max(len(label) for label, _ in rows) + 1
    lines, previous = [], ""
    for label, text in rows:
        head = "" if label in {"", previous} else f"{label}:"
        lines.append(f"  {head:<{width}} {printable(text)}")
        previous = label
    return lines


class VerdictError(AssertionError):
    """A claim that did not pass; its text is the verdict's lab note.

    Attributes:
        verdict: the verdict.
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.note())
        self.verdict = verdict
