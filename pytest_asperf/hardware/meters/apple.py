"""Energy on Apple silicon without sudo, by zeus-apple-silicon's reading of IOReport."""

from __future__ import annotations

import importlib
import time
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from packaging.version import Version

from pytest_asperf.hardware.meters.meter import Counter, Meter, MissingRail, Rail

#: Counters by the package's names; the GPU's own memory is part of its rail.
_FIELDS: Final[tuple[tuple[str, Rail], ...]] = (
    ("cpu_total_mj", "cpu"),
    ("gpu_mj", "gpu"),
    ("gpu_sram_mj", "gpu"),
    ("ane_mj", "ane"),
    ("dram_mj", "dram"),
)
#: How old a reading may be: less than updates are told apart by.
_SHARED_S: Final = 0.0005
#: Up to this version the processor energy of two dies is that of the last one.
_LAST_DIE_WINS: Final = Version("1.1.0")


def apple_meter(brand: str) -> Meter:
    """The counters that the chip publishes; the others are missing, with the reason.

    Args:
        brand: the chip's brand string.
    """
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
    """Reads all counters at once, which one reading after the other share."""

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
