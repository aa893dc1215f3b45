"""What the facts of the machine, an engine and the cache mean for a measurement: pure functions."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.commands.models import cached_checks
from pytest_asperf.config.settings import session_option
from pytest_asperf.errors import printable
from pytest_asperf.report.sections import CheckLine, Failure

if TYPE_CHECKING:
    from pytest_asperf.commands.doctor_facts import CacheReport, EngineReport
    from pytest_asperf.engine_process import Device, EngineFacts
    from pytest_asperf.hardware.machine import Bandwidth, Gpu, Machine

#: The shipped models at every level of a ladder need about a tenth of it.
_LITTLE_SPACE_BYTES: Final = 10**9
_GPU_TYPES: Final = frozenset({"GPU", "IGPU"})
_GPU_BUILDS: Final = {"macOS": "-DGGML_METAL=on", "Linux": "-DGGML_CUDA=on"}


def machine_checks(machine: Machine, measured: Bandwidth | Failure | None) -> tuple[CheckLine, ...]:
    """The machine: chip, profile, cores, memory, limits and bandwidth."""
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
        option = session_option("hardware")
        remedy = f"if you know it to be one, name it: pytest {option}=NAME"
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
    # Makers sell it by the power of two, markers ask for it in decimal.
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
    remedy = "run `asperf doctor --measure-bandwidth`, or let the first test that needs it do so"
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
        *_idle_gpu_checks(report, facts, machine),
        CheckLine("threads", "ok", f"{threads} unless set"),
    )


def _device_words(device: Device) -> str:
    total_bytes = device.memory_total_bytes
    memory = "" if total_bytes is None else f", {memory_text(total_bytes)}"
    return f"{device.name}: {device.description} ({device.type}{memory})"


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
