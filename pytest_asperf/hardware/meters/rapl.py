"""Energy of processors on Linux by RAPL, as the kernel's powercap folders show it."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Final

from pytest_asperf.errors import HardwareError
from pytest_asperf.hardware import probe
from pytest_asperf.hardware.meters.meter import Counter, Meter, MissingRail, Rail

_ROOT: Final = Path("/")
_POWERCAP: Final = "sys/class/powercap"
#: The platform's domain contains the package's, and what it contains besides differs by machine.
_RAILS: Final[dict[str, Rail]] = {"package": "package", "core": "cpu", "dram": "dram"}


def rapl_meter(root: Path = _ROOT) -> Meter:
    """The counters of every domain that this process may read; else why it may not."""
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
            missing.append(MissingRail(rail, f"the kernel lets only root read {name}", remedy))
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
            remedy="give the permission again, and repeat the test",
        )
    return microjoules / 1e6
