"""PASS, FAIL, INCONCLUSIVE, INVALID: from estimates and limits to a verdict that renders itself.

An assertion is true if its whole interval is on the asserted side of the limit, false if the whole
interval is on the other side, and open in between. With the two-sided 90 % intervals of
`stats.intervals`, each of the two wrong verdicts has a probability of at most 5 %.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from pytest_asperf.analysis.guards.guard import Consequence, GuardFinding, Voids
from pytest_asperf.analysis.outcome import Outcome as Outcome  # noqa: PLC0414  # re-exported
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.errors import printable

if TYPE_CHECKING:
    from pytest_asperf.analysis.facts import Compared

Source = Literal["live", "recorded", "predicted"]
Figure = tuple[str, Estimate]
#: Lower and upper limit of an assertion, in its figure's unit; None is no limit.
Accepted = tuple[float | None, float | None]

#: The reason for no other verdict, if there is nothing to add.
_WHY: Final = {Outcome.INCONCLUSIVE: "the interval contains the limit"}
#: The run record's fact that more threads ran than there are cores; a note has it too.
OVERSUBSCRIBED: Final = "oversubscribed"
#: The run record, shortened to one line.
_KEPT: Final = ("model", "sha256")
_MEANING: Final = {
    Outcome.PASS: "shown to hold",
    Outcome.FAIL: "the assertion does not hold",
    Outcome.INCONCLUSIVE: "not decided",
    Outcome.INVALID: "the measurement is broken",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of an assertion, and what ran for it.

    Attributes:
        name: metric and models, such as ``ΔPPL asperf-target Q6_K vs F16``.
        source: whether the figures were measured now, come from a published record, or were
            computed from sizes.
        ran: the run record, as label and value.
        brief: the name in a table, where it is another.
        if_failed: what to do about a FAIL.
    """

    name: str
    source: Source
    ran: tuple[tuple[str, str], ...] = ()
    brief: str = ""
    if_failed: str = "compare what ran with the last run that passed; the interval excludes noise"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome and everything that led to it.

    Attributes:
        outcome: the verdict.
        subject: of the assertion.
        threshold: the assertion's other half, such as ``below 1 %``.
        measured: the result, in one phrase.
        figures: every estimate judged, with its label.
        advice: what to do now; empty after a PASS.
        details: further remarks, one line each.
        accepted: the accepted range of each figure; empty without such limits.
        brief: the result in a table, where it is another phrase.
        bound: the threshold as a table shows it: ``< 1 %``.
        why: why it is not decided, in a few words.
        basis: what the result rests on, where that is no number of observations.
        guards: what guards found.
        compared: the measurements of two variants, if the assertion compares them.
    """

    outcome: Outcome
    subject: Subject
    threshold: str
    measured: str
    figures: tuple[Figure, ...]
    advice: str
    details: tuple[str, ...] = ()
    accepted: tuple[Accepted, ...] = ()
    brief: str = ""
    bound: str = ""
    why: str = ""
    basis: str = ""
    guards: tuple[GuardFinding, ...] = ()
    compared: Compared | None = field(default=None, compare=False)

    def __bool__(self) -> bool:
        """True if it is a PASS, and otherwise raised: a verdict is there to be asserted.

        Raises:
            VerdictError: it is not a PASS.
        """
        if self.outcome is not Outcome.PASS:
            raise VerdictError(self)
        return True

    @property
    def claim(self) -> str:
        """The assertion as one phrase."""
        return f"{self.subject.name} {self.threshold}"

    def line(self) -> str:
        """The verdict on one line, safe to print."""
        basis = [
            *dict.fromkeys(estimate.basis for _, estimate in self.figures if estimate.basis),
            *([self.subject.source] if self.subject.source != "live" else []),
        ]
        tail = f" ({', '.join(basis)})" if basis else ""
        return f"{self.outcome}  {printable(self.claim)}: {printable(self.measured)}{tail}"

    def short_note(self) -> tuple[str, ...]:
        """The failure, its reason, the remedy and what ran, one line each, safe to print."""
        facts = dict(self.subject.ran)
        sides = ("", "candidate ", "target ")
        kept = [facts.get(f"{side}{label}", "") for label in _KEPT for side in sides]
        limit = self.bound or self.threshold
        found = (self.brief or self.measured, f"wanted {limit}" if limit else "")
        lines = (
            (str(self.outcome), f"{self.subject.brief or self.subject.name}: {', '.join(found)}"),
            ("why", self.why or _WHY.get(self.outcome, "")),
            ("do", self.advice),
            ("ran", any(kept) and ", ".join([*filter(None, kept), "-v for all"])),
        )
        return tuple(f"{head:13} {printable(text, 300)}" for head, text in lines if text)

    def note(self, *, with_ran: bool = True) -> str:
        """The verdict as a lab note of several lines, safe to print; with all that ran, or not."""
        rows = [("assertion", self.claim), ("measured", self.measured)]
        rows += [("", detail) for detail in (*self.details, *map(str, self.guards))]
        if len(self.figures) == 1:
            rows += [("interval", _how(self.figures[0][1]))]
        else:
            rows += [("intervals", f"{label} {e}; {_how(e)}") for label, e in self.figures]
        rows += [("threshold", self.threshold)]
        facts = self.subject.ran if with_ran else ()
        rows += [(f"ran ({self.subject.source})", f"{k}: {v}") for k, v in facts]
        if self.advice:
            rows += [("what to do", self.advice)]
        return "\n".join([f"{self.outcome}: {_MEANING[self.outcome]}", *_table(rows)])


def judge_invalid(
    subject: Subject, threshold: str, problems: Iterable[str], *, remedy: str
) -> Verdict:
    """The verdict on a broken measurement."""
    first, *rest = problems
    return Verdict(Outcome.INVALID, subject, threshold, first, (), remedy, tuple(rest))


def guarded(
    verdict: Verdict, guard_findings: Iterable[GuardFinding], *, spared: Collection[Voids] = ()
) -> Verdict:
    """The verdict after the validity guards, with a guard's remedy if that changed the outcome.

    INVALID overrules every verdict and INCONCLUSIVE overrules PASS and FAIL; a warning is shown and
    changes nothing. A finding that voids one of `spared` alone is a warning for this assertion.
    """
    findings = tuple(guard_findings)
    voiding = [finding for finding in findings if finding.voids not in spared]
    broken, doubtful = (
        next((finding for finding in voiding if finding.consequence is consequence), None)
        for consequence in (Consequence.INVALID, Consequence.INCONCLUSIVE)
    )
    found = replace(verdict, guards=(*verdict.guards, *findings))
    if broken:
        found = replace(found, outcome=Outcome.INVALID, measured=broken.found, brief="", why="")
        return replace(found, advice=broken.remedy)
    if doubtful and verdict.outcome in {Outcome.PASS, Outcome.FAIL}:
        return replace(
            found,
            outcome=Outcome.INCONCLUSIVE,
            measured=f"{verdict.measured}, but {doubtful.found}",
            brief=verdict.brief or verdict.measured,
            advice=doubtful.remedy,
            why=doubtful.found,
        )
    return found


def _how(estimate: Estimate) -> str:
    if estimate.is_exact:
        return estimate.method
    two_sided, one_sided = 100 * estimate.confidence, 50 * (1 - estimate.confidence)
    return (
        f"{two_sided:.4g} % two-sided, so each bound errs in at most {one_sided:.3g} % of runs; "
        f"{estimate.method}, {estimate.basis}"
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
    """An assertion that did not pass; its text is the verdict's lab note."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.note())
        self.verdict = verdict
