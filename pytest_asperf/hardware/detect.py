"""Detection of this machine, without privileges, on any operating system."""

from __future__ import annotations

import os
import platform

from pytest_asperf.hardware import linux, macos
from pytest_asperf.hardware.machine import Machine


def detect() -> Machine:
    """The facts of this machine; what cannot be read or is ambiguous is unknown."""
    system = platform.system()
    if system == "Darwin":
        return macos.read_machine()
    if system == "Linux":
        return linux.read_machine()
    return Machine(
        os=system or "unknown",
        arch=platform.machine(),
        cpu_brand=platform.processor() or None,
        logical_cores=os.cpu_count(),
        profile_note=f"detection covers macOS and Linux, not {system or 'this system'}",
    )
