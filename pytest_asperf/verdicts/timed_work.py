"""Verdicts on pairs whose timed work was examined."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import Consequence
from pytest_asperf.analysis.verdict import Outcome, guarded
from pytest_asperf.measure.timed_work import NOT_EXAMINED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_asperf.analysis.guards import GuardFinding
    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs
    from pytest_asperf.measure.timed_work import ExaminedRun


def examined_verdict(verdict: Verdict, pairs: WorkloadPairs, result: ABResult) -> Verdict:
    """The verdict on pairs, unless the timed runs of a side did not do their work.

    INVALID if they did not; FAIL if only the candidate's did not and both had the same work. An
    unbelievable gain of runs that were not examined is INCONCLUSIVE.
    """
    if not pairs.pairs or pairs.workload.kind == "sd" or pairs.workload.is_load:
        return verdict  # the output of speculation is judged itself
    base, candidate = pairs.examined or (None, None)
    of_base = base.findings if base else ()
    of_candidate = candidate.findings if candidate else ()
    if base and candidate and _same_logits(result):
        unlike = candidate.unlike(base)
        of_candidate = (*of_candidate, *([unlike] if unlike else []))
    verdict = replace(verdict, details=(*verdict.details, *_shown(base, candidate)))
    found = (*_named("baseline", of_base), *_named("candidate", of_candidate))
    guarded_verdict = guarded(verdict, found)
    if _same_logits(result) and _invalidates(of_candidate) and not _invalidates(of_base):
        return replace(guarded_verdict, outcome=Outcome.FAIL)
    if _same_settings(result) and not (base and candidate):
        finding = guards.unchecked_gain(1 / pairs.typical_ratio)
        return guarded(guarded_verdict, [finding] if finding else [])
    return guarded_verdict


def _named(side: str, findings: Iterable[GuardFinding]) -> Iterator[GuardFinding]:
    return (replace(finding, found=f"{side}: {finding.found}") for finding in findings)


def _invalidates(findings: Iterable[GuardFinding]) -> bool:
    return any(finding.consequence is Consequence.INVALID for finding in findings)


def _same_logits(result: ABResult) -> bool:
    """True if both sides compute the same text with the same weights and types of cache."""
    base, candidate = result.ran
    types = base.requested.kv_types == candidate.requested.kv_types
    return types and base.sha256 == candidate.sha256 and result.same_tokens


def _same_settings(result: ABResult) -> bool:
    """True if only the builds differ, and how much slower they were asked to be."""
    base, candidate = (replace(ran.requested, slow_by=None) for ran in result.ran)
    return base == candidate and _same_logits(result)


def _shown(*sides: ExaminedRun | None) -> Iterator[str]:
    """The result of examining each side's run, one line each."""
    for side, run in zip(("baseline", "candidate"), sides, strict=True):
        yield f"{side} timed work: {run or NOT_EXAMINED}"
