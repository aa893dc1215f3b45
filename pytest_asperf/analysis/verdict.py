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
from pytest_asperf.analysis.results import AnyResult, JudgedFigure
from pytest_asperf.errors import Advice, advised

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

    def verdict(
        self, outcome: Outcome, result: AnyResult | None, **judged: Unpack[Judgment]
    ) -> Verdict:
        """A verdict on it."""
        return self.of(Verdict(outcome=outcome, subject="", result=result, **judged))

    def of(self, verdict: Verdict) -> Verdict:
        """The verdict, with this subject instead of its own."""
        return replace(
            verdict, subject=self.name, source=self.source, facts=self.ran, subject_brief=self.brief
        )


class Judgment(TypedDict, total=False):
    """The parts of a verdict that judging may add, as `Verdict` describes them."""

    figures: tuple[JudgedFigure, ...]
    problem: str
    advice: tuple[Advice, ...]
    details: tuple[str, ...]
    compared: Compared | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRecord:
    """The common part of verdicts, and of measurements that broke."""

    subject: str  #: what it is about
    #: what to do, each with the settings to change; empty after a PASS
    advice: tuple[Advice, ...] = ()
    details: tuple[str, ...] = ()  #: further remarks, one line each
    note: str = ""  #: remarks on the measurement
    #: labels that a plugin gave it: what its test is about
    about: Mapping[str, str] = field(default_factory=dict)
    excused: str = ""  #: why it fails no test; empty if it does
    elapsed_s: float | None = None  #: its duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(JudgedRecord):
    """An outcome and everything that led to it; a report, xdist and the store use it as it is.

    Attributes:
        outcome: PASS, FAIL, INCONCLUSIVE or INVALID.
        source: `live`, `recorded` or `predicted`, or a plugin's word for a verdict that it excused.
        subject_brief: the subject in a table, if it is another.
        result: the assertion and what was found, by its own `kind`; None if `problem` is all.
        figures: every estimate judged, with its label and limits.
        problem: the event that broke the measurement, in the words of who reported it.
        guards: the guards' findings.
        overruled: the finding that changed the outcome.
        compared: the measurements of two variants, if the assertion compares them.
        facts: the run record, as label and text.
        builds: baseline and candidate of a gate.
    """

    kind: ClassVar[str] = "verdict"

    outcome: Outcome
    source: str = "live"
    subject_brief: str = ""
    result: AnyResult | None = None
    figures: tuple[JudgedFigure, ...] = ()
    problem: str = ""
    guards: tuple[GuardFinding, ...] = ()
    overruled: GuardFinding | None = None
    compared: Compared | None = None
    facts: tuple[tuple[str, str], ...] = ()
    builds: tuple[str, str] | None = None

    def __bool__(self) -> bool:
        """True if it is a PASS, and otherwise raised: a verdict is there to be asserted."""
        if self.outcome is not Outcome.PASS:
            raise AssertionError(f"{self.outcome}: {self.subject}")
        return True

    def plain(self) -> Verdict:
        """The verdict without the test that must assert it."""
        return self


def judge_invalid(
    subject: Subject,
    problems: Iterable[str],
    *,
    advice: str | Advice,
    result: AnyResult | None = None,
) -> Verdict:
    """The verdict on a broken measurement."""
    first, *rest = problems
    return subject.verdict(
        Outcome.INVALID, result, problem=first, advice=(advised(advice),), details=tuple(rest)
    )


def broken(verdict: Verdict, problem: str, *, advice: str | Advice) -> Verdict:
    """INVALID instead of a verdict whose measurement is broken; without its figures."""
    return replace(
        verdict,
        outcome=Outcome.INVALID,
        problem=problem,
        advice=(advised(advice),),
        details=(),
        figures=(),
        guards=(),
        overruled=None,
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
    verdict = replace(verdict, guards=(*verdict.guards, *findings))
    can_change: dict[Consequence, Collection[Outcome]] = {
        Consequence.INVALID: set(Outcome),
        Consequence.INCONCLUSIVE: {Outcome.PASS, Outcome.FAIL},
    }
    for consequence, outcomes in can_change.items():
        found = next((one for one in voiding if one.consequence is consequence), None)
        if found is not None and verdict.outcome in outcomes:
            outcome = Outcome(consequence)
            return replace(verdict, outcome=outcome, overruled=found, advice=(found.advice,))
    return verdict
