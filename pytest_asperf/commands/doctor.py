"""Can this machine measure now, and how well? Facts gathered once, then judged by pure functions.

`examine` asks the machine, the engine and the cache. What it returns holds everything that the
command shows, so that its text and its JSON cannot differ.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.commands.models import cached_checks
from pytest_asperf.config.engines import EXTRAS, Engine
from pytest_asperf.engine_process import EngineFacts, Worker
from pytest_asperf.errors import AsperfError, CacheError, printable
from pytest_asperf.hardware.bandwidth import known_bandwidth, machine_bandwidth
from pytest_asperf.hardware.detect import detect
from pytest_asperf.hardware.readiness import readiness
from pytest_asperf.modelfiles.cache import entries
from pytest_asperf.report.sections import CheckLine, Failure, Section, condition_check, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_asperf.engine_process import Device, EngineBuild
    from pytest_asperf.hardware.conditions import Condition
    from pytest_asperf.hardware.machine import Bandwidth, Gpu, Machine
    from pytest_asperf.hardware.machine_lock import MachineQueue
    from pytest_asperf.modelfiles.cache import CacheEntry
    from pytest_asperf.report.sections import State

_SCHEMA: Final = 1
_PROBE_BYTES: Final = 4096
#: The shipped models at every level of a ladder need about a tenth of it.
_LITTLE_SPACE_BYTES: Final = 10**9
_GPU_TYPES: Final = frozenset({"GPU", "IGPU"})
_GPU_BUILDS: Final = {"macOS": "-DGGML_METAL=on", "Linux": "-DGGML_CUDA=on"}


@dataclass(frozen=True, slots=True)
class EngineReport:
    """One engine in one interpreter: what it is, or why it cannot be used."""

    engine: Engine
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
                Section(f"engine {report.engine}", self._engine_checks(report))
                for report in self.engines
            ),
            Section("cache", _cache_checks(self.cache)),
            Section("right now", tuple(map(condition_check, self.conditions))),
        )

    def _engine_checks(self, report: EngineReport) -> tuple[CheckLine, ...]:
        if isinstance(report.found, EngineFacts):
            return _engine_checks(report, report.found, self.machine)
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
        return f"{'ready to measure' if self.is_ready else 'cannot measure'}, {noted}"

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict, the findings and the facts behind them, for JSON."""
        return {
            "schema": _SCHEMA,
            "ready": self.is_ready,
            "sections": [asdict(section) for section in self.sections],
            "facts": asdict(self, dict_factory=_without_verbatim),
        }


def examine(
    builds: Sequence[EngineBuild],
    cache: Path,
    *,
    measure_bandwidth: bool,
    queue: MachineQueue,
) -> Examination:
    """Ask the machine, the engines and the cache.

    Args:
        builds: the engines to look for, each in its interpreter.
        cache: the cache folder; it is not made where it does not exist.
        measure_bandwidth: measure the memory bandwidth now; takes two to eight seconds.
        queue: where a measurement waits for others.
    """
    # First, because starting an engine is itself a load.
    conditions = readiness()
    machine = detect()
    return Examination(
        machine,
        _bandwidth(cache, machine, measure=measure_bandwidth, queue=queue),
        tuple(_engine_report(build) for build in builds),
        _cache_report(cache),
        conditions,
    )


def _bandwidth(
    cache: Path, machine: Machine, *, measure: bool, queue: MachineQueue
) -> Bandwidth | Failure | None:
    try:
        if not measure:
            return known_bandwidth(cache, machine)
        with queue.turn():
            return machine_bandwidth(cache, machine, remeasure=True)
    except AsperfError as error:
        return Failure(printable(error.what), printable(error.remedy))


def _engine_report(build: EngineBuild) -> EngineReport:
    try:
        with Worker(build) as worker:
            found: EngineFacts | Failure = worker.describe()
    except AsperfError as error:
        found = _engine_failure(build, error)
    return EngineReport(build.engine, build.python, found)


