"""The identity of this machine: a short name that no two machines share and nobody can trace."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_asperf.hardware import probe

if TYPE_CHECKING:
    from pytest_asperf.hardware.machine import Machine

#: Names this machine in its stead: for hosted runners, where each run has a machine of its own.
NAMED: Final = "ASPERF_MACHINE"
_IOREG: Final = ("/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice")
_PLATFORM_UUID: Final = re.compile(r'"IOPlatformUUID"\s*=\s*"([0-9A-Fa-f-]{36})"')


def machine_id(machine: Machine) -> str:
    """Twelve digits for the hardware that speed depends on, and for this copy of it.

    The operating system's own identifier goes in by its hash only, as its documents ask.
    """
    facts = {
        "os": machine.os,
        "arch": machine.arch,
        "cpu": machine.cpu_brand,
        "cores": machine.physical_cores,
        "usable": machine.usable_cores,
        "memory_gib": machine.memory_bytes and round(machine.memory_bytes / 2**30),
        "gpus": [(gpu.name, gpu.cores, gpu.memory_bytes) for gpu in machine.gpus],
        "copy": os.environ.get(NAMED) or _own_id(machine.os) or platform.node(),
    }
    text = f"pytest-asperf {json.dumps(facts, sort_keys=True)}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _own_id(system: str) -> str | None:
    """The operating system's identifier of this machine; None if it has none."""
    if system == "macOS":
        return parse_platform_uuid(probe.run(_IOREG) or "")
    return parse_machine_id(probe.read(Path("/etc/machine-id")) or "")


def parse_machine_id(text: str) -> str | None:
    """Linux's identifier; images have a word in its place until their first start."""
    return text if re.fullmatch(r"[0-9a-f]{32}", text) else None


def parse_platform_uuid(ioreg: str) -> str | None:
    """The UUID of a Mac in the I/O registry's text."""
    match = _PLATFORM_UUID.search(ioreg)
    return match[1] if match else None
