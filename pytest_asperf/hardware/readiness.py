"""Is this machine fit to measure on now? Readings over a short window, judged one by one."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from typing import Any

from pytest_asperf.hardware import linux, readiness_linux, readiness_macos
from pytest_asperf.hardware.conditions import (
    Condition,
    judge_cards,
    judge_load,
    judge_virtualisation,
)
from pytest_asperf.hardware.nvidia import read_cards

_WINDOW_S = 0.1


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Processor time since boot in core-seconds, and this process's own, at one moment."""

    at_s: float
    busy_s: float
    stolen_s: float
    own_s: float


def readiness() -> tuple[Condition, ...]:
    """What decides whether a measurement made now would be worth anything.

    Takes 0.1 s to watch processor times and throttle counters, and what the system's commands
    need: nothing on Linux without an NVIDIA card, some 0.1 s on a Mac.
    """
    system = platform.system()
    on_linux = system == "Linux"
    throttled = readiness_linux.read_throttle_events() if on_linux else None
    before = read_cpu_times()
    time.sleep(_WINDOW_S)
    after = read_cpu_times()
    load = judge_load(foreign_cores(before, after), _load_average(), os.cpu_count())
    if on_linux:
        return (
            load,
            *readiness_linux.memory_conditions(),
            readiness_linux.judge_throttling(throttled, readiness_linux.read_throttle_events()),
            readiness_linux.power_condition(),
            judge_cards(read_cards()),
            judge_virtualisation(
                virtualised=linux.read_virtualised(), stolen_cores=stolen_cores(before, after)
            ),
        )
    if system == "Darwin":
        return (load, *readiness_macos.conditions())
    return (load,)


def foreign_cores(before: CpuTimes, after: CpuTimes) -> float | None:
    """How many cores other processes kept busy between two readings."""
    window_s = after.at_s - before.at_s
    if window_s <= 0:
        return None
    busy_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, busy_s / window_s)


def stolen_cores(before: CpuTimes, after: CpuTimes) -> float | None:
    """How many cores' time the hypervisor gave to others between two readings."""
    window_s = after.at_s - before.at_s
    return max(0.0, after.stolen_s - before.stolen_s) / window_s if window_s > 0 else None


def read_cpu_times() -> CpuTimes:
    """Read the processor times of the machine and of this process."""
    import psutil  # noqa: PLC0415 -- heavy, and needed only where readiness is asked for

    times: Any = psutil.cpu_times()
    idle = ("idle", "iowait", "steal", "guest", "guest_nice")  # user time contains the guests'
    busy_s = sum(getattr(times, field) for field in times._fields if field not in idle)
    return CpuTimes(time.monotonic(), busy_s, getattr(times, "steal", 0.0), time.process_time())


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None
