"""The records that pytest's test reports carry as plain data, through xdist and to JUnit files."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pytest
from _pytest.junitxml import xml_key

from pytest_asperf.errors import printable
from pytest_asperf.records.codec import decode_as
from pytest_asperf.records.kinds import AnyRecord, Noted
from pytest_asperf.report.json_report import assertions


def records_of(report: Any) -> list[AnyRecord]:
    """The records of a test report."""
    return [decode_as(AnyRecord, data) for data in getattr(report, "asperf_rows", ())]


def noted_in(
    reports: Sequence[Any], machines: Mapping[str, str] = MappingProxyType({})
) -> list[Noted]:
    """The records of test reports in the order they were noted.

    `machines` names the machine of each xdist worker, if there are several.
    """
    return [
        Noted(report.nodeid, record, machines.get(worker_of(report), ""))
        for report in sorted(reports, key=lambda report: report.start)
        for record in records_of(report)
    ]


def worker_of(report: Any) -> str:
    """The xdist worker that a test report came from; empty without xdist."""
    return str(getattr(report, "worker_id", ""))


_PROPERTIES: Final = ("outcome", "value", "low", "high", "unit", "limit", "model", "sha256")
_LONGEST: Final = 400
_PREFIX: Final = "asperf."
#: The run of the test that its properties are of.
_RUN: Final = pytest.StashKey[int]()


def add_properties(item: pytest.Item, rows: Sequence[AnyRecord], run: int) -> None:
    """Give a test the facts of its assertions, instead of those of its earlier runs."""
    if item.stash.get(_RUN, run) != run:
        own = (pair for pair in item.user_properties if not pair[0].startswith(_PREFIX))
        item.user_properties[:] = own
    item.stash[_RUN] = run
    item.user_properties += _properties(rows)


def _properties(rows: Sequence[AnyRecord]) -> Iterator[tuple[str, str]]:
    """Name and value of each fact of a test's assertions, such as `asperf.tg16.value`."""
    seen: Counter[str] = Counter()
    for one in assertions([Noted("", row) for row in rows], None):
        label = printable(one.figure or one.subject, _LONGEST)
        seen[label] += 1
        name = f"{_PREFIX}{label}" + (f" ({seen[label]})" if seen[label] > 1 else "")
        for key in _PROPERTIES:
            if (value := getattr(one, key)) not in {None, ""}:
                yield f"{name}.{key}", printable(value, _LONGEST)


def name_failure(config: pytest.Config, report: Any) -> None:
    """Give a failure in the JUnit file its verdict as type, `asperf.INCONCLUSIVE`."""
    outcomes = {record.outcome for record in records_of(report)}
    outcome = getattr(report, "asperf_outcome", "FAIL" if "FAIL" in outcomes else "")
    xml = config.stash.get(xml_key, None)
    if xml is None or not report.failed or not outcome:
        return
    for node in xml.node_reporter(report).nodes:
        if node.tag in {"failure", "error"}:
            node.set("type", f"asperf.{outcome}")
