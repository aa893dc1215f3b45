"""This machine, detected without privileges, and the hardware that numbers are compared with.

That is declared by name, or this machine.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_asperf.analysis.capacity import MemoryCapacity
from pytest_asperf.hardware import linux, macos
from pytest_asperf.hardware.machine import Bandwidth, Machine, published_bandwidth
from pytest_asperf.hardware.profiles import Match, Profile, find_bins, find_profile, same_brand


def detect() -> Machine:
    """The facts of this machine; unreadable or ambiguous ones are unknown."""
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


@dataclass(frozen=True, slots=True)
class BandwidthBound:
    """The bound of the rate at which a model's weights can be read."""

    gbs: float  #: bandwidth of the memory they are in, decimal GB/s
    kind: str  #: where that figure comes from
    cache_bytes: int = 0  #: last-level cache in front of it; weights that fit in it are not bound
    #: why it may not be the bandwidth of the machine measured on; empty without doubt
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The `hardware` fixture: the hardware whose limits and figures a run uses.

    Attributes:
        machine: this machine.
        declared: the profile that was named, None for `auto`.
    """

    machine: Machine
    declared: Profile | None = None

    @property
    def profile(self) -> Profile | None:
        """The selected profile; None if this machine's chip is unknown."""
        return self.declared or self.machine.profile

    @property
    def is_this_machine(self) -> bool:
        """True if measurements made here are measurements of this hardware."""
        return self.declared is None or self.declared == self.machine.profile

    def is_one_of(self, names: Iterable[str]) -> bool:
        """True if it is one of the named hardware; always True without a name.

        A chip's name means all of its variants. An unknown name raises HardwareError.
        """
        named = [find_bins(name) for name in names]
        machine = replace(self.machine, profile=self.profile)
        return not named or any(_is_any_of(bins, machine) for bins in named)

    @property
    def contradiction(self) -> str:
        """The name of this machine, if it cannot be the declared hardware; empty if it may be."""
        declared, machine = self.declared, self.machine
        if declared is None or declared == machine.profile:
            return ""
        brands = [machine.cpu_brand] if declared.cores_by_level else [g.name for g in machine.gpus]
        names = [name for name in brands if name]
        if not any(same_brand(name, declared.brand_string) for name in names):
            # A guest or a translated process of macOS is shown another name of the chip.
            is_masked = machine.os == "macOS" and (machine.virtualised or machine.translated)
            return "" if is_masked else ", ".join(names)
        return machine.profile.id if machine.profile is not None else ""

    @property
    def measured_on(self) -> Hardware:
        """The machine of live figures: this one, if it cannot be the declared hardware."""
        return Hardware(self.machine) if self.contradiction else self

    @property
    def published_bandwidth(self) -> Bandwidth | None:
        """The advertised memory bandwidth, where one is published for the hardware selected."""
        if self.declared is None:
            return self.machine.bandwidth
        return published_bandwidth(Match((self.declared,)))

    def weights_bandwidth(self, *, on_card: bool) -> Bandwidth | None:
        """The advertised bandwidth, if it is that of the memory the weights are read from."""
        return self.published_bandwidth if self.shares_memory or on_card else None

    @property
    def shares_memory(self) -> bool:
        """True if CPU and GPU read from one memory, as Apple's do."""
        if self.profile is not None:
            return self.profile.vendor == "apple"
        # Rosetta shows programs a "VirtualApple" of another architecture.
        return (self.machine.cpu_brand or "").startswith(("Apple ", "VirtualApple "))

    @property
    def name(self) -> str:
        """Its name for a reader."""
        if self.profile is not None:
            return self.profile.id
        return self.machine.cpu_brand or self.machine.arch

    @property
    def memory_gb(self) -> float | None:
        """Memory in decimal GB: this machine's own, or the most that the profile is sold with."""
        if self.is_this_machine or self.declared is None:
            return self.machine.memory_gb
        return float(self.declared.max_memory_gb)

    @property
    def cpu_cores(self) -> int | None:
        """Physical CPU cores."""
        return self.profile.cpu_cores if self.profile else self.machine.physical_cores

    @property
    def gpu_cores(self) -> int | None:
        """GPU cores, None if unknown."""
        return self.profile.gpu_cores if self.profile else None

    def headline(self, *, brief: bool = False) -> str:
        """One line: the selected hardware, detected or declared."""
        how = "detected" if self.declared is None else "declared"
        name = self.name
        if self.profile is not None:
            name = f"{self.profile.name} ({self.profile.id})"
        if not self.is_this_machine:
            return f"{name}, {how}; this machine is {Hardware(self.machine).name}"
        is_noted = self.profile is None and not brief
        note = f"; {self.machine.profile_note or 'no profile'}" if is_noted else ""
        return f"{name}, {how}{note}"


def in_force(name: str, machine: Machine, *, memory_gb: int | None = None) -> Hardware:
    """The hardware with a name, or `auto`.

    A chip's name means this machine if it has that chip, and otherwise the chip variant that
    `find_profile` chooses.
    """
    if name == "auto":
        return Hardware(machine)
    bins = find_bins(name, memory_gb=memory_gb)
    if _is_any_of(bins, machine):
        shared = published_bandwidth(Match(bins)) if machine.bandwidth is None else None
        if shared is not None:  # a chip whose variant is unknown
            machine = replace(machine, bandwidth=shared)
        return Hardware(machine, machine.profile)
    return Hardware(machine, find_profile(name, memory_gb=memory_gb))


def _is_any_of(bins: Sequence[Profile], machine: Machine) -> bool:
    """True if a machine is one of the chip variants, or an unknown one of their chip."""
    if machine.profile is not None:
        return machine.profile in bins
    is_chip = len(bins) > 1
    return is_chip and same_brand(machine.cpu_brand or "", bins[0].brand_string)


def memory_of(
    hardware: Hardware, memory_gb: int | None = None, *, option: str = ""
) -> MemoryCapacity | None:
    """The memory of the hardware selected, None if its size cannot be read.

    A profile that is not this machine has `memory_gb`, in GB as on the box, or the most that it is
    sold with; `option` is the source of `memory_gb`, if there is one.
    """
    profile, machine = hardware.declared, hardware.machine
    if profile is not None and (memory_gb or not hardware.is_this_machine):
        kind = "shared by CPU and GPU" if hardware.shares_memory else "the card's own"
        another = f"; {option}=GB for another" if option else ""
        basis = option if memory_gb else f"the most it is sold with{another}"
        sold_gb = memory_gb or profile.max_memory_gb
        # A GB of memory in shops is 2^30 bytes.
        shared = hardware.shares_memory
        return MemoryCapacity(sold_gb << 30, shared, f"{kind}, {basis}", has_working_set=shared)
    cards = [gpu.memory_bytes for gpu in machine.gpus if gpu.memory_bytes is not None]
    if cards and not hardware.shares_memory:
        note = f", one of {len(cards)}" if len(cards) > 1 else ""
        return MemoryCapacity(
            cards[0], is_shared=False, basis=f"this machine's card, detected{note}"
        )
    sizes = (machine.memory_bytes, machine.limits.memory_bytes)
    known = [nbytes for nbytes in sizes if nbytes is not None]
    if not known:
        return None
    limited = "; a limit of its container" if min(known) != machine.memory_bytes else ""
    basis = f"this machine's, detected{limited}"
    return MemoryCapacity(
        min(known),
        is_shared=True,
        basis=basis,
        gpu_limit_bytes=machine.gpu_limit_bytes,
        has_working_set=hardware.shares_memory,
    )
