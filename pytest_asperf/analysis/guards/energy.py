"""Energy counters that do not count what they are taken for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.guards.guard import Guard, GuardFinding, figure
from pytest_asperf.errors import printable

if TYPE_CHECKING:
    from collections.abc import Collection

#: Of the phase, what may pass without work of the engine: the power of gaps is not the work's.
MOST_IDLE: Final = 0.25
#: By how much counter and power may differ. NVIDIA's averaged power integrates to the counter
#: within 1 %, also where the load is switched on and off.
COUNTER_TOLERANCE: Final = 0.10
#: Rails without which the energy of a GPU's or a processor's work is not that of the machine.
_OF_A_MACHINE: Final = ("package", "cpu")


def dead_counter(name: str) -> GuardFinding:
    """The finding on a counter that stood still while what it counts was at work."""
    return Guard.DEAD_COUNTER.finding(
        f"{printable(name, 80)} did not move under load",
        "the counter of the device that works rises; one that does not is dead",
    )


def restarted_counter(name: str) -> GuardFinding:
    """The finding on a counter that fell within a window."""
    return Guard.DEAD_COUNTER.finding(
        f"{printable(name, 80)} fell during the measurement: it was reset, or its driver restarted",
        "a counter only rises, except where the hardware documents that it wraps",
    )


def short_window(name: str, n_updates: int, least: int) -> GuardFinding | None:
    """Trip if a window covers too few updates of its counter."""
    if n_updates >= least:
        return None
    return Guard.SHORT_WINDOW.finding(
        f"the window covers {n_updates} updates of {printable(name, 80)}",
        f"at least {least} updates",
    )


def idle_gaps(busy_s: float, wall_s: float) -> GuardFinding | None:
    """Trip if the engine did not work for much of the phase that its energy was read over."""
    idle = 1 - busy_s / wall_s
    if idle <= MOST_IDLE:
        return None
    return Guard.IMPURE_WINDOW.finding(
        f"the engine worked in {figure(busy_s)} of {figure(wall_s)} s",
        f"gaps between runs take at most {MOST_IDLE:.0%} of the phase",
    )


def counter_disagrees(name: str, counter_w: float, power_w: float) -> GuardFinding | None:
    """Trip if a counter and the power that another source gives do not belong together."""
    if abs(counter_w - power_w) <= COUNTER_TOLERANCE * max(counter_w, power_w):
        return None
    return Guard.COUNTER_AGAINST_POWER.finding(
        f"{printable(name, 80)} counts {figure(counter_w)} W, and the power beside it is "
        f"{figure(power_w)} W",
        f"both agree within {COUNTER_TOLERANCE:.0%}",
    )


def idle_rails(rails: Collection[str], *, on_gpu: bool) -> GuardFinding | None:
    """Trip if what did the work is not among the rails, so that the figure is of something idle."""
    worked = ("gpu",) if on_gpu else _OF_A_MACHINE
    if any(rail in rails for rail in worked):
        return None
    return Guard.RAIL_COVERAGE.finding(
        f"the model ran on the {'GPU' if on_gpu else 'processor'}, and what is measured is "
        f"{', '.join(rails) or 'no rail'}",
        "the rail that does the work is measured",
    )


def rail_coverage(rails: Collection[str], *, on_gpu: bool) -> GuardFinding | None:
    """Trip if some rails are taken for the machine: its processor, and its GPU where that works."""
    lacking = [] if any(rail in rails for rail in _OF_A_MACHINE) else ["cpu"]
    lacking += ["gpu"] if on_gpu and "gpu" not in rails else []
    if not lacking:
        return None
    return Guard.RAIL_COVERAGE.finding(
        f"{', '.join(rails) or 'no rail'} measured, and {' and '.join(lacking)} not: this is not "
        "the energy of the machine",
        "the machine's energy includes its processor, and its GPU if the model runs there",
    )
