import ast
from importlib import resources

import pytest

from pytest_asperf.hardware.profiles import find_bins
from pytest_asperf.published.findings import Finding, judge_recorded, load_findings
from pytest_asperf.published.findings.terms import ids_of
from pytest_asperf.published.pages import cited, markdown
from pytest_asperf.published.records import derived_checks
from pytest_asperf.report.verdict_text import lab_note

FINDINGS = load_findings()
TABLES = [f"{d.source.id}/{table.id}" for d in FINDINGS.records.documents for table in d.tables]


@pytest.mark.parametrize("finding", FINDINGS.findings, ids=lambda finding: finding.id)
def test_the_recorded_verdict_is_the_known_one(finding: Finding) -> None:
    """Figures, spreads, guards and checks together give the data's own results."""
    verdict = judge_recorded(finding, FINDINGS.evidence)
    assert verdict.outcome == finding.expected, lab_note(verdict)


def test_every_table_has_its_findings_or_its_reason() -> None:
    """No table of any document is left out, and none is both used and listed as unused."""
    used = {table for finding in FINDINGS.findings for table in cited(finding)}
    reference = dict(FINDINGS.reference)
    assert set(TABLES) - used - set(reference) == set()
    assert used & set(reference) == set()


def test_figures_without_a_finding_have_their_reason_alone() -> None:
    """A figure listed without a finding is in a table that has some, and has none."""
    tables = {table for finding in FINDINGS.findings for table in cited(finding)}
    judged = {
        id_
        for finding in FINDINGS.findings
        for term in finding.check.terms()
        for id_ in (*ids_of(term), *finding.published)
    }
    figures = {name for name, _ in FINDINGS.reference} - set(TABLES)
    assert len(figures) > 20
    assert figures & judged == set()
    assert {"/".join(figure.split("/")[:2]) for figure in figures} <= tables


def test_the_page_tells_all() -> None:
    """Every finding, table and underivable figure is on it."""
    page = markdown(FINDINGS)
    assert [f.id for f in FINDINGS.findings if f"* id: `{f.id}`" not in page] == []
    assert [table for table in TABLES if f"| `{table.split('/')[1]}` |" not in page] == []
    wrong = [check.cell.id for check in derived_checks(FINDINGS.records) if not check.follows]
    unjudged = [name for name, _ in FINDINGS.reference if name not in TABLES]
    assert [each for each in (*wrong, *unjudged) if f"| `{each}` |" not in page] == []


def test_live_tests_and_findings_name_each_other() -> None:
    """A finding's live test is there and marked with it, and no test is marked with another."""
    marked = {}
    folder = resources.files("pytest_asperf").joinpath("findings")
    for file in folder.iterdir():
        if not file.name.startswith("test_"):
            continue
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            for mark in getattr(node, "decorator_list", []):
                if ast.unparse(mark).startswith("pytest.mark.finding("):
                    marked[ast.literal_eval(mark.args[0])] = f"{file.name}::{node.name}"  # type: ignore[attr-defined]
    assert marked == {each.id: each.live for each in FINDINGS.findings if each.live}


@pytest.mark.parametrize("finding", FINDINGS.findings, ids=lambda finding: finding.id)
def test_a_finding_is_measured_or_says_why_not(finding: Finding) -> None:
    """A live test, the reports of two machines, or a reason: one of them, and a reason alone."""
    is_measured = bool(finding.live or finding.across)
    assert is_measured != bool(finding.unmeasured)


def test_scopes_are_hardware_that_exists() -> None:
    """Every profile or chip of a finding is a known one, by its own id."""
    names = {name for finding in FINDINGS.findings for name in finding.hardware}
    across = (finding.across for finding in FINDINGS.findings if finding.across)
    names |= {name for one in across for name in one.machines}
    ids = {name: {id_ for p in find_bins(name) for id_ in (p.id, p.chip)} for name in names}
    assert [name for name in names if name not in ids[name]] == []
