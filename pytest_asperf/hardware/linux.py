"""Linux's facts about the machine: cpuinfo, lscpu, sysfs, control groups, NVIDIA's driver.

Disturbances are throttling, clock policy, power source and memory. Readers get the root of the
tree, so that tests can use a copied one.
"""

import json
import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_asperf.hardware import probe
from pytest_asperf.hardware.conditions import Condition, judge_memory, judge_swap
from pytest_asperf.hardware.machine import ContainerLimits, Gpu, Machine, published_bandwidth
from pytest_asperf.hardware.nvidia import read_cards
from pytest_asperf.hardware.profiles import Match, match_profile

_ROOT = Path("/")
_CPUS = "sys/devices/system/cpu"
_MAX_CPUS = 8192
# Version 1 control groups express "no limit" as the largest page-aligned 64-bit number.
_NO_LIMIT_BYTES = 1 << 60
_SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """The facts of cpuinfo or lscpu; None if they lack one."""

    brand: str | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    virtualised: bool | None = None


def read_machine(root: Path = _ROOT) -> Machine:
    """Read this machine's facts from the operating system."""
    cpuinfo = parse_cpuinfo(probe.read(root / "proc/cpuinfo") or "")
    lscpu = parse_lscpu(probe.run(("lscpu", "-J")) or "")
    cpus = parse_cpu_list(probe.read(root / _CPUS / "online") or "")
    limits = read_limits(root)
    gpus = tuple(
        Gpu(card.name, None, card.memory_bytes, card.driver, bool(card.partitioned))
        for card in read_cards()
    )
    match = match_gpus(gpus)
    return Machine(
        os="Linux",
        arch=platform.machine(),
        cpu_brand=cpuinfo.brand or lscpu.brand,
        cores_by_level=read_cores_by_level(root),
        physical_cores=count_physical_cores(cpus, root) or lscpu.physical_cores,
        logical_cores=len(cpus) or lscpu.logical_cores or cpuinfo.logical_cores,
        memory_bytes=parse_meminfo(probe.read(root / "proc/meminfo") or "").get("MemTotal"),
        cache_bytes=read_cache_bytes(cpus, root),
        gpus=gpus,
        limits=ContainerLimits(limits.cpus, limits.memory_bytes, len(os.sched_getaffinity(0))),
        virtualised=lscpu.virtualised if cpuinfo.virtualised is None else cpuinfo.virtualised,
        profile=match.profile,
        profile_note=match.note,
        bandwidth=published_bandwidth(match),
    )


def match_gpus(gpus: Sequence[Gpu]) -> Match:
    """The profile of the cards; processors other than Apple's have none of their own."""
    names = {gpu.name for gpu in gpus}
    if not names:
        return Match((), "no profile covers this processor, and no NVIDIA card is visible")
    if len(names) > 1:
        return Match((), f"cards of several kinds: {', '.join(sorted(names))}")
    if any(gpu.partitioned for gpu in gpus):
        return Match((), "the card is partitioned (MIG): its published limits do not apply")
    return match_profile(names.pop())


def parse_cpuinfo(text: str) -> CpuFacts:
    """The facts of ``/proc/cpuinfo``; Arm processors have no model name there."""
    values: dict[str, str] = {}
    processors = 0
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            values.setdefault(key.strip(), value.strip())
            processors += key.strip() == "processor"
    flags = values.get("flags")
    return CpuFacts(
        brand=_brand(values.get("model name")),
        logical_cores=processors or None,
        virtualised=None if flags is None else "hypervisor" in flags.split(),
    )


def parse_lscpu(text: str) -> CpuFacts:
    """The facts of ``lscpu -J``, whose fields newer versions nest."""
    try:
        fields = list(_lscpu_fields(json.loads(text)))
    except (ValueError, RecursionError):
        return CpuFacts()
    values: dict[str, str] = {}
    for name, value in fields:
        values.setdefault(name, value)
    # A processor with two kinds of core has one model name for each kind.
    brands = dict.fromkeys(value for name, value in fields if name == "Model name")
    per_group = values.get("Core(s) per socket", values.get("Core(s) per cluster"))
    cores = probe.whole_number(per_group)
    groups = probe.whole_number(values.get("Socket(s)", values.get("Cluster(s)")))
    return CpuFacts(
        brand=_brand(" + ".join(brands)),
        physical_cores=cores * groups if cores and groups and len(brands) < 2 else None,
        logical_cores=probe.whole_number(values.get("CPU(s)")) or None,
        virtualised=True if "Hypervisor vendor" in values else None,
    )


def parse_meminfo(text: str) -> dict[str, int]:
    """Return ``/proc/meminfo`` in bytes."""
    lines = re.findall(r"^(\w+(?:\(\w+\))?):\s+([0-9]{1,18}) kB$", text, re.MULTILINE | re.ASCII)
    return {key: int(kib) * 1024 for key, kib in lines}


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The numbers of a kernel CPU list such as ``0-3,8``; empty if it is malformed."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        if not match:
            return ()
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= _MAX_CPUS:
            return ()
        cpus.extend(range(first, last + 1))
    return tuple(cpus)


