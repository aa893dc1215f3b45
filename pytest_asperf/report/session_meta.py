"""When, where and how a session was run."""

from __future__ import annotations

import datetime as dt
import os
import platform
import shlex
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.config.options import OPTIONS
from pytest_asperf.errors import without_passwords
from pytest_asperf.hardware.identity import NAMED, machine_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    from pytest_asperf.hardware.in_force import Hardware

#: What is left out of the command that repeats a test.
_NOT_REPEATED: Final = (
    *("--asperf-report", "--asperf-seed", "--asperf-store"),
    *("--asperf-store-keep", "--asperf-machine-timeout"),
)


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
            "seed": self.seed,
            **this_machine(self.hardware).facts(),
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


@dataclass(frozen=True, slots=True)
class MeasuringMachine:
    """What a report says of a machine that measured.

    Attributes:
        name: what its owner calls it.
        host: its name on the network.
        python: the version that ran the tests.
        headline: what was measured with.
        machine: its hardware and system; without `id` where it never said what it is.
    """

    name: str
    host: str
    python: str
    headline: Sequence[str]
    machine: Mapping[str, Any]

    @classmethod
    def unknown(cls, name: str) -> Self:
        """One that told nothing of itself."""
        return cls(name, "", "", [], {"hardware": "", "os": "", "arch": ""})

    @property
    def id(self) -> str:
        """Its fingerprint; empty where it is not known."""
        return str(self.machine.get("id", ""))

    def facts(self) -> dict[str, object]:
        """Its part of a report's `meta`."""
        return {"host": self.host, "python": self.python, "machine": self.machine}


def this_machine(hardware: Hardware, headline: Sequence[str] = ()) -> MeasuringMachine:
    """The machine of this process."""
    host, named = platform.node(), os.environ.get(NAMED)
    facts = _machine(hardware)
    return MeasuringMachine(named or host, host, platform.python_version(), headline, facts)


def _machine(hardware: Hardware) -> dict[str, Any]:
    machine, profile = hardware.machine, hardware.profile
    return {
        "id": machine_id(machine),
        "hardware": hardware.name,
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