def _without_verbatim(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Facts as parsed, without the engine's answer that they were parsed from."""
    return {name: value for name, value in fields if name != "verbatim"}


def _engine_failure(build: EngineBuild, error: AsperfError) -> Failure:
    if build.tools is not None:
        return Failure(printable(error.what), printable(error.remedy))
    python = shlex.quote(str(build.python))
    package = f"'pytest-asperf[{EXTRAS[build.engine]}]'"
    last_line = error.what.rstrip().rpartition("\n")[2]
    if re.search(rf"No module named '{build.engine}\w*'$", last_line):
        what, remedy = f"not installed in {build.python}", f"{python} -m pip install {package}"
    else:
        what = f"does not start in {build.python}: {last_line}"
        remedy = f"see it fail by itself: {python} -c 'import {build.engine}'; mend that, or"
        remedy += f" reinstall: {python} -m pip install --force-reinstall {package}"
    return Failure(printable(what), printable(remedy))


def _cache_report(folder: Path) -> CacheReport:
    try:
        # The folder is made on first use; until then its nearest parent decides.
        there = next(path for path in (folder, *folder.parents) if path.exists())
        free_bytes = shutil.disk_usage(there).free
        with tempfile.TemporaryFile(dir=there, buffering=0) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        what = f"{folder} cannot be written to: {error.strerror}"
        remedy = "make it a folder that you may write to, with space left, or set ASPERF_CACHE"
        return CacheReport(folder, None, (), Failure(printable(what), f"{remedy} to another one"))
    try:
        return CacheReport(folder, free_bytes, entries(folder))
    except CacheError as error:
        failure = Failure(printable(error.what), printable(error.remedy))
        return CacheReport(folder, free_bytes, (), failure)


def _machine_checks(
    machine: Machine, measured: Bandwidth | Failure | None
) -> tuple[CheckLine, ...]:
    gpus = (_gpu_words(gpu) for gpu in machine.gpus)
    return (
        CheckLine("chip", "ok", f"{printable(machine.cpu_brand or 'unnamed')}, {_system(machine)}"),
        _profile_check(machine),
        CheckLine("cores", "ok", _core_words(machine)),
        *(CheckLine("gpu", "ok", words) for words in gpus),
        _memory_check(machine),
        _limits_check(machine),
        _bandwidth_check(machine.bandwidth, measured),
    )


def _system(machine: Machine) -> str:
    return f"{printable(machine.os)} on {printable(machine.arch)}"


def _profile_check(machine: Machine) -> CheckLine:
    profile = machine.profile
    if profile is None:
        remedy = "if you know it to be one, name it: pytest --asperf-hardware=NAME"
        return CheckLine("profile", "unknown", f"none: {printable(machine.profile_note)}", remedy)
    doubt = "" if profile.confidence == "high" else f"; {profile.confidence} confidence"
    return CheckLine("profile", "ok", f"{profile.id}: {profile.name}{doubt}")


def _core_words(machine: Machine) -> str:
    levels = [f"{count} {printable(level)}" for level, count in machine.cores_by_level]
    counts = (("physical", machine.physical_cores), ("logical", machine.logical_cores))
    known = [f"{count} {kind}" for kind, count in counts if count is not None]
    words = ", ".join(known) or "unknown"
    return f"{words} ({' + '.join(levels)})" if levels else words


def _gpu_words(gpu: Gpu) -> str:
    facts = [printable(gpu.name)]
    facts += [f"{gpu.cores} cores"] if gpu.cores is not None else []
    facts += [size(gpu.memory_bytes)] if gpu.memory_bytes is not None else []
    facts += [f"driver {printable(gpu.driver)}"] if gpu.driver else []
    facts += ["partitioned"] if gpu.partitioned else []
    return ", ".join(facts)


def _memory_check(machine: Machine) -> CheckLine:
    if machine.memory_bytes is None:
        return CheckLine("memory", "unknown", "its size cannot be read")
    # Makers sell it by the power of two, markers ask for it in decimal.
    gib = machine.memory_bytes / 2**30
    return CheckLine("memory", "ok", f"{size(machine.memory_bytes)} ({gib:.1f} GiB)")


def _limits_check(machine: Machine) -> CheckLine:
    limits, logical = machine.limits, machine.logical_cores
    words = []
    if limits.cpus is not None:
        words.append(f"processor time of {limits.cpus:g} cores")
    if limits.memory_bytes is not None:
        words.append(f"{size(limits.memory_bytes)} of memory")
    if limits.affinity is not None and limits.affinity != logical:
        words.append(f"{limits.affinity} of {logical or 'unknown'} cores")
    if not words:
        return CheckLine("limits", "ok", "no container or affinity limits")
    detail = "; ".join(words)
    runnable = limits.affinity or logical
    if limits.cpus is not None and runnable is not None and limits.cpus < runnable:
        # The engine starts a thread for each core it sees; the quota then stops all of them.
        remedy = f"set threads = {max(1, int(limits.cpus))} in the model's settings, or lift it"
        return CheckLine(
            "limits", "warning", f"{detail}: more threads than that are halted", remedy
        )
    return CheckLine("limits", "ok", detail)


def _bandwidth_check(
    published: Bandwidth | None, measured: Bandwidth | Failure | None
) -> CheckLine:
    words = []
    if published is not None:
        words.append(f"{published.gbs:g} GB/s advertised")
    if isinstance(measured, Failure):
        return CheckLine(
            "bandwidth", "unknown", "; ".join((*words, measured.what)), measured.remedy
        )
    if measured is not None:
        words.append(f"{measured.gbs:.1f} GB/s measured on {measured.measured_on}")
    if words:
        return CheckLine("bandwidth", "ok", ", ".join(words))
    remedy = "run `asperf doctor --measure-bandwidth`, or let the first test that needs it do so"
    return CheckLine("bandwidth", "unknown", "neither published nor measured yet", remedy)


def _engine_checks(
    report: EngineReport, found: EngineFacts, machine: Machine
) -> tuple[CheckLine, ...]:
    library = f"{found.library} {found.version}"
    if found.ggml_version is not None:
        library += f", ggml {found.ggml_version} ({found.ggml_commit or 'unknown commit'})"
    if found.mlx_version is not None:
        library += f", mlx {found.mlx_version}"
    threads = "unknown" if found.default_threads is None else str(found.default_threads)
    return (
        CheckLine("engine", "ok", library),
        CheckLine("python", "ok", printable(report.python)),
        CheckLine("library", "ok", found.library_path or "at an unknown place"),
        CheckLine("sha256", "ok", found.library_sha256 or "unknown"),
        *(CheckLine("device", "ok", _device_words(device)) for device in found.devices),
        *_idle_gpu_checks(report, found, machine),
        CheckLine("threads", "ok", f"{threads} unless set"),
    )


def _device_words(device: Device) -> str:
    memory = "" if device.memory_bytes is None else f", {size(device.memory_bytes)}"
    return f"{device.name}: {device.description} ({device.type}{memory})"


def _idle_gpu_checks(
    report: EngineReport, found: EngineFacts, machine: Machine
) -> tuple[CheckLine, ...]:
    if not machine.gpus or any(device.type in _GPU_TYPES for device in found.devices):
        return ()
    python = shlex.quote(str(report.python))
    flag = _GPU_BUILDS.get(machine.os)
    remedy = "build the engine with one"
    if report.engine == "mlx":
        remedy = f"{python} -m pip install mlx (macOS), or 'mlx[cuda]' (Linux with NVIDIA's driver)"
    elif flag:
        remedy = f"CMAKE_ARGS={flag} {python} -m pip install --force-reinstall --no-cache-dir "
        remedy += "llama-cpp-python"
    detail = f"the engine was built without it, and leaves {printable(machine.gpus[0].name)} idle"
    return (CheckLine("gpu", "warning", detail, printable(remedy)),)


def _cache_checks(cache: CacheReport) -> tuple[CheckLine, ...]:
    if cache.failure is not None:
        return (CheckLine("folder", "impossible", cache.failure.what, cache.failure.remedy),)
    return (
        CheckLine("folder", "ok", printable(cache.folder)),
        _space_check(cache.free_bytes or 0),
        *(
            cached_checks(cache.files)
            or (CheckLine("models", "ok", "none yet; made on first use"),)
        ),
    )


def _space_check(free_bytes: int) -> CheckLine:
    detail = f"{size(free_bytes)} free"
    if free_bytes >= _LITTLE_SPACE_BYTES:
        return CheckLine("space", "ok", detail)
    remedy = "free some, or set ASPERF_CACHE to a folder on a larger disk"
    return CheckLine("space", "warning", detail, remedy)
