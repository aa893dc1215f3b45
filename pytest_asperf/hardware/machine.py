"""The facts of one machine, as far as they could be read; others are None."""

import datetime as dt
from dataclasses import dataclass
from typing import Literal

from pytest_asperf.hardware.profiles import Match, Profile


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """A memory bandwidth in decimal GB/s, and where the figure comes from."""

    gbs: float
    kind: Literal["advertised", "measured"]
    theoretical_gbs: float | None = None  #: bus width times transfer rate, if both are known
    measured_on: dt.date | None = None  #: the day of the measurement, for a measured one

    @property
    def peak_gbs(self) -> float:
        """The rate beyond which a figure is impossible: vendors round it up or down."""
        return max(self.gbs, self.theoretical_gbs or 0.0)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One graphics processor."""

    name: str
    cores: int | None = None
    memory_bytes: int | None = None  #: its own memory; None if it shares the machine's
    driver: str | None = None
    #: the driver splits it (NVIDIA MIG), so that its published limits do not apply
    partitioned: bool = False


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """The limits of a container or scheduler on this process; None is no limit.

    `cpus` is CPU time per second, `affinity` the number of cores that this process may run on.
    """

    cpus: float | None = None
    memory_bytes: int | None = None
    affinity: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The facts of this machine."""

    os: str
    arch: str  #: as the running interpreter sees it
    cpu_brand: str | None
    #: physical cores by core type, fastest first; empty if all are alike or the types are unknown
    cores_by_level: tuple[tuple[str, int], ...] = ()
    physical_cores: int | None = None
    logical_cores: int | None = None
    memory_bytes: int | None = None
    #: last-level cache of all cores; the memory's bandwidth does not limit a model that fits in it
    cache_bytes: int | None = None
    gpus: tuple[Gpu, ...] = ()
    #: The system's limit of shared memory for a GPU: Metal's recommended working set. None if
    #: unknown.
    gpu_limit_bytes: int | None = None
    limits: ContainerLimits = ContainerLimits()
    virtualised: bool | None = None  #: whether this is a guest of a hypervisor
    translated: bool = False  #: whether the interpreter runs under binary translation (Rosetta)
    profile: Profile | None = None
    profile_note: str = ""  #: why there is no profile; empty when there is one
    #: of the profile's memory: the machine's own for Apple silicon, the card's for a graphics card.
    #: None if it is not published or not certain.
    bandwidth: Bandwidth | None = None

    @property
    def memory_gb(self) -> float | None:
        """Physical memory in decimal GB."""
        return None if self.memory_bytes is None else self.memory_bytes / 1e9

    @property
    def usable_cores(self) -> int | None:
        """Logical cores that this process can keep busy; at least one."""
        caps = (self.logical_cores, self.limits.cpus, self.limits.affinity)
        known = [cap for cap in caps if cap is not None]
        return max(1, int(min(known))) if known else None


def published_bandwidth(match: Match) -> Bandwidth | None:
    """The advertised bandwidth, if all profiles that the match leaves open share it."""
    figures = {(p.bandwidth_gbs, p.bandwidth_theoretical_gbs) for p in match.candidates}
    if len(figures) != 1:
        return None
    gbs, theoretical_gbs = figures.pop()
    return Bandwidth(gbs, "advertised", theoretical_gbs)
