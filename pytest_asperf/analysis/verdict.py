"""PASS, FAIL, INCONCLUSIVE, INVALID: from estimates and limits to a verdict that renders itself.

A claim holds where its whole interval lies on the claimed side of the limit, fails where the whole
interval lies on the other side, and is open in between. With the two-sided 90 % intervals of
`stats.intervals`, each of the two wrong verdicts has a probability of at most 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from pytest_asperf.analysis.guards.guard_finding import Consequence
from pytest_asperf.analysis.outcome import Outcome as Outcome  # noqa: PLC0414  # re-exported
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_asperf.analysis.guards.guard_finding import GuardFinding

Source = Literal["live", "recorded", "predicted"]
Figure = tuple[str, Estimate]

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
            computed from sizes.
        ran: proof of path, as label and value.
        if_failed: what to do about a FAIL.
    """

    name: str
    source: Source
    ran: tuple[tuple[str, str], ...] = ()
    if_failed: str = "compare what ran with the last run that passed; the interval excludes noise"


@dataclass(frozen=True, slots=True)
class TimedSide:
    """The times of one side of a comparison.

    Attributes:
        workload: what was timed.
        model: what ran it, the build included where one was named.
        side: such as `baseline`.
        settings: engine settings that were asked for, as texts.
        runs_ns: in the order they ran.
    """

    workload: str
    model: str
    side: str
    settings: dict[str, str]
    runs_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome and everything that led to it.

    Attributes:
        outcome: the verdict.
        subject: what the claim is about.
        threshold: the claim's other half, such as ``below 1 %``.
        measured: the result, in one phrase.
        figures: every estimate judged, with its label.
        advice: what to do now; empty after a PASS.
        details: further remarks, one line each.
        timed: the times that were compared, for reports.
    """

    outcome: Outcome
    subject: Subject
    threshold: str
    measured: str
    figures: tuple[Figure, ...]
    advice: str
    details: tuple[str, ...] = ()
    timed: tuple[TimedSide, ...] = ()

    @property
    def claim(self) -> str:
        """The claim as one phrase."""
        return f"{self.subject.name} {self.threshold}"

    def reworded(self, reword: Callable[[str], str]) -> Verdict:
        """The same verdict with its advice and remarks reworded."""
        return replace(
            self, advice=reword(self.advice), details=tuple(reword(text) for text in self.details)
        )

    def line(self) -> str:
        """The verdict on one line, safe to print."""
        basis = [
            *_bases(self.figures),
            *([self.subject.source] if self.subject.source != "live" else []),
        ]
        tail = f" ({', '.join(basis)})" if basis else ""
        return f"{self.outcome}  {printable(self.claim)}: {printable(self.measured)}{tail}"

    def note(self) -> str:
        """The verdict as a lab note of several lines, safe to print."""
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


def judge_invalid(
    subject: Subject, threshold: str, problems: Iterable[str], *, remedy: str
) -> Verdict:
    """The verdict on a broken measurement."""
    first, *rest = problems
    return Verdict(Outcome.INVALID, subject, threshold, first, (), remedy, tuple(rest))


def guarded(verdict: Verdict, guard_findings: Iterable[GuardFinding], *, remedy: str) -> Verdict:
    """The verdict after the validity guards, with a remedy where they change the outcome.

    INVALID overrules every verdict and INCONCLUSIVE overrules PASS and FAIL; a warning is shown and
    changes nothing.
    """
    findings = tuple(guard_findings)
    broken, doubtful = (
        next((finding.found for finding in findings if finding.consequence is consequence), "")
        for consequence in (Consequence.INVALID, Consequence.INCONCLUSIVE)
    )
    details = (*verdict.details, *map(str, findings))
    outcome, measured, advice = verdict.outcome, verdict.measured, verdict.advice
    if broken:
        outcome, measured, advice = Outcome.INVALID, broken, remedy
    elif doubtful and outcome in {Outcome.PASS, Outcome.FAIL}:
        outcome, measured, advice = Outcome.INCONCLUSIVE, f"{measured}, but {doubtful}", remedy
    return replace(verdict, outcome=outcome, measured=measured, advice=advice, details=details)


def _bases(figures: Sequence[Figure]) -> list[str]:
    """Distinct sample counts of the figures, such as ``63 chunks``."""
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
    """Lines with aligned labels; a repeated label is printed once."""
    width = max(len(label) for label, _ in rows) + 1
    lines, previous = [], ""
    for label, text in rows:
        head = "" if label in {"", previous} else f"{label}:"
        lines.append(f"  {head:<{width}} {printable(text)}")
        previous = label
    return lines


class VerdictError(AssertionError):
    """A claim that did not pass; its text is the verdict's lab note."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.note())
        self.verdict = verdict
