"""One workload on several machines, or on several engines, beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.report.report_data import SideBySide

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.report.report_data import ReportData, Timed

    #: By workload, model and name.
    Found = dict[str, dict[str, dict[str, Estimate]]]


def by_machine(reports: Sequence[ReportData]) -> list[SideBySide]:
    """The workloads that two machines or more measured on a model; of one machine its last report.

    Machines of one kind are told apart by their names on the network.
    """
    hosts: dict[str, set[str]] = {}
    for report in reports:
        hosts.setdefault(report.machine, set()).add(dict(report.facts).get("host", ""))
    found: Found = {}
    for report in reports:
        host = dict(report.facts).get("host", "")
        name = f"{report.machine} {host}" if len(hosts[report.machine]) > 1 else report.machine
        for timed in report.timed:
            _add(found, timed.workload, timed.model, name or host, timed.estimate)
    return list(_compared(found))


def by_engine(timed: Iterable[Timed]) -> list[SideBySide]:
    """The workloads that two engines or more ran on a model."""
    found: Found = {}
    for one in timed:
        _add(found, one.workload, one.address, one.engine, one.estimate)
    return list(_compared(found))


def _add(found: Found, workload: str, model: str, name: str, estimate: Estimate) -> None:
    found.setdefault(workload, {}).setdefault(model, {})[name] = estimate


def _compared(found: Found) -> Iterator[SideBySide]:
    for workload, models in found.items():
        several = {model: of for model, of in models.items() if len(of) > 1}
        names = dict.fromkeys(name for of in several.values() for name in of)
        # Times and rates have no common axis, whatever a file says of a workload.
        units = {estimate.unit for of in several.values() for estimate in of.values()}
        for unit in units if len(units) == 1 else ():
            yield SideBySide(workload, unit, tuple(names), several)
