"""Published findings one by one: as data, and one of them explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.commands.findings_page import cited, scope_text
from pytest_asperf.errors import printable
from pytest_asperf.published.findings import published_text
from pytest_asperf.records.codec import encode
from pytest_asperf.report.sections import CheckLine, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.published.findings import Finding, Findings

#: Of the figures under a finding: more are in the recorded tables that it names.
_MOST_FIGURES: Final = 12


def finding_data(finding: Finding, verdict: Verdict, findings: Findings) -> dict[str, Any]:
    """A finding with its recorded verdict, as JSON shows it."""
    return {
        "id": finding.id,
        "statement": finding.statement,
        "topic": finding.topic,
        "reading": finding.reading,
        "hardware": list(finding.hardware),
        "architecture": finding.architecture,
        "engine": finding.engine,
        "models": finding.sizes,
        "verdict": str(verdict.outcome),
        "because": finding.because,
        "published": published_text(finding, findings.evidence),
        "measured": verdict.measured,
        "figures": [{"label": label, **encode(estimate)} for label, estimate in verdict.figures],
        "rests_on": _ids(verdict),
        "tables": cited(finding),
        "live": finding.live,
    }


def explained(finding: Finding, verdict: Verdict, findings: Findings) -> Section:
    """A finding with the verdict on its figures, where they stand, and how to run it."""
    published = published_text(finding, findings.evidence)
    lines = [
        ("verdict", f"{verdict.outcome}, as {finding.because}"),
        ("means", finding.reading),
        *([("published", published)] if published else []),
        ("recorded", verdict.measured),
        ("holds for", scope_text(finding)),
        *_figures(verdict, findings),
        *_sources(finding, findings),
        ("run it live", live_command(finding)),
    ]
    checks = (CheckLine(name, "measured", printable(text)) for name, text in lines)
    return Section(f"{finding.id}: {printable(finding.statement)}", tuple(checks))


def live_command(finding: Finding) -> str:
    """The command that measures a finding on this machine."""
    _, _, test = finding.live.partition("::")
    if not test:
        return "no test measures it; pytest --pyargs pytest_asperf.findings judges its figures"
    return f"pytest --pyargs pytest_asperf.findings -k {test} --asperf-findings=all"


def _figures(verdict: Verdict, findings: Findings) -> Iterator[tuple[str, str]]:
    ids = _ids(verdict)
    for number, cell_id in enumerate(ids[:_MOST_FIGURES]):
        cell = findings.evidence.cells[cell_id]
        printed = f"{cell.printed.text} {cell.unit}".rstrip()
        yield "" if number else "figures", f"{printed}  ({cell_id}; spread: {cell.spread})"
    if len(ids) > _MOST_FIGURES:
        yield "", f"and {len(ids) - _MOST_FIGURES} more"


def _sources(finding: Finding, findings: Findings) -> Iterator[tuple[str, str]]:
    documents = {document.source.id: document for document in findings.records.documents}
    for number, name in enumerate(cited(finding)):
        source_id, table_id = name.split("/")
        document = documents[source_id]
        (table,) = (table for table in document.tables if table.id == table_id)
        source = document.source
        where = f"{source.title}, {table.where}: {table.title}"
        yield "" if number else "source", "; ".join(filter(None, (where, source.url)))


def _ids(verdict: Verdict) -> list[str]:
    return [cell_id for label, cell_id in verdict.subject.ran if label == "figure"]
