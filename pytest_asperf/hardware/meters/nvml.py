"""Energy of NVIDIA cards by NVML: the total energy counter, with the power beside it as a check.

The counter is published about every 100 ms. Power usage is an average of a second on the
architectures of today, so it is compared with the counter where the load was steady for as long.
"""

from __future__ import annotations

import os
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_asperf.hardware import nvidia
from pytest_asperf.hardware.meters.meter import Counter, Meter, MissingRail

if TYPE_CHECKING:
    from collections.abc import Callable


def nvml_meter() -> Meter:
    """The counters of the cards that CUDA sees; without one, why there is none."""
    nvml = nvidia.open_nvml()
    if nvml is None:
        return _without(installed=find_spec("pynvml") is not None)
    counters, missing = [], []
    for index, handle in _visible(nvidia.handles_of(nvml)):
        if nvidia.asked(nvml, handle, nvml.nvmlDeviceGetTotalEnergyConsumption) is None:
            missing.append(_no_counter(index))
        else:
            counters.append(_counter(nvml, index, handle))
    if not counters and not missing:
        missing.append(MissingRail("gpu", "the driver shows no NVIDIA card"))
    return Meter(tuple(counters), tuple(missing), nvml.nvmlShutdown)


def _counter(nvml: Any, index: int, handle: Any) -> Counter:
    watts: Callable[[], float] | None = partial(_thousandth, nvml.nvmlDeviceGetPowerUsage, handle)
    if nvidia.asked(nvml, handle, nvml.nvmlDeviceGetPowerUsage) is None:
        watts = None
    joules = partial(_thousandth, nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    return Counter(f"GPU {index} (NVML)", "gpu", joules, watts)


def _thousandth(getter: Callable[[Any], int], handle: Any) -> float:
    return getter(handle) / 1e3  # mJ and mW


def _visible(handles: list[Any]) -> list[tuple[int, Any]]:
    """The cards that CUDA_VISIBLE_DEVICES leaves by number; all where it names none."""
    every = list(enumerate(handles))
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    numbers = {int(name) for name in named if name.strip().isdecimal()}
    return [(index, handle) for index, handle in every if index in numbers] or every


def _no_counter(index: int) -> MissingRail:
    reason = f"card {index} has no energy counter; NVIDIA's have one from Volta on"
    return MissingRail("gpu", reason, "measure on a newer card, or on bare metal")


def _without(*, installed: bool) -> Meter:
    if installed:
        return Meter(missing=(MissingRail("gpu", "no NVIDIA driver answers"),))
    reason, remedy = "NVML's binding is not installed", "pip install 'pytest-asperf[energy]'"
    return Meter(missing=(MissingRail("gpu", reason, remedy),))
