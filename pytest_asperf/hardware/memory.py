"""The memory that a model's weights and KV cache have to lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.analysis.capacity import MemoryCapacity

if TYPE_CHECKING:
    from pytest_asperf.hardware.in_force import Hardware


def memory_of(
    hardware: Hardware, memory_gb: int | None = None, *, option: str = ""
) -> MemoryCapacity | None:
    """The memory of the hardware selected, None where its size cannot be read.

    A profile that is not this machine has `memory_gb`, in GB as on the box, or the most that it is
    sold with; `option` is what gives `memory_gb`, if anything does.
    """
    profile, machine = hardware.declared, hardware.machine
    if profile is not None and (memory_gb or not hardware.is_this_machine):
        kind = "shared by CPU and GPU" if hardware.shares_memory else "the card's own"
        another = f"; {option}=GB for another" if option else ""
        basis = option if memory_gb else f"the most it is sold with{another}"
        sold_gb = memory_gb or profile.max_memory_gb
        # What is sold as a GB of memory is 2^30 bytes.
        return MemoryCapacity(sold_gb << 30, hardware.shares_memory, f"{kind}, {basis}")
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
    return MemoryCapacity(min(known), is_shared=True, basis=f"this machine's, detected{limited}")
