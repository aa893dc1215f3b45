"""Findings from TOML files: read, checked, frozen."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.config.table import (
    ANY_TEXT,
    ID,
    NUMBER,
    PAIR,
    TEXT,
    TEXTS,
    CheckedTable,
    Rule,
    one_of,
)
from pytest_asperf.config.text_file import open_document, read_toml_text, shipped_texts, twice
from pytest_asperf.errors import ConfigError, printable, shown, suggest
from pytest_asperf.published.findings.checks import parse_check
from pytest_asperf.published.findings.evidence import Evidence, assumed_spreads
from pytest_asperf.published.findings.model import Across, Finding, Findings
from pytest_asperf.published.findings.terms import ids_of
from pytest_asperf.published.findings.validity import parse_guard
from pytest_asperf.published.records import Records, load_recorded, shipped_records

_ARCHITECTURES: Final = ("dense", "moe", "hybrid", "")
_TEXTS: Final = ("statement", "topic", "explanation", "because")
_NEEDED: Final[Mapping[str, Rule[Any]]] = {"id": ID, **dict.fromkeys(_TEXTS, TEXT)}
_POSSIBLE: Final[Mapping[str, Rule[Any]]] = {
    **dict.fromkeys(("sources", "published", "hardware"), TEXTS),
    "architecture": one_of(_ARCHITECTURES),
    "parameters": PAIR,
    **dict.fromkeys(("engine", "live", "instead", "unmeasured"), ANY_TEXT),
}


def load_findings(findings: Sequence[Path] = (), records: Sequence[Path] = ()) -> Findings:
    """The shipped findings and those of a project's own files, on the figures of its own records.

    The schemas are in `data/findings/README.md` and `data/recorded/README.md`. A ConfigError names
    file, finding and key.
    """
    if not findings and not records:
        return _shipped_findings()
    shipped = shipped_records()
    all_records = load_recorded(*records, beside=shipped) if records else shipped
    texts = [(path.name, read_toml_text(path)) for path in findings]
    return parse_findings((*shipped_texts("data/findings"), *texts), all_records)


@cache
def _shipped_findings() -> Findings:
    return parse_findings(shipped_texts("data/findings"), shipped_records())


def parse_findings(texts: Iterable[tuple[str, str]], records: Records) -> Findings:
    """The findings of several TOML texts, each behind its name, on these figures."""
    by_id: dict[str, Finding] = {}
    reference: dict[str, str] = {}
    tables = {f"{d.source.id}/{table.id}" for d in records.documents for table in d.tables}
    evidence = Evidence(records.by_id(), assumed_spreads())
    for where, text in texts:
        file = open_document(text, printable(where, 200))
        file.only(("schema", "finding", "reference"))
        for entry in file.entries("finding") if "finding" in file.values else ():
            name = entry.get("id", "?") if isinstance(entry, dict) else "?"
            place = file.inner(f"finding {name}", entry)
            finding = _finding(place, tables)
            _check_figures(finding, evidence, place)
            if finding.id in by_id:
                raise twice(f"{where}: finding", finding.id)
            by_id[finding.id] = finding
        for entry in file.entries("reference") if "reference" in file.values else ():
            place = file.inner("reference", entry)
            why = place.text("why", required=True)
            reference |= dict.fromkeys(_referred(place, tables, evidence), why)
    return Findings(tuple(by_id.values()), records, evidence, tuple(reference.items()))


def _referred(place: CheckedTable, tables: Collection[str], evidence: Evidence) -> tuple[str, ...]:
    """The table, or the figures of one, without a finding."""
    if "figures" not in place.values:
        place.only(("table", "why"))
        return (place.choice("table", tables),)
    place.only(("figures", "why"))
    figures = place.texts("figures")
    return tuple(evidence.find(id, where=f"{place}: figures").id for id in figures)  # noqa: A001


def _finding(place: CheckedTable, tables: Iterable[str]) -> Finding:
    values = place.read(_NEEDED, _POSSIBLE, ("expected", "check", "across", "guard"))
    guards = place.entries("guard") if "guard" in place.values else []
    for source in values.get("sources", ()):
        if source not in tables:
            raise ConfigError(
                f"{place}: sources: no table is called "
                f"{shown(source, 120)}{suggest(source, tables)}",
                why="a reader finds the statement there",
                remedy="name tables as source-id/table-id",
            )
    return Finding(
        check=parse_check(place.inner("check", place.values.get("check"))),
        across=_across(place),
        guards=tuple(parse_guard(place.inner("guard", guard)) for guard in guards),
        expected=Outcome(place.choice("expected", [str(outcome) for outcome in Outcome])),
        **values,
    )


def _across(place: CheckedTable) -> Across | None:
    if "across" not in place.values:
        return None
    table = place.inner("across", place.values["across"])
    table.only(("machines", "workload", "at_least", "at_most"))
    machines = table.texts("machines")
    if len(machines) != 2:
        table.refuse("machines", "name two profiles or chips, the faster one first")
    low, high = table.get("at_least", NUMBER), table.get("at_most", NUMBER)
    if low is None and high is None:
        table.refuse("at_least", "write at_least, at_most or both, of the ratio of the speeds")
    return Across((machines[0], machines[1]), table.text("workload", required=True), low, high)


def _check_figures(finding: Finding, evidence: Evidence, place: CheckedTable) -> None:
    """Reject a finding on figures that are not in the files or not numbers."""
    terms = [*finding.check.terms(), *(term for guard in finding.guards for term in guard.terms())]
    for id in (*finding.published, *(id for term in terms for id in ids_of(term))):  # noqa: A001
        evidence.find(id, where=str(place))
    for term in terms:
        for _ in evidence.all_cells(term):  # rejects words and bounds
            pass
