"""The disturbances on Linux: throttling, clock policy, power source, memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_asperf.hardware import probe
from pytest_asperf.hardware.conditions import Condition, judge_memory, judge_swap
from pytest_asperf.hardware.linux import parse_meminfo

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = Path("/")
_CPU = "sys/devices/system/cpu"
# Drivers that choose the clock themselves; "powersave" is then the normal governor, and the
# energy preference decides how far it saves.
_SELF_CLOCKED = frozenset({"intel_pstate", "amd-pstate", "amd-pstate-epp"})
_SAVING = frozenset({"power", "balance_power"})


@dataclass(frozen=True, slots=True)
class ClockPolicy:
    """How the kernel may set the clock of a group of cores; None or 0 where it does not say."""

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
    """How often the cores were throttled since boot; None where nothing counts it."""
    files = (root / _CPU).glob("cpu[0-9]*/thermal_throttle/*_throttle_count")
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
        for policy in sorted((root / _CPU / "cpufreq").glob("policy[0-9]*"))
    )


def read_discharging(root: Path = _ROOT) -> bool | None:
    """True if a system battery is being drained; None where there is none."""
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
        return Condition(name, "disturbing", detail, "let the machine cool")
    return Condition(name, "ok", f"not throttled just now ({after} times since boot)")


def judge_power(
    policies: Sequence[ClockPolicy], platform_profile: str | None, *, discharging: bool | None
) -> Condition:
    """Judge what keeps the processor from its full clock."""
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
