"""Can this machine measure now, and how well? Facts gathered once, then judged by pure functions.

`examine` asks the machine, the engine and the cache. What it returns holds everything that the
command shows, so that its text and its JSON cannot differ.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.checks import Check, Failure, Section, State, printable, size
from pytest_asperf.errors import AsperfError
from pytest_asperf.hardware.bandwidth import machine_bandwidth
from pytest_asperf.hardware.detect import detect
from pytest_asperf.hardware.readiness import readiness
from pytest_asperf.host import EngineRefusedError, Worker
from pytest_asperf.inventory import cached_checks
from pytest_asperf.measure.turn import machine_lock_path, machine_turn
from pytest_asperf.modelfiles.cache import entries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_asperf.hardware.conditions import Condition
    from pytest_asperf.hardware.machine import Bandwidth, Machine
    from pytest_asperf.host import EngineBuild
    from pytest_asperf.modelfiles.cache import CacheEntry

_SCHEMA: Final = 1
_PROBE_BYTES: Final = 4096
#: The shipped models at every level of a ladder need about a tenth of it.
_LITTLE_SPACE_BYTES: Final = 10**9
_GPU_TYPES: Final = frozenset({"GPU", "IGPU"})
_GPU_BUILDS: Final = {"macOS": "-DGGML_METAL=on", "Linux": "-DGGML_CUDA=on"}


@dataclass(frozen=True, slots=True)
class Device:
    """A compute device that an engine registered."""

    name: str
    description: str
    type: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine says of itself; None where it does not."""

    library: str
    version: str
    python: str
    ggml_version: str | None = None
    ggml_commit: str | None = None
    library_path: str | None = None
    library_sha256: str | None = None
    devices: tuple[Device, ...] = ()
    default_threads: int | None = None


@dataclass(frozen=True, slots=True)
class EngineReport:
    """One engine in one interpreter: what it is, or why it cannot be used."""

    engine: str
    python: Path
    found: EngineFacts | Failure


@dataclass(frozen=True, slots=True)
class CacheReport:
    """The cache folder, and why it cannot be used, if so."""

    folder: Path
    free_bytes: int | None
    files: tuple[CacheEntry, ...]
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Examination:
    """Everything that was found.

    Attributes:
        machine: the facts of this machine.
        measured: its measured memory bandwidth, None where none is known.
        engines: every engine that was looked for.
        cache: the cache folder.
        conditions: what decides whether a measurement made now would be worth anything.
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
            Section("machine", _machine_checks(self.machine, self.measured)),
            *(
                Section(f"engine {report.engine}", _engine_checks(report, self.machine))
                for report in self.engines
            ),
            Section("cache", _cache_checks(self.cache)),
            Section("right now", tuple(map(_condition_check, self.conditions))),
        )

    @property
    def is_ready(self) -> bool:
        """Whether a measurement could run."""
        has_engine = any(isinstance(report.found, EngineFacts) for report in self.engines)
        return has_engine and self.cache.failure is None

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict, the findings and the facts behind them, for JSON."""
        return {
            "schema": _SCHEMA,
            "ready": self.is_ready,
            "sections": [asdict(section) for section in self.sections],
            "facts": asdict(self),
        }


def examine(
    builds: Sequence[EngineBuild],
    cache: Path,
    *,
    measure_bandwidth: bool,
    on_wait: Callable[[str], None],
) -> Examination:
    """Ask the machine, the engines and the cache.

    Args:
        builds: the engines to look for, each in its interpreter.
        cache: the cache folder; it is not made where it does not exist.
        measure_bandwidth: measure the memory bandwidth now; takes two to eight seconds.
        on_wait: told when another measurement holds the machine.
    """
    # First, because starting an engine is itself a load.
    conditions = readiness()
    machine = detect()
    return Examination(
        machine,
        _bandwidth(cache, machine, measure=measure_bandwidth, on_wait=on_wait),
        tuple(_engine_report(build) for build in builds),
        _cache_report(cache),
        conditions,
    )


def _bandwidth(
    cache: Path, machine: Machine, *, measure: bool, on_wait: Callable[[str], None]
) -> Bandwidth | Failure | None:
    try:
        if not measure:
            return _known_bandwidth(cache, machine)
        with machine_turn(machine_lock_path(), on_wait):
            return machine_bandwidth(cache, machine, remeasure=True)
    except AsperfError as error:
        return Failure(printable(error.what), printable(error.remedy))


def _engine_report(build: EngineBuild) -> EngineReport:
    try:
        with Worker(build) as worker:
            found: EngineFacts | Failure = _engine_facts(worker.describe(), worker.hello)
    except AsperfError as error:
        found = _engine_failure(build, error)
    return EngineReport(build.engine, build.python, found)
