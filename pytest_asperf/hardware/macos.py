"""A Mac's facts about itself without privileges: sysctl, the I/O registry, system_profiler.

Disturbances are thermal pressure, power mode, memory pressure and the GPU.
"""

import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_asperf.hardware import probe
from pytest_asperf.hardware.conditions import (
    GPU_BUSY_PERCENT,
    Condition,
    judge_swap,
    judge_virtualisation,
)
from pytest_asperf.hardware.machine import Gpu, Machine, published_bandwidth
from pytest_asperf.hardware.profiles import match_profile

_MAX_LEVELS = 8
#: The user's limit for the GPU, MiB; 0 is the system's own limit, which only Metal reports.
_WIRED_LIMIT = "iogpu.wired_limit_mb"
_WORKING_SET = (
    *("/usr/bin/osascript", "-l", "JavaScript", "-e"),
    'ObjC.import("Metal"); $.MTLCreateSystemDefaultDevice().recommendedMaxWorkingSetSize',
)
_SYSCTL = (
    "/usr/sbin/sysctl",
    "machdep.cpu.brand_string",
    "hw.memsize",
    "hw.physicalcpu_max",
    "hw.logicalcpu_max",
    "hw.nperflevels",
    *(f"hw.perflevel{level}.name" for level in range(_MAX_LEVELS)),
    *(f"hw.perflevel{level}.physicalcpu_max" for level in range(_MAX_LEVELS)),
    "kern.hv_vmm_present",
    "sysctl.proc_translated",
    _WIRED_LIMIT,
)
_IOREG = ("/usr/sbin/ioreg", "-rc", "AGXAccelerator", "-d1")
_PROFILER = ("/usr/sbin/system_profiler", "SPHardwareDataType", "SPDisplaysDataType", "-json")
# An early M1 system and some virtual machines give this name, which is no chip's.
_NAMELESS = "Apple processor"


@dataclass(frozen=True, slots=True)
class ProfilerFacts:
    """The used part of system_profiler; serial numbers and identifiers are never copied."""

    chip: str | None = None
    memory_bytes: int | None = None
    cores: int | None = None
    cores_by_level: tuple[tuple[str, int], ...] = ()
    gpu_cores: int | None = None


def read_machine() -> Machine:
    """Read this Mac's facts from the operating system."""
    sysctl = parse_sysctl(probe.run(_SYSCTL) or "")
    gpu_cores = parse_gpu_cores(probe.run(_IOREG) or "")
    brand = sysctl.get("machdep.cpu.brand_string")
    profiler = ProfilerFacts()
    if brand in (None, _NAMELESS) or gpu_cores is None:
        profiler = parse_system_profiler(probe.run(_PROFILER, timeout_s=20) or "")
    machine = machine_from(sysctl, gpu_cores, profiler, platform.machine())
    if machine.gpu_limit_bytes is None and (machine.arch == "arm64" or machine.translated):
        limit = probe.whole_number(probe.run(_WORKING_SET))
        return replace(machine, gpu_limit_bytes=limit or None)
    return machine


def machine_from(
    sysctl: Mapping[str, str], gpu_cores: int | None, profiler: ProfilerFacts, arch: str
) -> Machine:
    """Join the sources, sysctl and the I/O registry first, and look for the profile."""
    brand = sysctl.get("machdep.cpu.brand_string")
    if brand in (None, _NAMELESS) and profiler.chip is not None:
        brand = profiler.chip
    physical = probe.whole_number(sysctl.get("hw.physicalcpu_max")) or profiler.cores
    memory_bytes = probe.whole_number(sysctl.get("hw.memsize")) or profiler.memory_bytes
    gpu_cores = gpu_cores or profiler.gpu_cores
    match = match_profile(brand, gpu_cores=gpu_cores, cpu_cores=physical, memory_bytes=memory_bytes)
    note = match.note
    if brand == _NAMELESS:
        note = "macOS calls the chip only 'Apple processor' (an early system or a virtual machine)"
    guest = probe.whole_number(sysctl.get("kern.hv_vmm_present"))
    wired_mib = probe.whole_number(sysctl.get(_WIRED_LIMIT))
    return Machine(
        os="macOS",
        arch=arch,
        cpu_brand=brand,
        cores_by_level=parse_cores_by_level(sysctl) or profiler.cores_by_level,
        physical_cores=physical,
        logical_cores=probe.whole_number(sysctl.get("hw.logicalcpu_max")) or physical,
        memory_bytes=memory_bytes,
        gpus=(Gpu(brand, gpu_cores),) if brand is not None and gpu_cores is not None else (),
        gpu_limit_bytes=wired_mib << 20 if wired_mib else None,
        virtualised=None if guest is None else guest > 0,
        translated=sysctl.get("sysctl.proc_translated") == "1",
        profile=match.profile,
        profile_note=note,
        bandwidth=published_bandwidth(match),
    )


