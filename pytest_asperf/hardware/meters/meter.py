"""The meter: counters of energy, and the rails that it cannot measure, with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from pytest_asperf.errors import HardwareError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Rail = Literal["cpu", "gpu", "ane", "dram", "package"]

#: In the order in which they are shown.
RAILS: Final[tuple[Rail, ...]] = ("package", "cpu", "gpu", "ane", "dram")


@dataclass(frozen=True, slots=True)
class Counter:
    """One energy counter. It counts up from an arbitrary zero.

    Attributes:
        name: for a reader, such as ``GPU 0 (NVML)``.
        rail: what it is part of.
        read_j: the energy in J, as last published by the hardware.
        read_w: the power in W from another source, as a check; None where there is none.
        wraps_at_j: where it begins again at 0; None where it does not.
    """

    name: str
    rail: Rail
    read_j: Callable[[], float]
    read_w: Callable[[], float] | None = None
    wraps_at_j: float | None = None


@dataclass(frozen=True, slots=True)
class MissingRail:
    """A rail without a figure: why, and what to do about it; without a remedy there is none."""

    rail: Rail
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.rail}: {self.reason}{f' ({self.remedy})' if self.remedy else ''}"


@dataclass(frozen=True, slots=True)
class Meter:
    """The counters of one source.

    Attributes:
        missing: rails that this source would have elsewhere.
        close: frees what the counters need.
    """

    counters: tuple[Counter, ...] = ()
    missing: tuple[MissingRail, ...] = ()
    close: Callable[[], None] = field(default=lambda: None)


def joined(meters: Sequence[Meter]) -> Meter:
    """All meters as one. A package contains its cores, so its counter takes their place.

    Raises:
        HardwareError: none of them has a counter.
    """
    counters = tuple(counter for meter in meters for counter in meter.counters)
    rails = {counter.rail for counter in counters}
    missing = tuple(m for meter in meters for m in meter.missing if m.rail not in rails)

    def close() -> None:
        for meter in meters:
            meter.close()

    if not counters:
        close()
        raise HardwareError(
            f"no energy counter here: {'; '.join(f'{m.rail}: {m.reason}' for m in missing)}",
            why="J per token are measured, never estimated from a power rating",
            remedy="; ".join(dict.fromkeys(m.remedy for m in missing if m.remedy))
            or "measure on a machine with an NVIDIA card, Apple silicon, or RAPL",
        )
    if "package" in rails:
        counters = tuple(counter for counter in counters if counter.rail != "cpu")
    return Meter(counters, missing, close)
