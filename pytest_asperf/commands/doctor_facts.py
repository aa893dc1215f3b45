"""What `asperf doctor` asks of the engines, the cache and the memory."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.engines import EXTRAS, LIBRARIES, Engine
from pytest_asperf.engine_process import Worker
from pytest_asperf.errors import AsperfError, CacheError, printable
from pytest_asperf.hardware.bandwidth import bandwidth_in_turn, known_bandwidth
from pytest_asperf.modelfiles.cache import entries
from pytest_asperf.report.sections import Failure

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_asperf.engine_process import EngineBuild, EngineFacts
    from pytest_asperf.hardware.machine import Bandwidth, Machine
    from pytest_asperf.hardware.machine_lock import MachineQueue
    from pytest_asperf.modelfiles.cache import CacheEntry

_PROBE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class NotStarted:
    """An engine that was not started, because only the project's file names `path`."""

    path: Path


@dataclass(frozen=True, slots=True)
class EngineReport:
    """One engine in one interpreter: its facts, or why it cannot be used."""

    engine: Engine
    python: Path
    found: EngineFacts | Failure | NotStarted


@dataclass(frozen=True, slots=True)
class CacheReport:
    """The cache folder, and why it cannot be used, if so."""

    folder: Path
    free_bytes: int | None
    files: tuple[CacheEntry, ...]
    failure: Failure | None = None


def bandwidth(
    cache: Path, machine: Machine, *, measure: bool, queue: MachineQueue
) -> Bandwidth | Failure | None:
    """This machine's memory bandwidth, measured now or known before; None if it is not known."""
    try:
        if not measure:
            return known_bandwidth(cache, machine)
        return bandwidth_in_turn(cache, machine, queue, remeasure=True)
    except AsperfError as error:
        return Failure.of(error)


def engine_report(build: EngineBuild) -> EngineReport:
    """What an engine says of itself when it is started, or why it cannot be used."""
    try:
        with Worker(build) as worker:
            facts: EngineFacts | Failure = worker.describe()
    except AsperfError as error:
        facts = _engine_failure(build, error)
    return EngineReport(build.engine, build.python, facts)


def _engine_failure(build: EngineBuild, error: AsperfError) -> Failure:
    if build.tools is not None:
        return Failure.of(error)
    python = shlex.quote(str(build.python))
    package = f"'pytest-asperf[{EXTRAS[build.engine]}]'"
    last_line = error.what.rstrip().rpartition("\n")[2]
    module = LIBRARIES.get(build.engine, build.engine)
    if re.search(rf"No module named '{module}\w*'$", last_line):
        what, remedy = f"not installed in {build.python}", f"{python} -m pip install {package}"
    else:
        what = f"does not start in {build.python}: {last_line}"
        remedy = f"reproduce it: {python} -c 'import {module}'; correct that, or"
        remedy += f" reinstall: {python} -m pip install --force-reinstall {package}"
    return Failure(printable(what), printable(remedy))


def cache_report(folder: Path) -> CacheReport:
    """The files in the cache and the space left, or why the folder cannot be used."""
    try:
        # The folder is made on first use; until then its nearest parent decides.
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free_bytes = shutil.disk_usage(existing).free
        with tempfile.TemporaryFile(dir=existing, buffering=0) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        what = f"{folder} cannot be written to: {error.strerror}"
        remedy = "make it a folder that you may write to, with space left, or set ASPERF_CACHE"
        return CacheReport(folder, None, (), Failure(printable(what), f"{remedy} to another one"))
    try:
        return CacheReport(folder, free_bytes, entries(folder))
    except CacheError as error:
        return CacheReport(folder, free_bytes, (), Failure.of(error))
