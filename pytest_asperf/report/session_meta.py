"""When, where and how a session was run."""

from __future__ import annotations

import datetime as dt
import platform
import shlex
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.config.options import OPTIONS
from pytest_asperf.errors import without_passwords
from pytest_asperf.hardware.identity import machine_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.hardware.in_force import Hardware

#: What is left out of the command that repeats a test.
_NOT_REPEATED: Final = ("--asperf-report", "--asperf-seed", "--asperf-store")


@dataclass(frozen=True, slots=True)
class SessionMeta:
    """The facts of a session.

    Attributes:
        version: of pytest-asperf.
        args: of the command line.
        began: seconds since the epoch.
        duration_s: seconds until the report was written.
        seed: of every random order; None where xdist's workers drew one each.
        hardware: what figures are compared with.
        program: what the command line begins with.
    """

    version: str
    args: tuple[str, ...]
    began: float
    duration_s: float
    seed: int | None
    hardware: Hardware
    program: tuple[str, ...] = ("pytest",)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with this machine."""
        return {
            "version": self.version,
            "command": shlex.join([*self.program, *map(without_passwords, self.args)]),
            "options": list(self._options()),
            "time": dt.datetime.fromtimestamp(self.began, dt.UTC).isoformat(timespec="seconds"),
            "duration_s": round(self.duration_s, 3),
            "host": platform.node(),
            "python": platform.python_version(),
            "seed": self.seed,
            "machine": self._machine(),
        }

    def _options(self) -> Iterator[str]:
        """What repeats a measurement: our options, each in one word, or a gate's; and the seed."""
        is_pytest = self.program == ("pytest",)
        if not is_pytest:
            yield from map(without_passwords, self.args)
        for word, following in pairwise((*self.args, "")):
            option, _, value = word.partition("=")
            if is_pytest and option in OPTIONS and option not in _NOT_REPEATED:
                yield word if value else f"{word}={following}"
        if self.seed is not None:
            yield f"{'--asperf-seed' if is_pytest else '--seed'}={self.seed}"

    def _machine(self) -> dict[str, Any]:
        machine, profile = self.hardware.machine, self.hardware.profile
        return {
            "id": machine_id(machine),
            "hardware": self.hardware.name,
            "profile": profile.id if profile else None,
            "os": machine.os,
            "os_version": platform.mac_ver()[0] or platform.release(),
            "arch": machine.arch,
            "cpu": machine.cpu_brand,
            "physical_cores": machine.physical_cores,
            "logical_cores": machine.logical_cores,
            "usable_cores": machine.usable_cores,
            "memory_bytes": machine.memory_bytes,
            "virtualised": machine.virtualised,
            "gpus": [asdict(gpu) for gpu in machine.gpus],
        }
