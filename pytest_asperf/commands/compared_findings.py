"""Published statements about several machines, judged by the reports of such machines."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from pytest_asperf.analysis.verdict import Outcome, Subject
from pytest_asperf.commands.history_lines import estimate_of
from pytest_asperf.published.findings.evidence import Evidence
from pytest_asperf.published.records.model import Spread
from pytest_asperf.published.records.printed import PrintedValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.commands.compared_reports import OnMachine
    from pytest_asperf.published.findings import Finding, Findings
    from pytest_asperf.published.records import RecordedCell
    from pytest_asperf.store.figures import SeriesValue


def judged(
    findings: Findings, alike: Sequence[Sequence[OnMachine]]
) -> Iterator[tuple[Finding, str, Verdict]]:
    """Each statement about machines that are all here, what it was tried on, and its verdict.

    A recorded rate of a machine is replaced by the rate that its report has. Statements that rest
    on anything else that was measured are left out: those figures are of other runs.
    """
    for finding in findings.findings:
        for every in alike:
            here = {one.report.profile.id: one for one in every if one.report.profile}
            if len(finding.hardware) < 2 or not here.keys() >= set(finding.hardware):
                continue
            evidence = _measured_evidence(finding, findings.evidence, here)
            if evidence is None:
                continue
            title = every[0].value.key.title
            subject = Subject(finding.id, "live", (("reports", _names(here)),))
            verdict = finding.check.judge(evidence, subject)
            if any(one.value.outcome == Outcome.INVALID for one in every):
                verdict = replace(verdict, outcome=Outcome.INVALID, figures=())
            yield finding, title, verdict


def _names(here: Mapping[str, OnMachine]) -> str:
    return ", ".join(one.report.name for one in here.values())


def _measured_evidence(
    finding: Finding, evidence: Evidence, here: Mapping[str, OnMachine]
) -> Evidence | None:
    """The evidence with the reports' rates in it; None if a figure of it has no such rate."""
    cells = {cell.id: cell for term in finding.check.terms() for cell in evidence.all_cells(term)}
    sampled = [cell for cell in cells.values() if cell.kind != "specified"]
    if len({(cell.scope.model, cell.scope.level) for cell in sampled}) != 1:
        return None
    replaced = dict(evidence.cells)
    for cell in sampled:
        one = here.get(cell.scope.hardware)
        if one is None or not _is_of(cell, one, finding):
            return None
        replaced[cell.id] = _as_cell(cell, one.value)
    return Evidence(replaced, evidence.spreads)


def _is_of(cell: RecordedCell, one: OnMachine, finding: Finding) -> bool:
    """Whether a value is what a recorded figure is: a rate of the same kind, by such an engine."""
    key = one.value.key
    is_rate = cell.unit == key.unit == "tok/s" and key.metric.startswith(cell.metric.lower())
    return is_rate and finding.engine in {"", key.engine}


def _as_cell(cell: RecordedCell, value: SeriesValue) -> RecordedCell:
    whole = estimate_of(value, value.key.unit)
    number = Decimal(repr(whole.point))
    printed = PrintedValue(f"{whole.point:.4g}", "point", number, number)
    spread = Spread(n=value.n, interval=(whole.low, whole.high), confidence=0.9, raw=whole.point)
    return replace(cell, kind="measured", printed=printed, spread=spread, derivation=None)
