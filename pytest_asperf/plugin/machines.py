"""The machine of each row of a session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pytest_asperf.plugin.carried import noted_in, worker_of
from pytest_asperf.plugin.fleet import Fleet
from pytest_asperf.plugin.registration import was_configured
from pytest_asperf.records.codec import decode
from pytest_asperf.records.kinds import Noted
from pytest_asperf.records.report import Meta
from pytest_asperf.report.row_names import told_apart
from pytest_asperf.report.session_meta import MeasuringMachine


@dataclass(frozen=True, slots=True)
class Measured:
    """The content of a session's test reports."""

    noted: Sequence[Noted]  #: the records, each with its machine if there are several
    machines: Mapping[str, MeasuringMachine]  #: those that xdist's workers ran on, by name

    @property
    def are_named(self) -> bool:
        """True if rows name their machine: there are several, or one is unknown."""
        return len(self.machines) > 1 or not all(each.id for each in self.machines.values())

    def headline(self) -> list[str]:
        """The engine and settings that measured, on each machine."""
        return [
            f"{name}: {line.removeprefix('asperf: ')}" if self.are_named else line
            for name, machine in self.machines.items()
            for line in machine.meta.headline
        ]

    def meta(self, of_session: Meta) -> Meta:
        """The head of a report with these machines; as it is if this process measured."""
        first = next((each.meta for each in self.machines.values() if each.id), None)
        known = (
            of_session
            if first is None
            else replace(of_session, host=first.host, python=first.python, machine=first.machine)
        )
        machines = {name: each.meta for name, each in self.machines.items()}
        return replace(known, machines=machines) if self.are_named else known


def measured(config: pytest.Config, reports: Sequence[Any]) -> Measured:
    """The rows of test reports, and a row of each machine that did not measure all."""
    plugin = config.pluginmanager.get_plugin("asperf-fleet")
    fleet = plugin if isinstance(plugin, Fleet) else None
    absent = fleet.absent() if fleet and (reports or was_configured(config)) else []
    of_worker = machines_of(reports, fleet.names if fleet else {})
    machines: dict[str, MeasuringMachine] = {}
    for machine in (
        *of_worker.values(),
        *(MeasuringMachine.unknown(one.machine) for one in absent),
    ):
        if machine.id or machine.name not in machines:
            machines.setdefault(machine.name, machine)
    found = Measured([], machines)
    names = {worker: machine.name for worker, machine in of_worker.items()}
    noted = told_apart(noted_in(reports, names if found.are_named else {}))
    if found.are_named:  # their clocks differ
        places = list(machines)
        noted.sort(key=lambda each: places.index(each.machine))
    return replace(found, noted=[*noted, *(one.noted() for one in absent)])


def machines_of(reports: Sequence[Any], given: Mapping[str, str]) -> dict[str, MeasuringMachine]:
    """The machine of each worker: workers of one machine share its name, and no others do.

    Args:
        reports: test reports; the first of each worker has its machine's facts.
        given: how the user named the machine of a worker, in the user's order.
    """
    said = {
        worker_of(r): decode(MeasuringMachine, r.asperf_machine)
        for r in reports
        if getattr(r, "asperf_machine", None)
    }
    found: dict[str, MeasuringMachine] = {}
    by_id: dict[str, MeasuringMachine] = {}
    for worker in dict.fromkeys((*given, *said)):
        if worker in said:
            machine = replace(said[worker], name=given.get(worker) or said[worker].name)
            found[worker] = by_id.setdefault(machine.id, machine)
    # One with rejected settings has no facts; a single machine has one set.
    if given or len(by_id) > 1:
        for worker in filter(None, map(worker_of, reports)):
            found.setdefault(worker, MeasuringMachine.unknown(given.get(worker) or worker))
    names = [machine.name for machine in by_id.values()]
    return {
        worker: replace(machine, name=f"{machine.name} ({machine.id[:4]})")
        if names.count(machine.name) > 1
        else machine
        for worker, machine in found.items()
    }