def parse_size(text: str) -> int | None:
    """The bytes of a sysfs size such as ``32768K``."""
    match = re.fullmatch(r"([0-9]{1,12})([KMG]?)", text.strip())
    return int(match[1]) * _SIZE_UNITS[match[2]] if match else None


def parse_cpu_max(text: str) -> float | None:
    """The CPUs of a version 2 ``cpu.max``: ``quota period``, or ``max`` for no limit."""
    quota, _, period = text.strip().partition(" ")
    return _ratio(quota, period)


def parse_cgroup_paths(text: str) -> dict[str, str]:
    """Return ``/proc/self/cgroup`` as controller → path; version 2 has the controller ``""``."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            paths.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return paths


def count_physical_cores(cpus: Iterable[int], root: Path = _ROOT) -> int | None:
    """The number of physical cores behind these logical ones; None if it is unknown for any."""
    siblings = set()
    for cpu in cpus:
        topology = root / _CPUS / f"cpu{cpu}/topology"
        shared = probe.read(topology / "core_cpus_list") or probe.read(
            topology / "thread_siblings_list"
        )
        if not shared:
            return None
        siblings.add(shared)
    return len(siblings) or None


def read_virtualised(root: Path = _ROOT) -> bool | None:
    """True if this is a guest of a hypervisor; lscpu is run only if cpuinfo does not show it."""
    by_flags = parse_cpuinfo(probe.read(root / "proc/cpuinfo") or "").virtualised
    if by_flags is not None:
        return by_flags
    return parse_lscpu(probe.run(("lscpu", "-J")) or "").virtualised


def read_cores_by_level(root: Path = _ROOT) -> tuple[tuple[str, int], ...]:
    """The cores of a hybrid Intel processor by core type; empty for any other."""
    levels = []
    for name, device in (("Performance", "cpu_core"), ("Efficiency", "cpu_atom")):
        cpus = parse_cpu_list(probe.read(root / f"sys/devices/{device}/cpus") or "")
        cores = count_physical_cores(cpus, root)
        if cores is None:
            return ()
        levels.append((name, cores))
    return tuple(levels)


def read_cache_bytes(cpus: Iterable[int], root: Path = _ROOT) -> int | None:
    """The size of all last-level caches together."""
    caches: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        for index in (root / _CPUS / f"cpu{cpu}/cache").glob("index[0-9]"):
            level = probe.whole_number(probe.read(index / "level"))
            size = parse_size(probe.read(index / "size") or "")
            if level and size and probe.read(index / "type") != "Instruction":
                caches[level, probe.read(index / "shared_cpu_list") or str(cpu)] = size
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last) or None


def read_limits(root: Path = _ROOT) -> ContainerLimits:
    """The tightest CPU and memory limits of this process's control groups."""
    paths = parse_cgroup_paths(probe.read(root / "proc/self/cgroup") or "")
    mount = root / "sys/fs/cgroup"
    cpus = [
        *(parse_cpu_max(probe.read(f / "cpu.max") or "") for f in _upwards(mount, paths.get(""))),
        *(_quota_cpus(folder) for folder in _upwards(mount / "cpu", paths.get("cpu"))),
    ]
    files = [
        *(folder / "memory.max" for folder in _upwards(mount, paths.get(""))),
        *(f / "memory.limit_in_bytes" for f in _upwards(mount / "memory", paths.get("memory"))),
    ]
    memory = [probe.whole_number(probe.read(file)) for file in files]
    return ContainerLimits(
        cpus=min((limit for limit in cpus if limit), default=None),
        memory_bytes=min((b for b in memory if b and b < _NO_LIMIT_BYTES), default=None),
    )


def _upwards(mount: Path, path: str | None) -> Iterator[Path]:
    if path is None or ".." in path:
        return
    folder = mount / path.lstrip("/")
    yield folder
    for parent in folder.parents:
        if not parent.is_relative_to(mount):
            return
        yield parent


def _quota_cpus(folder: Path) -> float | None:
    period = probe.read(folder / "cpu.cfs_period_us")
    return _ratio(probe.read(folder / "cpu.cfs_quota_us"), period)


def _ratio(quota: str | None, period: str | None) -> float | None:
    quota_us, period_us = probe.whole_number(quota), probe.whole_number(period)
    return quota_us / period_us if quota_us and period_us else None


def _lscpu_fields(document: Any) -> Iterator[tuple[str, str]]:
    rows = document.get("lscpu", document.get("children")) if isinstance(document, dict) else None
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict):
            continue
        field, data = row.get("field"), row.get("data")
        if isinstance(field, str) and isinstance(data, str):
            yield field.strip().rstrip(":"), data
        yield from _lscpu_fields(row)


def _brand(text: str | None) -> str | None:
    # lscpu writes "-" for unknown values.
    words = " ".join((text or "").split())[:200]
    return words if words not in ("", "-") else None