def parse_sysctl(text: str) -> dict[str, str]:
    """The keys and values of ``sysctl key…``; unknown keys are absent."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon and value.strip()}


def parse_cores_by_level(sysctl: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Physical cores by core type, fastest first; empty if a counted one is missing.

    A type without a name, as on early systems, is named by its key.
    """
    count = probe.whole_number(sysctl.get("hw.nperflevels"))
    levels: list[tuple[str, int]] = []
    for level in range(min(_MAX_LEVELS if count is None else count, _MAX_LEVELS)):
        cores = probe.whole_number(sysctl.get(f"hw.perflevel{level}.physicalcpu_max"))
        if not cores:
            return () if count else tuple(levels)
        levels.append((sysctl.get(f"hw.perflevel{level}.name", f"perflevel{level}"), cores))
    return tuple(levels)


def parse_gpu_cores(ioreg: str) -> int | None:
    """The GPU core count of the AGXAccelerator entry; None if absent or contradictory."""
    counts = {int(n) for n in re.findall(r'"gpu-core-count"\s*=\s*([0-9]{1,4})\b', ioreg)}
    return counts.pop() or None if len(counts) == 1 else None


def parse_gpu_busy_percent(ioreg: str) -> int | None:
    """The GPU's ``Device Utilization %`` of the AGXAccelerator entry."""
    match = re.search(r'"Device Utilization %"\s*=\s*([0-9]{1,3})\b', ioreg)
    return int(match[1]) if match else None


