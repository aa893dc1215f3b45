"""Judges disturbances of a measurement: pure functions from samples to conditions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_asperf.analysis.guards.surroundings import other_cores_allowed
from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.hardware.nvidia import CardReading

State = Literal["ok", "disturbing", "unknown"]

_SWAP_SHARE = 0.05
_LITTLE_MEMORY_SHARE = 0.1
_STALL_PERCENT = 1.0
GPU_BUSY_PERCENT = 10


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that decides whether a measurement made now would be worth anything.

    `unknown` could not be read, which differs from `ok`.
    """

    name: str
    state: State
    detail: str
    remedy: str = ""


def judge_load(busy_cores: float | None, load: float | None, cores: int | None) -> Condition:
    """Judge other processes' use of the machine's logical cores.

    The one-minute load average counts this process too and lags behind, so it decides only where
    `busy_cores`, those that others kept busy just now, is unknown.
    """
    allowed = other_cores_allowed(cores)
    average = "" if load is None else f"load average {load:.2f} on {cores or '?'} cores"
    if busy_cores is not None:
        state: State = "ok" if busy_cores <= allowed else "disturbing"
        detail = f"other processes keep {busy_cores:.1f} cores busy"
        detail += f"; {average}" if average else ""
    elif load is not None:
        state, detail = ("ok" if load <= 1 + allowed else "disturbing"), average
    else:
        return Condition("load", "unknown", "neither processor times nor load can be read")
    remedy = "stop other work, or wait until it is done; root can give engines priority over it"
    return Condition("load", state, detail, remedy if state == "disturbing" else "")


def judge_swap(used_bytes: int | None, memory_bytes: int | None) -> Condition:
    """Judge how much was moved out of memory: weights that were must be read back from disk."""
    if used_bytes is None or memory_bytes is None:
        return Condition("swap", "unknown", "swap usage cannot be read")
    detail = f"{memory_text(used_bytes)} in use"
    if used_bytes <= _SWAP_SHARE * memory_bytes:
        return Condition("swap", "ok", detail)
    return Condition("swap", "disturbing", detail, "close large programs, then restart if it stays")


def judge_memory(stall_percent: float | None, available_share: float | None) -> Condition:
    """Judge Linux memory pressure.

    Args:
        stall_percent: share of the last 10 s in which a task waited for memory (PSI, some).
        available_share: memory available without swapping, of all.
    """
    name = "memory pressure"
    if stall_percent is None and available_share is None:
        return Condition(name, "unknown", "neither pressure nor available memory can be read")
    seen = []
    if available_share is not None:
        seen.append(f"{available_share:.0%} of memory available")
    if stall_percent is not None:
        seen.append(f"tasks stalled {stall_percent:.1f} % of the last 10 s")
    short = available_share is not None and available_share < _LITTLE_MEMORY_SHARE
    if short or (stall_percent or 0.0) > _STALL_PERCENT:
        return Condition(name, "disturbing", "; ".join(seen), "close large programs")
    return Condition(name, "ok", "; ".join(seen))


def judge_virtualisation(
    *, virtualised: bool | None, stolen_cores: float | None = None
) -> Condition:
    """Judge whether unseen neighbours share the hardware, as guests of a hypervisor do."""
    name = "virtualisation"
    if virtualised is None:
        return Condition(name, "unknown", "cannot be detected")
    if not virtualised:
        return Condition(name, "ok", "none found")
    detail = "guest of a hypervisor"
    if stolen_cores is not None:
        detail += f"; {stolen_cores:.2f} cores used by others just now"
    remedy = "trust comparisons made in pairs here; measure absolute figures on bare metal"
    return Condition(name, "disturbing", detail, remedy)


def judge_cards(cards: Sequence[CardReading]) -> Condition:
    """Judge whether graphics cards are idle and free to run at full clock."""
    name = "gpu"
    if not cards:
        return Condition(name, "ok", "no NVIDIA card visible")
    faults = []
    for number, card in enumerate(cards):
        if card.slowdowns:
            faults.append(f"{number}: {card.name}: {', '.join(card.slowdowns)}")
        if (card.busy_percent or 0) > GPU_BUSY_PERCENT:
            faults.append(f"{number}: {card.name}: {card.busy_percent} % busy")
    if faults:
        remedy = "end other GPU work, wait until the card has cooled, check its power limit"
        return Condition(name, "disturbing", "; ".join(faults), remedy)
    if any(card.clock_reasons is None or card.busy_percent is None for card in cards):
        return Condition(name, "unknown", "the driver does not report clock limits or utilisation")
    return Condition(name, "ok", f"{len(cards)} idle, no clock limit active")
