"""The machine's fitness for a measurement: samples over a short window, judged one by one."""

import os
import platform
import time

from pytest_asperf.hardware import linux, macos
from pytest_asperf.hardware.conditions import (
    Condition,
    judge_cards,
    judge_load,
    judge_virtualisation,
)
from pytest_asperf.hardware.nvidia import read_cards
from pytest_asperf.hardware.probe import other_cores, read_cpu_times, stolen_cores

_WINDOW_S = 0.1


def readiness() -> tuple[Condition, ...]:
    """The readiness of the machine: whether a measurement made now would be worth anything.

    It needs 0.1 s to watch processor times and throttle counters, and the time of the system's
    commands: nothing on Linux without an NVIDIA card, some 0.1 s on a Mac.
    """
    system = platform.system()
    on_linux = system == "Linux"
    throttled = linux.read_throttle_events() if on_linux else None
    before = read_cpu_times()
    time.sleep(_WINDOW_S)
    after = read_cpu_times()
    load = judge_load(other_cores(before, after), _load_average(), os.cpu_count())
    if on_linux:
        return (
            load,
            *linux.memory_conditions(),
            linux.judge_throttling(throttled, linux.read_throttle_events()),
            linux.power_condition(),
            judge_cards(read_cards()),
            judge_virtualisation(
                virtualised=linux.read_virtualised(), stolen_cores=stolen_cores(before, after)
            ),
        )
    if system == "Darwin":
        return (load, *macos.conditions())
    return (load,)


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None
