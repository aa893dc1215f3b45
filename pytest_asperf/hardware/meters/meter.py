"""The meter: counters of energy, and the rails that it cannot measure, with the reason.

A counter is published now and then: NVML's every 100 ms, some of Apple's in batches two seconds
apart. A difference of two samples misses or adds up to a publication at each end. So a counter is
polled until it changes, and a window begins and ends at such a change.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final, Literal, Self

from pytest_asperf.errors import HardwareError

Rail = Literal["cpu", "gpu", "ane", "dram", "package"]

#: In the order in which they are shown.
RAILS: Final[tuple[Rail, ...]] = ("package", "cpu", "gpu", "ane", "dram")


@dataclass(frozen=True, slots=True)
class Counter:
    """One energy counter. It counts up from an arbitrary zero."""

    name: str  #: for a reader, such as ``GPU 0 (NVML)``
    rail: Rail  #: the rail that contains it
    read_j: Callable[[], float]  #: the energy in J, as last published by the hardware
    #: the power in W from another source, as a check; None if there is none
    read_w: Callable[[], float] | None = None
    wraps_at_j: float | None = None  #: where it begins again at 0; None if it does not


@dataclass(frozen=True, slots=True)
class MissingRail:
    """A rail without a figure: the reason and the remedy; without a remedy there is none."""

    rail: Rail
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.rail}: {self.reason}{f' ({self.remedy})' if self.remedy else ''}"


@dataclass(frozen=True, slots=True)
class Meter:
    """The counters of one source."""

    counters: tuple[Counter, ...] = ()
    missing: tuple[MissingRail, ...] = ()  #: rails that this source has on other machines
    close: Callable[[], None] = field(default=lambda: None)  #: frees the counters' resources


def joined(meters: Sequence[Meter]) -> Meter:
    """All meters as one. A package contains its cores, so its counter replaces theirs."""
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


#: Updates that a window covers at least, and its least length.
LEAST_UPDATES: Final = 5
LEAST_WINDOW_S: Final = 1.0
#: Updates at the beginning of a phase whose energy is in part from before it.
_SETTLING: Final = 1
#: A counter without an update for this time, under load, is dead. Apple's slowest are published
#: every 2.2 s.
_PATIENCE_S: Final = 6.0
#: No phase is longer for the sake of a counter that moves now and then, as an idle part's may.
_LONGEST_S: Final = 30.0
#: After an update the next one is looked for when this share of the usual time has passed.
_NEXT_SHARE: Final = 0.6
#: Counters that are published more often than this need not be read as often.
_SHORTEST_S: Final = 0.01
_STEP_S: Final = 0.0005
#: Share of a period: finer polling shows the moment of an update no better than its jitter.
_STEP_SHARE: Final = 0.01
#: Power that is averaged by the driver is of this phase alone after so long.
_AVERAGED_S: Final = 1.1


@dataclass(frozen=True, slots=True)
class Update:
    """A counter at the moment of a change, with the power then, None if it was not read."""

    at_s: float
    joules: float
    watts: float | None = None


@dataclass(frozen=True, slots=True)
class CounterWindow:
    """The energy between two updates of a counter."""

    name: str
    rail: Rail
    seconds: float
    joules: float
    n_updates: int  #: that it covers
    power_w: float | None = None  #: mean of the power that another source gave, if there is one
    restarted: bool = False  #: True if the counter fell, so that the energy is unknown

    @property
    def watts(self) -> float:
        """Mean power over the window."""
        return self.joules / self.seconds

    @property
    def period_s(self) -> float:
        """Mean time between updates."""
        return self.seconds / self.n_updates


@dataclass(slots=True)
class CounterTrace:
    """Polls one counter; call `poll` again and again."""

    counter: Counter
    period_s: float | None = None  #: usual time between updates, if it is known
    updates: list[Update] = field(default_factory=list)  #: seen so far
    _last_j: float | None = None
    _due_s: float = 0.0

    @property
    def due_s(self) -> float:
        """When to poll next."""
        return self._due_s

    def poll(self, clock: Callable[[], float]) -> None:
        """Read the counter if an update may have come."""
        began_s = clock()
        if began_s < self._due_s:
            return
        joules = self.counter.read_j()
        at_s = (began_s + clock()) / 2
        if self._last_j is not None and joules != self._last_j:
            watts = self.counter.read_w() if self.counter.read_w else None
            self.updates.append(Update(at_s, joules, watts))
            self._note_period()
            self._due_s = at_s + max(_SHORTEST_S, _NEXT_SHARE * (self.period_s or 0.0))
        else:
            self._due_s = at_s + max(_STEP_S, _STEP_SHARE * (self.period_s or 0.0))
        self._last_j = joules

    def _note_period(self) -> None:
        recent = [update.at_s for update in self.updates[-6:]]
        if len(recent) > 2:
            self.period_s = median(b - a for a, b in pairwise(recent))

    def within(self, begin_s: float, end_s: float) -> list[Update]:
        """The updates of a phase, without those at its beginning."""
        return [u for u in self.updates if begin_s <= u.at_s <= end_s][_SETTLING:]

    def is_long_enough(self, begin_s: float) -> bool:
        """True if the updates of a phase that still runs suffice for a window."""
        seen = self.within(begin_s, float("inf"))
        return len(seen) > LEAST_UPDATES and seen[-1].at_s - seen[0].at_s >= LEAST_WINDOW_S

    def window(self, begin_s: float, end_s: float) -> CounterWindow | None:
        """The window of a phase; None if the counter did not move."""
        seen = self.within(begin_s, end_s)
        if len(seen) < 2:
            return None
        steps = [b.joules - a.joules for a, b in pairwise(seen)]
        wraps_at_j = self.counter.wraps_at_j
        if wraps_at_j is not None:
            steps = [step + wraps_at_j if step < 0 else step for step in steps]
        powers = [u.watts for u in seen if u.watts is not None and u.at_s >= begin_s + _AVERAGED_S]
        return CounterWindow(
            self.counter.name,
            self.counter.rail,
            seen[-1].at_s - seen[0].at_s,
            sum(steps),
            len(steps),
            sum(powers) / len(powers) if powers else None,
            restarted=min(steps) < 0,
        )


class Recorder:
    """Records the updates of counters in a thread of its own, one phase after the other.

    The found cadence of counters, and the dead counters, are used for later phases.
    """

    def __init__(self, counters: Sequence[Counter]) -> None:
        self._counters = tuple(counters)
        self._periods: dict[str, float | None] = {}
        self._still: set[str] = set()
        self._traces: list[CounterTrace] = []

    def __enter__(self) -> Self:
        self._traces = [CounterTrace(c, self._periods.get(c.name)) for c in self._counters]
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._began_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for trace in self._traces:
            self._periods[trace.counter.name] = trace.period_s
            if trace.updates:
                self._still.discard(trace.counter.name)
            elif time.monotonic() - self._began_s >= _PATIENCE_S:
                self._still.add(trace.counter.name)

    @property
    def is_long_enough(self) -> bool:
        """True if every counter has a window, except those that are dead or too rare.

        Raises:
            Exception: a counter could not be read.
        """
        if self._error is not None:
            raise self._error
        elapsed_s = time.monotonic() - self._began_s
        waits = elapsed_s < _PATIENCE_S
        return elapsed_s > _LONGEST_S or all(
            trace.is_long_enough(self._began_s)
            or (not trace.updates and (not waits or trace.counter.name in self._still))
            for trace in self._traces
        )

    def windows(self, end_s: float) -> tuple[CounterWindow, ...]:
        """The windows of the phase that ended then."""
        found = (trace.window(self._began_s, end_s) for trace in self._traces)
        return tuple(window for window in found if window)

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                for trace in self._traces:
                    trace.poll(time.monotonic)
                pause_s = min(trace.due_s for trace in self._traces) - time.monotonic()
                time.sleep(max(0.0, min(pause_s, _SHORTEST_S)))
        except Exception as error:  # noqa: BLE001  # raised where the phase is measured
            self._error = error
