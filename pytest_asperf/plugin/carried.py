"""The records that pytest's test reports carry as plain data, through xdist too."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_asperf.records.codec import decode_as
from pytest_asperf.records.kinds import AnyRecord, Noted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def records_of(report: Any) -> list[AnyRecord]:
    """The records of a test report."""
    return [decode_as(AnyRecord, data) for data in getattr(report, "asperf_rows", ())]


def noted_in(
    reports: Sequence[Any], machines: Mapping[str, str] = MappingProxyType({})
) -> list[Noted]:
    """The records of test reports in the order they were noted.

    `machines` names the machine of each xdist worker, where there are several.
    """
    return [
        Noted(report.nodeid, record, machines.get(worker_of(report), ""))
        for report in sorted(reports, key=lambda report: report.start)
        for record in records_of(report)
    ]


def worker_of(report: Any) -> str:
    """The xdist worker that a test report came from; empty without xdist."""
    return str(getattr(report, "worker_id", ""))