# Drivers that choose the clock themselves; "powersave" is then the normal governor, and the
# energy preference decides how far it saves.
_SELF_CLOCKED = frozenset({"intel_pstate", "amd-pstate", "amd-pstate-epp"})
_SAVING = frozenset({"power", "balance_power"})


@dataclass(frozen=True, slots=True)
class ClockPolicy:
    """The kernel's clock policy for a group of cores; None or 0 for an unknown value."""

    driver: str | None
    governor: str | None
    preference: str | None
    allowed_khz: int | None
    possible_khz: int | None

    @property
    def fault(self) -> str | None:
        """The fault that keeps these cores from their full clock."""
        if self.allowed_khz and self.possible_khz and self.allowed_khz < self.possible_khz:
            return f"clock limited to {self.allowed_khz / 1e6:g} of {self.possible_khz / 1e6:g} GHz"
        if self.driver in _SELF_CLOCKED:
            saving = self.preference in _SAVING
            return f"energy preference {self.preference!r}" if saving else None
        return "governor 'powersave'" if self.governor == "powersave" else None


def memory_conditions(root: Path = _ROOT) -> tuple[Condition, ...]:
    """Judge swap and memory pressure."""
    meminfo = parse_meminfo(probe.read(root / "proc/meminfo") or "")
    total, available = meminfo.get("MemTotal"), meminfo.get("MemAvailable")
    swap_total, swap_free = meminfo.get("SwapTotal"), meminfo.get("SwapFree")
    used = None if swap_total is None or swap_free is None else swap_total - swap_free
    return (
        judge_swap(used, total),
        judge_memory(
            parse_stall_percent(probe.read(root / "proc/pressure/memory") or ""),
            available / total if available is not None and total else None,
        ),
    )


def power_condition(root: Path = _ROOT) -> Condition:
    """Judge clock policy, platform profile and power source."""
    return judge_power(
        read_clock_policies(root),
        probe.read(root / "sys/firmware/acpi/platform_profile"),
        discharging=read_discharging(root),
    )


def parse_stall_percent(text: str) -> float | None:
    """Return ``some avg10`` of a pressure stall file."""
    match = re.search(r"^some avg10=([0-9]{1,3}\.[0-9]{1,4})\b", text, re.MULTILINE)
    return float(match[1]) if match else None


def read_throttle_events(root: Path = _ROOT) -> int | None:
    """How often the cores were throttled since boot; None if nothing counts it."""
    files = (root / _CPUS).glob("cpu[0-9]*/thermal_throttle/*_throttle_count")
    counts = [probe.whole_number(probe.read(file)) for file in files]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def read_clock_policies(root: Path = _ROOT) -> tuple[ClockPolicy, ...]:
    """The clock policy of each group of cores; empty in most virtual machines."""
    return tuple(
        ClockPolicy(
            driver=probe.read(policy / "scaling_driver"),
            governor=probe.read(policy / "scaling_governor"),
            preference=probe.read(policy / "energy_performance_preference"),
            allowed_khz=probe.whole_number(probe.read(policy / "scaling_max_freq")),
            possible_khz=probe.whole_number(probe.read(policy / "cpuinfo_max_freq")),
        )
        for policy in sorted((root / _CPUS / "cpufreq").glob("policy[0-9]*"))
    )


def read_discharging(root: Path = _ROOT) -> bool | None:
    """True if a system battery is being drained; None if there is none."""
    statuses = [
        probe.read(supply / "status")
        for supply in (root / "sys/class/power_supply").glob("*")
        # A mouse's battery is a supply, too; its scope is "Device".
        if probe.read(supply / "type") == "Battery" and probe.read(supply / "scope") != "Device"
    ]
    return "Discharging" in statuses if statuses else None


def judge_throttling(before: int | None, after: int | None) -> Condition:
    """Judge the throttle counters before and after a short while."""
    name = "thermal level"
    if before is None or after is None:
        remedy = "watch the clock or the temperature by other means"
        return Condition(name, "unknown", "no throttle counters here", remedy)
    if after > before:
        detail = f"throttled {after - before} times just now"
        return Condition(name, "disturbing", detail, "wait until the machine has cooled")
    return Condition(name, "ok", f"not throttled just now ({after} times since boot)")


def judge_power(
    policies: Sequence[ClockPolicy], platform_profile: str | None, *, discharging: bool | None
) -> Condition:
    """Judge the limits of the processor's clock."""
    name = "power mode"
    faults = list(dict.fromkeys(policy.fault for policy in policies if policy.fault))
    if platform_profile == "low-power":
        faults.append("platform profile 'low-power'")
    if discharging:
        faults.append("on battery")
    if faults:
        remedy = "connect power, choose the performance profile or governor"
        return Condition(name, "disturbing", "; ".join(faults), remedy)
    if not policies:
        return Condition(name, "unknown", "the kernel shows no clock policy")
    governors = dict.fromkeys(policy.governor or "unnamed" for policy in policies)
    return Condition(name, "ok", f"governor {', '.join(governors)}")
