"""What `asperf doctor` finds: facts gathered once, judged, for its text and its JSON alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.commands.doctor_checks import cache_checks, engine_checks, machine_checks
from pytest_asperf.commands.doctor_facts import (
    CacheReport,
    EngineReport,
    NotStarted,
    bandwidth,
    cache_report,
    engine_report,
)
from pytest_asperf.engine_process import EngineFacts
from pytest_asperf.errors import printable
from pytest_asperf.hardware.detect import detect
from pytest_asperf.hardware.meters.choose import energy_condition
from pytest_asperf.hardware.readiness import readiness
from pytest_asperf.report.sections import CheckLine, Failure, Section, condition_check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pytest_asperf.engine_process import EngineBuild
    from pytest_asperf.hardware.conditions import Condition
    from pytest_asperf.hardware.machine import Bandwidth, Machine
    from pytest_asperf.hardware.machine_lock import MachineQueue
    from pytest_asperf.report.sections import State

_SCHEMA: Final = 1
_RUN: Final = "if you trust it, start it: asperf doctor --run"


@dataclass(frozen=True, slots=True)
class Examination:
    """The facts of machine, engines and cache, and what would disturb a measurement made now.

    The memory bandwidth (`measured`) is None where it is not known.
    """

    machine: Machine
    measured: Bandwidth | Failure | None
    engines: tuple[EngineReport, ...]
    cache: CacheReport
    conditions: tuple[Condition, ...]

    @property
    def sections(self) -> tuple[Section, ...]:
        """The findings, judged."""
        return (
            Section("machine", machine_checks(self.machine, self.measured)),
            *(
                Section(f"engine {report.engine}", self._engine_checks(report))
                for report in self.engines
            ),
            Section("cache", cache_checks(self.cache)),
            Section("right now", tuple(map(condition_check, self.conditions))),
        )

    def _engine_checks(self, report: EngineReport) -> tuple[CheckLine, ...]:
        if isinstance(report.found, EngineFacts):
            return engine_checks(report, report.found, self.machine)
        if isinstance(report.found, NotStarted):
            what = f"{printable(report.found.path)} was not started: the project's file names it"
            return (CheckLine("engine", "unknown", what, _RUN),)
        # One engine suffices: that another is not there is no fault.
        state: State = "unknown" if self._has_engine else "impossible"
        return (CheckLine("engine", state, report.found.what, report.found.remedy),)

    @property
    def _has_engine(self) -> bool:
        return any(isinstance(report.found, EngineFacts) for report in self.engines)

    @property
    def is_ready(self) -> bool:
        """Whether a measurement could run."""
        return self._has_engine and self.cache.failure is None

    @property
    def headline(self) -> str:
        """The answer, in one line."""
        states = [check.state for section in self.sections for check in section.checks]
        warnings = states.count("warning")
        noted = f"{warnings} warning{'' if warnings == 1 else 's'}"
        answer = "ready to measure" if self.is_ready else "cannot measure"
        left_out = any(isinstance(report.found, NotStarted) for report in self.engines)
        if left_out and not self._has_engine and self.cache.failure is None:
            answer = "not known whether it can measure"
        return f"{answer}, {noted}"

    def as_dict(self) -> dict[str, Any]:
        """The verdict, the checks and the facts behind them, for JSON."""
        return {
            "schema": _SCHEMA,
            "ready": self.is_ready,
            "sections": [asdict(section) for section in self.sections],
            "facts": asdict(self, dict_factory=_without_verbatim),
        }


def _without_verbatim(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Facts as parsed, without the engine's answer that they were parsed from."""
    return {name: value for name, value in fields if name != "verbatim"}


def examine(
    builds: Sequence[EngineBuild],
    cache: Path,
    *,
    left_out: Callable[[EngineBuild], Path | None],
    measure_bandwidth: bool,
    queue: MachineQueue,
) -> Examination:
    """Ask the machine, the engines and the cache; measuring bandwidth takes 2 to 8 seconds.

    `left_out` gives the path because of which an engine is not started, or None.
    """

    def report(build: EngineBuild) -> EngineReport:
        if path := left_out(build):
            return EngineReport(build.engine, build.python, NotStarted(path))
        return engine_report(build)

    # First, because starting an engine is itself a load.
    conditions = (*readiness(), energy_condition())
    machine = detect()
    return Examination(
        machine,
        bandwidth(cache, machine, measure=measure_bandwidth, queue=queue),
        tuple(map(report, builds)),
        cache_report(cache),
        conditions,
    )