def parse_system_profiler(text: str) -> ProfilerFacts:
    """Chip, memory and core counts of ``system_profiler … -json``."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return ProfilerFacts()
    hardware = _first(document, "SPHardwareDataType")
    display = _first(document, "SPDisplaysDataType")
    cores, levels = parse_number_processors(_text(hardware, "number_processors") or "")
    memory = re.fullmatch(r"([0-9]{1,6}) (GB|TB)", _text(hardware, "physical_memory") or "")
    unit = {"GB": 2**30, "TB": 2**40}
    graphics = _text(display, "sppci_model") or ""
    return ProfilerFacts(
        # Apple silicon has one name; a report of displays alone has it there.
        chip=_text(hardware, "chip_type") or (graphics if graphics.startswith("Apple M") else None),
        memory_bytes=int(memory[1]) * unit[memory[2]] if memory else None,
        cores=cores,
        cores_by_level=levels,
        gpu_cores=probe.whole_number(_text(display, "sppci_cores")) or None,
    )


def parse_number_processors(text: str) -> tuple[int | None, tuple[tuple[str, int], ...]]:
    """The cores and the cores by core type of a ``number_processors`` value.

    Up to macOS 15 it reads ``proc total:P:E``. macOS 26 appends a fourth number for the middle
    type, which the M5 Pro and Max have in addition to their Super cores: ``proc 18:6:0:12``. A
    value whose parts do not add up returns nothing.
    """
    match = re.fullmatch(r"proc ([0-9]{1,4}(?::[0-9]{1,4}){2,3})", text.strip())
    if not match:
        return None, ()
    total, fast, efficient, *rest = (int(part) for part in match[1].split(":"))
    middle = sum(rest)
    if total == 0 or total != fast + efficient + middle:
        return None, ()
    named = (
        (("Super", fast), ("Performance", middle), ("Efficiency", efficient))
        if middle
        else (("Performance", fast), ("Efficiency", efficient))
    )
    return total, tuple((name, cores) for name, cores in named if cores)


def _first(document: Any, key: str) -> Mapping[str, Any]:
    rows = document.get(key) if isinstance(document, dict) else None
    row = rows[0] if isinstance(rows, list) and rows else None
    return row if isinstance(row, dict) else {}


def _text(row: Mapping[str, Any], key: str) -> str | None:
    value = row.get(key)
    return value[:200] if isinstance(value, str) and value else None


_SYSCTL_OF_NOW = (
    *("/usr/sbin/sysctl", "hw.memsize", "vm.swapusage", "kern.memorystatus_vm_pressure_level"),
    *("kern.hv_vmm_present", "sysctl.proc_translated"),
)
_THERMAL_KEY = "com.apple.system.thermalpressurelevel"
_PRESSURE_LEVELS = ("nominal", "moderate", "heavy", "trapping", "sleeping")
_PROCESS_LEVELS = ("nominal", "fair", "serious", "critical")
_PROCESS_STATE = 'ObjC.import("Foundation"); $.NSProcessInfo.processInfo.thermalState'
_MEMORY_LEVELS = {1: "normal", 2: "warning", 4: "critical"}


def conditions() -> tuple[Condition, ...]:
    """Read and judge the conditions that only a Mac reports."""
    sysctl = parse_sysctl(probe.run(_SYSCTL_OF_NOW) or "")
    guest = probe.whole_number(sysctl.get("kern.hv_vmm_present"))
    custom = probe.run(("/usr/bin/pmset", "-g", "custom")) or ""
    source = probe.run(("/usr/bin/pmset", "-g", "batt")) or ""
    ioreg = probe.run(("/usr/sbin/ioreg", "-rc", "AGXAccelerator", "-d1")) or ""
    return (
        judge_swap(
            parse_swap_used(sysctl.get("vm.swapusage", "")),
            probe.whole_number(sysctl.get("hw.memsize")),
        ),
        judge_memory_level(probe.whole_number(sysctl.get("kern.memorystatus_vm_pressure_level"))),
        _thermal(),
        judge_power(parse_power_modes(custom), parse_power_source(source)),
        judge_gpu(parse_gpu_busy_percent(ioreg), is_guest=bool(guest)),
        judge_virtualisation(virtualised=None if guest is None else guest > 0),
        judge_translation(sysctl),
    )


def parse_swap_used(text: str) -> int | None:
    """The used bytes of ``vm.swapusage``: ``total = 2048.00M  used = 1024.50M  …``."""
    match = re.search(r"\bused = ([0-9]{1,9}(?:\.[0-9]{1,6})?)M\b", text)
    return int(float(match[1]) * 2**20) if match else None


def parse_thermal_pressure(text: str) -> int | None:
    """The number that ``notifyutil -g`` prints behind the key; None without one.

    It prints 0 for an unset key, so that 0 does not show a nominal state.
    """
    match = re.search(rf"^{re.escape(_THERMAL_KEY)}\s+([0-9])\s*$", text, re.MULTILINE)
    return int(match[1]) if match else None


def parse_power_modes(text: str) -> dict[str, int]:
    """The power mode by source of ``pmset -g custom``.

    The key is ``lowpowermode`` on some models and ``powermode`` on others; either way 0 is
    automatic, 1 low power and 2 high power.
    """
    modes: dict[str, int] = {}
    source = ""
    for line in text.splitlines():
        if line and not line[0].isspace() and line.rstrip().endswith(":"):
            source = line.rstrip().removesuffix(":")
        elif match := re.fullmatch(r"\s+(?:low)?powermode\s+([0-9])\s*", line):
            modes[source] = int(match[1])
    return modes


def parse_power_source(text: str) -> str | None:
    """The power source in ``pmset -g batt``, e.g. ``AC Power``."""
    match = re.search(r"Now drawing from '([^'\n]{1,40})'", text)
    return match[1] if match else None


def judge_thermal(level: int | None, names: tuple[str, ...]) -> Condition:
    """Judge a thermal level: only 0 is without throttling."""
    name = "thermal level"
    if level is None:
        return Condition(
            name, "unknown", "the system does not report it", "watch it by other means"
        )
    detail = f"{level} ({names[level] if level < len(names) else 'not a known level'})"
    if level == 0:
        return Condition(name, "ok", detail)
    return Condition(name, "disturbing", detail, "wait until the machine has cooled to level 0")


def judge_memory_level(level: int | None) -> Condition:
    """Judge ``kern.memorystatus_vm_pressure_level``."""
    name = "memory pressure"
    if level is None or level not in _MEMORY_LEVELS:
        return Condition(name, "unknown", "the system does not report it")
    detail = _MEMORY_LEVELS[level]
    if level == 1:
        return Condition(name, "ok", detail)
    return Condition(name, "disturbing", detail, "close large programs")


def judge_power(modes: Mapping[str, int], source: str | None) -> Condition:
    """Judge the power mode of the source in use, and the source."""
    name = "power mode"
    mode = None if source is None else modes.get(source)
    if source == "Battery Power":
        low = ", low power mode" if mode == 1 else ""
        return Condition(name, "disturbing", f"on battery{low}", "connect the charger")
    if source is None or mode is None:
        return Condition(name, "unknown", "the system reports no power mode for the source in use")
    if mode == 1:
        remedy = "set the energy mode to automatic or high power"
        return Condition(name, "disturbing", f"low power mode on {source}", remedy)
    return Condition(name, "ok", f"{'high power' if mode == 2 else 'automatic'} on {source}")


def judge_gpu(busy_percent: int | None, *, is_guest: bool = False) -> Condition:
    """Judge how busy others keep the GPU, and whether it is one.

    The paravirtual device of a guest, as on hosted runners, has no simdgroup matrix multiplication
    ("simdgroup matrix mul. = false" in llama.cpp's log), which most of its Metal kernels need.
    """
    if is_guest:
        detail = "paravirtual: without the matrix multiplication that llama.cpp's kernels need"
        remedy = "measure the CPU here (n_gpu_layers = 0), and the GPU on a Mac of its own"
        return Condition("gpu", "disturbing", detail, remedy)
    if busy_percent is None:
        return Condition("gpu", "unknown", "the I/O registry reports no utilisation")
    detail = f"{busy_percent} % busy"
    if busy_percent <= GPU_BUSY_PERCENT:
        return Condition("gpu", "ok", detail)
    return Condition("gpu", "disturbing", detail, "close what draws or computes on the GPU")


def judge_translation(sysctl: Mapping[str, str]) -> Condition:
    """Judge whether this interpreter, and so an engine built for it, runs under Rosetta."""
    if sysctl.get("sysctl.proc_translated") == "1":
        remedy = "use a native arm64 interpreter, and engines built with it"
        return Condition("translation", "disturbing", "runs under Rosetta", remedy)
    return Condition("translation", "ok", "native")


def read_thermal_pressure() -> int | None:
    """The thermal pressure now, 1 to 4; 0 if it is nominal or unset, None if it is unknown."""
    return parse_thermal_pressure(probe.run(("/usr/bin/notifyutil", "-g", _THERMAL_KEY)) or "")


def _thermal() -> Condition:
    if pressure := read_thermal_pressure():
        return judge_thermal(pressure, _PRESSURE_LEVELS)
    # `pmset -g therm` is no third source: on Apple silicon its silence means nothing.
    state = probe.run(("/usr/bin/osascript", "-l", "JavaScript", "-e", _PROCESS_STATE))
    return judge_thermal(probe.whole_number(state), _PROCESS_LEVELS)
