"""pytest's JUnit file: a test's claims as properties, and its verdict as the type of failure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
from _pytest.junitxml import xml_key

from pytest_asperf.errors import printable
from pytest_asperf.plugin.carried import records_of
from pytest_asperf.records.kinds import Noted
from pytest_asperf.report.json_report import claims

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_asperf.records.kinds import AnyRecord

_PROPERTIES: Final = ("outcome", "value", "low", "high", "unit", "limit", "model", "sha256")
_LONGEST: Final = 400
_PREFIX: Final = "asperf."
#: The run of the test that its properties are of.
_RUN: Final = pytest.StashKey[int]()


def add_properties(item: pytest.Item, rows: Sequence[AnyRecord], run: int) -> None:
    """Give a test the facts of its claims, in place of those of its earlier runs."""
    if item.stash.get(_RUN, run) != run:
        own = (pair for pair in item.user_properties if not pair[0].startswith(_PREFIX))
        item.user_properties[:] = own
    item.stash[_RUN] = run
    item.user_properties += _properties(rows)


def _properties(rows: Sequence[AnyRecord]) -> Iterator[tuple[str, str]]:
    """Name and value of each fact of a test's claims, such as `asperf.tg16.value`."""
    seen: Counter[str] = Counter()
    for claim in claims([Noted("", row) for row in rows], None):
        label = printable(claim.figure or claim.claim, _LONGEST)
        seen[label] += 1
        name = f"{_PREFIX}{label}" + (f" ({seen[label]})" if seen[label] > 1 else "")
        for key in _PROPERTIES:
            if (value := getattr(claim, key)) not in {None, ""}:
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
