"""The meters of this machine."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from pytest_asperf.errors import HardwareError
from pytest_asperf.hardware import probe
from pytest_asperf.hardware.conditions import Condition
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
