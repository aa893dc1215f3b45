"""Published statements about several machines, judged by the reports of such machines."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final

from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, broken
from pytest_asperf.commands.compared_reports import OnMachine
from pytest_asperf.commands.project import open_project
from pytest_asperf.published.findings import Finding, Findings, load_findings
from pytest_asperf.published.findings.checks import CheckLimits
from pytest_asperf.published.findings.evidence import Evidence
from pytest_asperf.published.findings.model import Across
from pytest_asperf.published.findings.terms import FigureTerm, FormulaTerm
from pytest_asperf.published.records import shipped_records
from pytest_asperf.published.records.model import (
    Document,
    PrintedValue,
    RecordedCell,
    Scope,
    Spread,
)
from pytest_asperf.report.history import estimate_of
from pytest_asperf.report.result_text import in_words
from pytest_asperf.store.figures import SeriesValue

_RATE: Final = "tok/s"


class PublishedFigures:
    """Documents' figures and statements, as `asperf compare` shows them next to reports."""

    def rows(self, name: str) -> list[tuple[str, ...]]:
        """TG of the document of that id with its share of the bandwidth; empty for no id."""
        documents = shipped_records().documents
        return [row for one in documents if one.source.id == name for row in _as_recorded(one)]

    def statements(self, alike: Sequence[Sequence[OnMachine]]) -> Iterator[str]:
        """Each statement about machines that are all here, and their result."""
        settings = open_project().settings
        findings = load_findings(settings.findings, settings.published_figures)
        for finding, title, verdict in _judged(findings, alike):
            yield f"{verdict.outcome} {finding.id}: {finding.statement}"
            said = in_words(verdict)
            yield f"  on {title}: {said.measured}, {said.threshold}"


def _judged(
    findings: Findings, alike: Sequence[Sequence[OnMachine]]
) -> Iterator[tuple[Finding, str, Verdict]]:
    """Each statement about machines that are all here, its basis, and its verdict."""
    for finding in findings.findings:
        for every in alike:
            here = {one.report.profile.id: one for one in every if one.report.profile}
            key = every[0].value.key
            subject = Subject(finding.id, "live", tuple(("report", o.report.name) for o in every))
            verdict = _by_rates(finding, findings.evidence, here, subject)
            if verdict is None and finding.across is not None:
                verdict = _by_ratio(finding.across, here, subject)
            if verdict is None or finding.engine not in {"", key.engine}:
                continue
            if invalid := [one for one in every if one.value.outcome == Outcome.INVALID]:
                problem = f"{invalid[0].report.name} is INVALID"
                verdict = broken(verdict, problem, advice="measure it again")
            yield finding, key.title, verdict


def _by_ratio(across: Across, here: Mapping[str, OnMachine], subject: Subject) -> Verdict | None:
    """The verdict on the speed of one machine over that of another."""
    found = [
        one
        for wanted in across.machines
        for id_, one in here.items()
        if wanted in {id_, id_.partition("-")[0]}
    ]
    if len(found) != len(across.machines):
        return None  # one is not here, or two variants of a chip are
    if not all(one.value.key.metric.startswith(across.workload) for one in found):
        return None
    cells = {one.report.name: _cell(one.report.name, one.value) for one in found}
    ids = tuple(FigureTerm(name) for name in cells)
    is_rate = found[0].value.key.unit == _RATE
    ratio = FormulaTerm("ratio", ids if is_rate else ids[::-1])
    check = CheckLimits("within", (("", ratio),), across.at_least, across.at_most)
    return check.judge(Evidence(cells, ()), subject)


def _by_rates(
    finding: Finding, recorded: Evidence, here: Mapping[str, OnMachine], subject: Subject
) -> Verdict | None:
    """The verdict of the check with the rates of the reports instead of the published ones.

    None if it also uses other measured figures: those are of other runs.
    """
    if len(finding.hardware) < 2 or not here.keys() >= set(finding.hardware):
        return None
    cells = {cell.id: cell for term in finding.check.terms() for cell in recorded.all_cells(term)}
    sampled = [cell for cell in cells.values() if cell.kind != "specified"]
    if len({(cell.scope.model, cell.scope.quant) for cell in sampled}) != 1:
        return None
    replaced = dict(recorded.cells)
    for cell in sampled:
        one = here.get(cell.scope.hardware)
        if one is None or not _is_rate_of(cell, one.value):
            return None
        replaced[cell.id] = _cell(cell.id, one.value)
    return finding.check.judge(Evidence(replaced, recorded.spreads), subject)


def _is_rate_of(cell: RecordedCell, value: SeriesValue) -> bool:
    """True if a value is a rate of the published kind."""
    kind = value.key.metric.startswith(cell.metric.lower())
    return kind and cell.unit == value.key.unit == _RATE


def _cell(name: str, value: SeriesValue) -> RecordedCell:
    """A value in the form of a published figure."""
    whole = estimate_of(value, value.key.unit)
    number = Decimal(repr(whole.point))
    return RecordedCell(
        id=name,
        metric=value.key.metric,
        unit=value.key.unit,
        kind="measured",
        scope=Scope(),
        printed=PrintedValue(f"{whole.point:.4g}", "point", number, number),
        spread=Spread(n=value.n, interval=(whole.low, whole.high), confidence=0.9, raw=whole.point),
    )


def _as_recorded(document: Document) -> Iterator[tuple[str, ...]]:
    """Published TG with its share of the bandwidth: machine, quantity, value, GB/s and share."""
    for table in document.tables:
        for row in table.rows:
            cells = {cell.metric: cell for _, cell in row.cells}
            rate, share = cells.get("TG"), cells.get("bandwidth utilisation")
            if rate and share and (bandwidth := cells.get("memory bandwidth")):
                gbs = bandwidth.value * share.value / 100
                what = f"{rate.scope.workload} {rate.scope.model} {rate.scope.quant}, published"
                name = rate.scope.hardware or row.key
                yield name, what, str(rate), f"{gbs:.4g}", f"{share.printed.text} %"
