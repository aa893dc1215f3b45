"""PASS, FAIL, INCONCLUSIVE, INVALID: a verdict, as judging gives it and as a report has it.

An assertion is true if its whole interval is on the asserted side of the limit, false if the whole
interval violates it, and open in between. With the two-sided 90 % intervals of `stats.intervals`,
each of the two wrong verdicts has a probability of at most 5 %.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal, TypedDict, Unpack

from pytest_asperf.analysis.facts import Compared
from pytest_asperf.analysis.guards.guard import Consequence, GuardFinding, Voids
from pytest_asperf.analysis.outcome import Outcome as Outcome  # noqa: PLC0414  # re-exported
from pytest_asperf.analysis.stats.estimate import Estimate

Source = Literal["live", "recorded", "predicted"]

#: The run record's fact that more threads ran than there are cores; a note has it too.
OVERSUBSCRIBED: Final = "oversubscribed"


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of an assertion, and its run record.

    Attributes:
        name: metric and models, such as ``ΔPPL asperf-target Q6_K vs F16``.
        source: `live`, from published figures, or computed from sizes.
        ran: the run record, as label and value.
        brief: the name in a table, if it differs.
        if_failed: remedy of a FAIL.
    """

    name: str
    source: Source
    ran: tuple[tuple[str, str], ...] = ()
    brief: str = ""
    if_failed: str = "compare what ran with the last run that passed; the interval excludes noise"

    def verdict(self, outcome: Outcome, *, measured: str, **judged: Unpack[Judgment]) -> Verdict:
        """A verdict on it."""
        return self.of(Verdict(outcome=outcome, subject="", measured=measured, **judged))

    def of(self, verdict: Verdict) -> Verdict:
        """The verdict, with this subject instead of its own."""
        return replace(
            verdict,
            subject=self.name,
            source=self.source,
            facts=self.ran,
            subject_brief=self.brief,
        )


class Judgment(TypedDict, total=False):
    """The parts of a verdict that judging may add, as `Verdict` describes them."""

    threshold: str
    bound: str
    brief: str
    figures: tuple[JudgedFigure, ...]
    why: str
    rests_on: str
    advice: str
    details: tuple[str, ...]
    compared: Compared | None


@dataclass(frozen=True, slots=True)
class JudgedFigure:
    """A judged estimate, with its accepted limits; None is no limit, or an unknown one."""

    label: str
    estimate: Estimate
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRecord:
    """The common part of verdicts, and of measurements that broke.

    Attributes:
        subject: what it is about.
        advice: what to do; empty after a PASS.
        details: further remarks, one line each.
        note: remarks on the measurement.
        about: labels that a plugin gave it: what its test is about.
        excused: why it fails no test; empty if it does.
        elapsed_s: its duration.
    """

    subject: str
    advice: str = ""
    details: tuple[str, ...] = ()
    note: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    excused: str = ""
    elapsed_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(JudgedRecord):
    """An outcome and everything that led to it; a report, xdist and the store use it as it is.

    Attributes:
        outcome: PASS, FAIL, INCONCLUSIVE or INVALID.
        source: `live`, `recorded` or `predicted`, or a plugin's word for a verdict that it excused.
        subject_brief: the subject in a table, if it is another.
        threshold: the assertion's limit in words, such as ``below 1 %``.
        bound: the limit in a table, if it is another: ``< 1 %``.
        measured: the result, in one phrase.
        brief: the result in a table, if it is another phrase.
        figures: every estimate judged, with its label and limits.
        why: why it is not decided, in a few words.
        rests_on: the basis of the result, if it is no number of observations.
        guards: the guards' findings.
        compared: the measurements of two variants, if the assertion compares them.
        facts: the run record, as label and text.
        builds: baseline and candidate of a gate.
    """

    kind: ClassVar[str] = "verdict"

    outcome: Outcome
    source: str = "live"
    subject_brief: str = ""
    threshold: str = ""
    bound: str = ""
    measured: str
    brief: str = ""
    figures: tuple[JudgedFigure, ...] = ()
    why: str = ""
    rests_on: str = ""
    guards: tuple[GuardFinding, ...] = ()
    compared: Compared | None = None
    facts: tuple[tuple[str, str], ...] = ()
    builds: tuple[str, str] | None = None

    def __bool__(self) -> bool:
        """True if it is a PASS, and otherwise raised: a verdict is there to be asserted."""
        if self.outcome is not Outcome.PASS:
            raise AssertionError(
                f"{self.outcome}: {self.subject} {self.threshold}: {self.measured}"
            )
        return True

    def plain(self) -> Verdict:
        """The verdict without the test that must assert it."""
        return self


def judge_invalid(
    subject: Subject, threshold: str, problems: Iterable[str], *, remedy: str
) -> Verdict:
    """The verdict on a broken measurement."""
    first, *rest = problems
    return subject.verdict(
        Outcome.INVALID, threshold=threshold, measured=first, advice=remedy, details=tuple(rest)
    )


def broken(verdict: Verdict, problem: str, *, remedy: str) -> Verdict:
    """INVALID instead of a verdict whose measurement is broken; without its figures."""
    return replace(
        verdict,
        brief="",
        bound="",
        why="",
        rests_on="",
        outcome=Outcome.INVALID,
        measured=problem,
        advice=remedy,
        details=(),
        figures=(),
        guards=(),
        compared=None,
    )


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
