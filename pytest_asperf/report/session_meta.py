"""When, where and how a session was run."""

import datetime as dt
import os
import platform
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

from pytest_asperf.config.settings import OPTIONS, flag, session_option
from pytest_asperf.errors import without_passwords
from pytest_asperf.hardware.in_force import Hardware
from pytest_asperf.hardware.records import NAMED, machine_id
from pytest_asperf.records.report import MachineFacts, MachineMeta, Meta

#: Options that are left out of the command that repeats a test.
_NOT_REPEATED: Final = {"report", "seed", "store", "store_keep", "machine_timeout"}


@dataclass(frozen=True, slots=True)
class SessionMeta:
    """The facts of a session."""

    version: str  #: of pytest-asperf
    args: tuple[str, ...]  #: of the command line
    began: float  #: seconds since the epoch
    duration_s: float  #: seconds until the report was written
    seed: int | None  #: of every random order; None if xdist's workers drew one each
    hardware: Hardware  #: the hardware that figures are compared with
    program: tuple[str, ...] = ("pytest",)  #: the beginning of the command line

    def facts(self) -> Meta:
        """The head of a report, with this machine."""
        here = this_machine(self.hardware).meta
        return Meta(
            version=self.version,
            command=shlex.join([*self.program, *map(without_passwords, self.args)]),
            options=tuple(self._options()),
            time=dt.datetime.fromtimestamp(self.began, dt.UTC).isoformat(timespec="seconds"),
            duration_s=round(self.duration_s, 3),
            seed=self.seed,
            host=here.host,
            python=here.python,
            machine=here.machine,
        )

    def _options(self) -> Iterator[str]:
        """The command that repeats a measurement: its options, each in one word, and the seed."""
        is_pytest = self.program == ("pytest",)
        if not is_pytest:
            yield from map(without_passwords, self.args)
        for word, following in pairwise((*self.args, "")):
            option, _, value = word.partition("=")
            if is_pytest and OPTIONS.get(option, "seed") not in _NOT_REPEATED:
                yield word if value else f"{word}={following}"
        if self.seed is not None:
            yield f"{session_option('seed') if is_pytest else flag('seed')}={self.seed}"


@dataclass(frozen=True, slots=True)
class MeasuringMachine:
    """A machine that measured: its owner's name for it, and its facts in a report."""

    name: str
    meta: MachineMeta

    @classmethod
    def unknown(cls, name: str) -> Self:
        """A machine without facts."""
        return cls(name, MachineMeta())

    @property
    def id(self) -> str:
        """Its fingerprint; empty if unknown."""
        return self.meta.machine.id


def this_machine(hardware: Hardware, headline: Sequence[str] = ()) -> MeasuringMachine:
    """The machine of this process."""
    host = platform.node()
    facts = _machine(hardware)
    meta = MachineMeta(
        host=host, python=platform.python_version(), machine=facts, headline=tuple(headline)
    )
    return MeasuringMachine(os.environ.get(NAMED) or host, meta)


def _machine(hardware: Hardware) -> MachineFacts:
    machine, profile = hardware.machine, hardware.profile
    return MachineFacts(
        id=machine_id(machine),
        hardware=hardware.name,
        profile=profile.id if profile else None,
        os=machine.os,
        os_version=platform.mac_ver()[0] or platform.release(),
        arch=machine.arch,
        cpu=machine.cpu_brand,
        physical_cores=machine.physical_cores,
        logical_cores=machine.logical_cores,
        usable_cores=machine.usable_cores,
        memory_bytes=machine.memory_bytes,
        virtualised=machine.virtualised,
        gpus=machine.gpus,
    )
