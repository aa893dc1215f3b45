"""The disturbances on a Mac: thermal level, power mode, memory pressure, GPU."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_asperf.hardware import probe
from pytest_asperf.hardware.conditions import (
    GPU_BUSY_PERCENT,
    Condition,
    judge_swap,
    judge_virtualisation,
)
from pytest_asperf.hardware.macos import parse_gpu_busy_percent, parse_sysctl

if TYPE_CHECKING:
    from collections.abc import Mapping

_SYSCTL = (
    *("/usr/sbin/sysctl", "hw.memsize", "vm.swapusage", "kern.memorystatus_vm_pressure_level"),
    *("kern.hv_vmm_present", "sysctl.proc_translated"),
)
_THERMAL_KEY = "com.apple.system.thermalpressurelevel"
_PRESSURE_LEVELS = ("nominal", "moderate", "heavy", "trapping", "sleeping")
_PROCESS_LEVELS = ("nominal", "fair", "serious", "critical")
_PROCESS_STATE = 'ObjC.import("Foundation"); $.NSProcessInfo.processInfo.thermalState'
_MEMORY_LEVELS = {1: "normal", 2: "warning", 4: "critical"}


def conditions() -> tuple[Condition, ...]:
    """Ask the operating system and judge what only a Mac shows."""
    sysctl = parse_sysctl(probe.run(_SYSCTL) or "")
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
        judge_gpu(parse_gpu_busy_percent(ioreg)),
        judge_virtualisation(virtualised=None if guest is None else guest > 0),
        judge_translation(sysctl),
    )


def parse_swap_used(text: str) -> int | None:
    """The used bytes of ``vm.swapusage``: ``total = 2048.00M  used = 1024.50M  …``."""
    match = re.search(r"\bused = ([0-9]{1,9}(?:\.[0-9]{1,6})?)M\b", text)
    return int(float(match[1]) * 2**20) if match else None


def parse_thermal_pressure(text: str) -> int | None:
    """The level that ``notifyutil -g`` prints behind the key; None of 0.

    It prints 0 for a key that nobody sets, so that 0 does not show a nominal state.
    """
    match = re.search(rf"^{re.escape(_THERMAL_KEY)}\s+([1-9])\s*$", text, re.MULTILINE)
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
    """The source that ``pmset -g batt`` says is in use, e.g. ``AC Power``."""
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
    return Condition(name, "disturbing", detail, "let the machine cool until the level is 0")


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


def judge_gpu(busy_percent: int | None) -> Condition:
    """Judge how busy others keep the GPU."""
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
    """The level of thermal pressure now, 1 to 4; None if it is nominal or not reported."""
    return parse_thermal_pressure(probe.run(("/usr/bin/notifyutil", "-g", _THERMAL_KEY)) or "")


def _thermal() -> Condition:
    pressure = read_thermal_pressure()
    if pressure is not None:
        return judge_thermal(pressure, _PRESSURE_LEVELS)
    # `pmset -g therm` is no third source: on Apple silicon its silence means nothing.
    state = probe.run(("/usr/bin/osascript", "-l", "JavaScript", "-e", _PROCESS_STATE))
    return judge_thermal(probe.whole_number(state), _PROCESS_LEVELS)
