"""A report of several machines, and its outputs."""

from dataclasses import replace
from typing import Any

import pytest

from pytest_asperf.errors import ConfigError
from pytest_asperf.records.kinds import AnyRecord, Noted
from pytest_asperf.records.report import Report, known_machines, of_each_machine
from pytest_asperf.records.report import read as read_document
from pytest_asperf.report.claims_table import Screen, claim_lines
from pytest_asperf.report.formats import bencher
from pytest_asperf.report.json_report import document
from pytest_asperf.report.lines import lines
from pytest_asperf.report.page import page
from pytest_asperf.report.report_data import shown_reports
from pytest_asperf.store.figures import document_digest, origin_of
from tests.report import sample_reports as samples

_NOBODY: dict[str, Any] = {"hardware": "", "os": "", "arch": ""}


def _facts(host: str, machine: dict[str, Any]) -> dict[str, Any]:
    return {"host": host, "python": "3.11", "headline": [f"asperf: {host}"], "machine": machine}


MACHINES = {
    "a": _facts("a.local", {**samples.META["machine"], "id": "a" * 12}),
    "b": _facts("b.local", {**samples.META["machine"], "id": "b" * 12}),
    "gone": _facts("", _NOBODY),
}


def _noted() -> list[Noted]:
    rows: list[tuple[str, AnyRecord]] = [
        ("a", samples.rates("m")),
        ("a", samples.claimed("m", 10)),
        ("b", samples.rates("m")),
        ("b", samples.claimed("m", 9999)),
        ("gone", samples.invalid()),
    ]
    return [Noted("t.py::t", row, name) for name, row in rows]


def _fleet() -> Report:
    return read_document(samples.report(_noted(), machines=MACHINES), "r.json")


def test_each_machine_has_a_report_of_its_own() -> None:
    """Valid by the schema, with its own facts and no row of another; equal for repeated calls."""
    parts = of_each_machine(_fleet())
    for part, (name, facts) in zip(parts, MACHINES.items(), strict=True):
        samples.check_schema(document(part))
        assert (part.meta.host, part.meta.machine.id) == (
            facts["host"],
            facts["machine"].get("id", ""),
        )
        assert list(part.headline) == facts["headline"]
        assert {row.machine for row in part.rows} == {name}
    again = of_each_machine(_fleet())
    assert [document_digest(document(part)) for part in again] == [
        document_digest(document(part)) for part in parts
    ]


def test_only_machines_that_measured_are_stored() -> None:
    """Each under its own fingerprint; a report of one machine is stored as it is."""
    parts = known_machines(_fleet())
    assert [origin_of(part).machine for part in parts] == ["a" * 12, "b" * 12]
    alone = read_document(samples.report(_noted()[:1]), "r.json")
    assert known_machines(alone) == [alone]


@pytest.mark.parametrize("machines", [[1], "a", {"a": None}, {"a": {}}, {"x": MACHINES["a"]}])
def test_malformed_machines_are_refused(machines: object) -> None:
    """No figure goes to a machine that did not measure it."""
    whole = samples.report(_noted(), machines=MACHINES)
    whole["meta"]["machines"] = machines
    with pytest.raises(ConfigError, match=r"r\.json: its head is not as pytest-asperf writes it"):
        read_document(whole, "r.json")


def test_pages_and_exports_name_the_machine() -> None:
    """Nothing of two machines is merged, or distinguished by a number."""
    reports = shown_reports(_fleet(), name="r.json")
    assert [report.name for report in reports] == ["a", "b", "gone"]
    html = page(reports).decode()
    assert all(f"<h2>{name}</h2>" in html for name in MACHINES)
    names = bencher(reports).decode()
    assert '"a t.py::t tg16 m"' in names
    assert '"b t.py::t tg16 m"' in names


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_line_begins_with_its_machine(width: int) -> None:
    """A column only if there are several, and no line is wider than the screen."""
    shown = claim_lines(lines(_noted()), Screen(width))
    assert [line.text.split()[0] for line in shown] == ["machine", "a", "gone", "b"]
    assert max(len(line.text) for line in shown) + 3 <= width
    alone = claim_lines(lines(_of_one()), Screen(width))
    assert alone[0].text.startswith("what")


def _of_one() -> list[Noted]:
    """The same rows of one machine."""
    return [replace(noted, machine="") for noted in _noted()[:2]]
