"""The findings of `asperf doctor`: facts gathered and judged once, for its text and its JSON."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.builds.machine_code import require_usable
from pytest_asperf.commands.models import cached_checks
from pytest_asperf.config.engines import EXTRAS, LIBRARIES, Engine
from pytest_asperf.config.settings import session_option
from pytest_asperf.engine_process import Device, EngineBuild, EngineFacts, Worker
from pytest_asperf.errors import AsperfError, CacheError, printable
from pytest_asperf.hardware.bandwidth import bandwidth_in_turn, known_bandwidth
from pytest_asperf.hardware.in_force import detect
from pytest_asperf.hardware.meters.choose import energy_condition
from pytest_asperf.hardware.readiness import readiness
from pytest_asperf.modelfiles.cache import CacheEntry, entries
from pytest_asperf.report.sections import CheckLine, Failure, Section, State, condition_check

if TYPE_CHECKING:
    from pytest_asperf.hardware.conditions import Condition
    from pytest_asperf.hardware.machine import Bandwidth, Gpu, Machine
    from pytest_asperf.hardware.machine_lock import MachineQueue

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
    """This machine's memory bandwidth, measured now or before; None if unknown."""
    try:
        if not measure:
            return known_bandwidth(cache, machine)
        return bandwidth_in_turn(cache, machine, queue, remeasure=True)
    except AsperfError as error:
        return Failure.of(error)


def engine_report(build: EngineBuild) -> EngineReport:
    """The facts that an engine reports when it is started, or why it cannot be used."""
    try:
        if build.tools is not None:
            require_usable(build.tools)
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


#: The shipped models at every quantization of a sweep need about a tenth of it.
_LITTLE_SPACE_BYTES: Final = 10**9
_GPU_TYPES: Final = frozenset({"GPU", "IGPU"})
_GPU_BUILDS: Final = {"macOS": "-DGGML_METAL=on", "Linux": "-DGGML_CUDA=on"}


def machine_checks(machine: Machine, measured: Bandwidth | Failure | None) -> tuple[CheckLine, ...]:
    """The machine: chip, profile, cores, memory, limits and bandwidth."""
    gpus = (_gpu_words(gpu) for gpu in machine.gpus)
    chip = printable(machine.cpu_brand or "unnamed")
    return (
        CheckLine("chip", "ok", f"{chip}, {printable(machine.os)} on {printable(machine.arch)}"),
        _profile_check(machine),
        CheckLine("cores", "ok", _core_words(machine)),
        *(CheckLine("gpu", "ok", words) for words in gpus),
        _memory_check(machine),
        _limits_check(machine),
        _bandwidth_check(machine.bandwidth, measured),
    )


def _profile_check(machine: Machine) -> CheckLine:
    profile = machine.profile
    if profile is None:
        option = session_option("hardware")
        remedy = f"name the profile if one fits: pytest {option}=NAME"
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
    facts += [memory_text(gpu.memory_bytes)] if gpu.memory_bytes is not None else []
    facts += [f"driver {printable(gpu.driver)}"] if gpu.driver else []
    facts += ["partitioned"] if gpu.partitioned else []
    return ", ".join(facts)


def _memory_check(machine: Machine) -> CheckLine:
    if machine.memory_bytes is None:
        return CheckLine("memory", "unknown", "its size cannot be read")
    # Makers sell it by the power of two, markers use decimal units.
    decimal = f"{machine.memory_bytes / 1e9:.1f} GB for min_memory_gb"
    return CheckLine("memory", "ok", f"{memory_text(machine.memory_bytes)} ({decimal})")


def _limits_check(machine: Machine) -> CheckLine:
    limits, logical = machine.limits, machine.logical_cores
    words = []
    if limits.cpus is not None:
        words.append(f"processor time of {limits.cpus:g} cores")
    if limits.memory_bytes is not None:
        words.append(f"{memory_text(limits.memory_bytes)} of memory")
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
            "limits", "warning", f"{detail}: threads beyond that are throttled", remedy
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
    remedy = "run `asperf doctor --measure-bandwidth`, or run a test that needs it"
    return CheckLine("bandwidth", "unknown", "neither published nor measured yet", remedy)


def engine_checks(
    report: EngineReport, facts: EngineFacts, machine: Machine
) -> tuple[CheckLine, ...]:
    """An engine that was started: its version, library, devices and threads."""
    library = f"{facts.library} {facts.version}"
    if facts.ggml_version is not None:
        library += f", ggml {facts.ggml_version} ({facts.ggml_commit or 'unknown commit'})"
    if facts.mlx_version is not None:
        library += f", mlx {facts.mlx_version}"
    threads = "unknown" if facts.default_threads is None else str(facts.default_threads)
    return (
        CheckLine("engine", "ok", library),
        CheckLine("python", "ok", printable(report.python)),
        CheckLine("library", "ok", facts.library_path or "in an unknown folder"),
        CheckLine("sha256", "ok", facts.library_sha256 or "unknown"),
        *(CheckLine("device", "ok", _device_words(device)) for device in facts.devices),
        *_metal_checks(facts),
        *_idle_gpu_checks(report, facts, machine),
        CheckLine("threads", "ok", f"{threads} unless set"),
    )


def _device_words(device: Device) -> str:
    total_bytes = device.memory_total_bytes
    memory = "" if total_bytes is None else f", {memory_text(total_bytes)}"
    return f"{device.name}: {device.description} ({device.type}{memory})"


def _metal_checks(facts: EngineFacts) -> tuple[CheckLine, ...]:
    if facts.metal is None:
        return ()
    if limit := facts.metal.guard_finding:
        return (CheckLine("metal", "warning", facts.metal.text(), limit.remedy),)
    return (CheckLine("metal", "ok", facts.metal.text()),)


def _idle_gpu_checks(
    report: EngineReport, facts: EngineFacts, machine: Machine
) -> tuple[CheckLine, ...]:
    if not machine.gpus or any(device.type in _GPU_TYPES for device in facts.devices):
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


def cache_checks(cache: CacheReport) -> tuple[CheckLine, ...]:
    """The cache: its folder, free space and files."""
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
    detail = f"{memory_text(free_bytes)} free"
    if free_bytes >= _LITTLE_SPACE_BYTES:
        return CheckLine("space", "ok", detail)
    remedy = "free some, or set ASPERF_CACHE to a folder on a larger disk"
    return CheckLine("space", "warning", detail, remedy)


_SCHEMA: Final = 1
_RUN: Final = "if you trust it, start it: asperf doctor --run"


@dataclass(frozen=True, slots=True)
class Examination:
    """The facts of machine, engines and cache, and disturbances of a measurement made now.

    The memory bandwidth (`measured`) is None if unknown.
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
        """True if a measurement could run."""
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
    """Examine the machine, the engines and the cache; measuring bandwidth lasts 2 to 8 seconds.

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
