"""The meters of this machine."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from pytest_asperf.hardware import probe
from pytest_asperf.hardware.meters.apple import apple_meter
from pytest_asperf.hardware.meters.meter import joined
from pytest_asperf.hardware.meters.nvml import nvml_meter
from pytest_asperf.hardware.meters.powermetrics import powermetrics_meter
from pytest_asperf.hardware.meters.rapl import rapl_meter

if TYPE_CHECKING:
    from pytest_asperf.hardware.meters.meter import Meter


def open_meters() -> Meter:
    """Every counter that can be read here, as one meter.

    Raises:
        HardwareError: there is none; it says why for each source, and what to do.
    """
    if platform.system() == "Darwin":
        return joined(_on_a_mac())
    return joined([nvml_meter(), rapl_meter()])


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
