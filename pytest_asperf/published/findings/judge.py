"""A finding's verdict on its published figures: guards first, then intervals."""

from dataclasses import replace
from typing import Final

from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, guarded
from pytest_asperf.errors import Advice
from pytest_asperf.published.findings.evidence import Evidence
from pytest_asperf.published.findings.model import Finding
from pytest_asperf.published.findings.validity import estimated_figures

_OPEN: Final = Advice("more runs, published with n and spread, would decide it")
_FAILED: Final = "do not rely on the statement; `asperf findings --report md:-` shows the figures"


def judge_recorded(finding: Finding, evidence: Evidence) -> Verdict:
    """The verdict on the published figures; ConfigError if a guard cannot check them."""
    terms = list(finding.check.terms())
    figures = dict.fromkeys(cell.id for term in terms for cell in evidence.all_cells(term))
    subject = Subject(
        finding.id, "recorded", tuple(("figure", cell_id) for cell_id in figures), if_failed=_FAILED
    )
    verdict = finding.check.judge(evidence, subject)
    if verdict.outcome is Outcome.INCONCLUSIVE:
        verdict = replace(verdict, advice=(_OPEN,))
    declared = [
        guard_finding
        for guard in finding.guards
        if (guard_finding := guard.check(evidence)) is not None
    ]
    guard_findings = (*declared, *estimated_figures(terms, evidence))
    left = guarded(verdict, guard_findings)
    # The broken figures' result is left out.
    return replace(left, figures=()) if left.outcome is Outcome.INVALID else left


def published_text(finding: Finding, evidence: Evidence) -> str:
    """The figures that the documents give for a finding, as printed."""
    return ", ".join(str(evidence.cells[cell_id]) for cell_id in finding.published)
