"""The meters of this machine: NVML, RAPL, IOReport (zeus-apple-silicon) and powermetrics.

NVML publishes its total energy counter about every 100 ms. Its power is an average of a second on
the architectures of today, so it is compared with the counter where the load was steady for as
long.
"""

import importlib
import os
import platform
import re
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

from pytest_asperf.errors import HardwareError
from pytest_asperf.hardware import nvidia, probe
from pytest_asperf.hardware.conditions import Condition
from pytest_asperf.hardware.meters.meter import Counter, Meter, MissingRail, Rail, joined
from pytest_asperf.hardware.meters.powermetrics import powermetrics_meter


def open_meters() -> Meter:
    """Every counter that can be read here, as one meter.

    Raises:
        HardwareError: there is none; it has the reason for each source, and the remedy.
    """
    if platform.system() == "Darwin":
        return joined(_on_a_mac())
    return joined([nvml_meter(), rapl_meter()])


def energy_condition() -> Condition:
    """The rails that can be measured here, for a reader; the reason if there are none."""
    try:
        meter = open_meters()
    except HardwareError as error:
        return Condition("energy", "unknown", error.what, error.remedy)
    meter.close()
    counters = ", ".join(counter.name for counter in meter.counters)
    missing = "".join(f"; not measured: {one.rail}: {one.reason}" for one in meter.missing)
    remedy = "; ".join(dict.fromkeys(one.remedy for one in meter.missing if one.remedy))
    return Condition("energy", "ok", f"{counters}{missing}", remedy)


def _on_a_mac() -> list[Meter]:
    """IOReport's counters, and powermetrics for a processor that it cannot count."""
    brand = probe.run(("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string")) or ""
    without_sudo = apple_meter(brand)
    if any(counter.rail == "cpu" for counter in without_sudo.counters):
        return [without_sudo]
    with_sudo = powermetrics_meter()
    if with_sudo.counters:
        without_sudo.close()
        return [with_sudo]
    return [without_sudo, with_sudo]


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


_ROOT: Final = Path("/")
_POWERCAP: Final = "sys/class/powercap"
#: The platform's domain contains the package's; its other content differs by machine.
_RAILS: Final[dict[str, Rail]] = {"package": "package", "core": "cpu", "dram": "dram"}


def rapl_meter(root: Path = _ROOT) -> Meter:
    """The counters of every domain that this process may read; otherwise the reason why not."""
    counters: list[Counter] = []
    missing: list[MissingRail] = []
    # intel-rapl-mmio shows a package a second time. AMD's processors are shown as intel-rapl too.
    for folder in sorted((root / _POWERCAP).glob("intel-rapl:*")):
        name = probe.read(folder / "name") or ""
        rail = _RAILS.get(re.sub(r"-\d+$", "", name))
        if rail is None:
            continue
        if probe.read(folder / "energy_uj") is None:
            remedy = f"sudo chmod a+r /{_POWERCAP}/intel-rapl*/energy_uj, or run as root"
            missing.append(MissingRail(rail, f"only root may read {name}", remedy))
        else:
            wraps_uj = probe.whole_number(probe.read(folder / "max_energy_range_uj"))
            wraps_at_j = None if wraps_uj is None else wraps_uj / 1e6
            read_j = partial(_joules, folder / "energy_uj")
            counters.append(Counter(f"{name} (RAPL)", rail, read_j, wraps_at_j=wraps_at_j))
    if not counters and not missing:
        reason = "the kernel shows no RAPL domain, as in most virtual machines and containers"
        missing.append(MissingRail("package", reason))
    return Meter(tuple(counters), tuple(missing))


def _joules(file: Path) -> float:
    microjoules = probe.whole_number(probe.read(file))
    if microjoules is None:
        raise HardwareError(
            f"{file} can no longer be read",
            why="its energy would be missing from the window",
            remedy="give the permission again, and measure again",
        )
    return microjoules / 1e6


#: Counters by the package's names; the GPU's own memory is part of its rail.
_FIELDS: Final[tuple[tuple[str, Rail], ...]] = (
    ("cpu_total_mj", "cpu"),
    ("gpu_mj", "gpu"),
    ("gpu_sram_mj", "gpu"),
    ("ane_mj", "ane"),
    ("dram_mj", "dram"),
)
#: Maximal age of a sample: less than the time between updates.
_SHARED_S: Final = 0.0005
#: Up to this version the processor energy of two dies is that of the last one.
_LAST_DIE_WINS: Final = Version("1.1.0")


def apple_meter(brand: str) -> Meter:
    """The counters that a brand of chip publishes; the others are missing, with the reason."""
    try:
        package = importlib.import_module("zeus_apple_silicon")
    except ImportError:
        remedy = "pip install 'pytest-asperf[energy]', or run with sudo for powermetrics"
        reason = "zeus-apple-silicon is not installed"
        return Meter(missing=(MissingRail("cpu", reason, remedy), MissingRail("gpu", reason)))
    try:
        monitor = package.AppleEnergyMonitor()
        first = monitor.get_cumulative_energy()
    except RuntimeError as error:
        reason = f"IOReport does not answer: {str(error)[:100]}"
        return Meter(missing=(MissingRail("gpu", reason, "run with sudo for powermetrics"),))
    has_two_dies = "Ultra" in brand
    snapshots = _Snapshots(monitor)
    counters, missing = [], []
    for field, rail in _FIELDS:
        if getattr(first, field, None) is None:
            missing.append(MissingRail(rail, "this chip publishes no counter of it"))
        elif rail == "cpu" and has_two_dies and _installed() <= _LAST_DIE_WINS:
            reason = f"zeus-apple-silicon {_installed()} counts one of this chip's two dies"
            missing.append(MissingRail(rail, reason, "run with sudo for powermetrics"))
        else:
            name = f"{field.removesuffix('_mj').removesuffix('_total').upper()} (IOReport)"
            counters.append(Counter(name, rail, partial(snapshots.joules, field)))
    return Meter(tuple(counters), tuple(missing))


class _Snapshots:
    """Reads all counters at once; meters that are read one after the other share the sample."""

    def __init__(self, monitor: Any) -> None:
        self._monitor = monitor
        self._until_s = 0.0

    def joules(self, field: str) -> float:
        """The energy of one counter."""
        if time.monotonic() > self._until_s:
            self._last = self._monitor.get_cumulative_energy()
            self._until_s = time.monotonic() + _SHARED_S
        return float(getattr(self._last, field)) / 1e3


def _installed() -> Version:
    return Version(version("zeus-apple-silicon"))
