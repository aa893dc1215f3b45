"""The machine during a measurement: a thread samples it, and guards judge the samples."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol, Self

from pytest_asperf.analysis.facts import MachineSeen, MomentSeen
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.guards.surroundings import host_busy, throttled
from pytest_asperf.hardware import probe
from pytest_asperf.hardware.linux import read_throttle_events
from pytest_asperf.hardware.macos import read_thermal_pressure
from pytest_asperf.hardware.nvidia import CardWatch
from pytest_asperf.hardware.probe import CpuTimes, other_cores, read_cpu_times, stolen_cores

_PERIOD_S: Final = 1.0
#: A longer watch keeps every second sample, and then samples half as often.
_MOST_SAMPLES: Final = 120
#: Processor times are counted in steps of 10 ms for each core: over less than this, shares are
#: unknown.
_SHORTEST_S: Final = 1.0
_POLICIES: Final = Path("/sys/devices/system/cpu/cpufreq")


@dataclass(frozen=True, slots=True)
class MachineSample:
    """The machine at one moment: what it reports, and processor times, whose differences count."""

    cpu: CpuTimes
    seen: MomentSeen
    #: True if macOS reports a thermal pressure of 0, which is nominal or unset: see `macos`
    is_not_hot: bool = False


@dataclass(frozen=True, slots=True)
class Watched:
    """The state of the machine while something was measured."""

    samples: tuple[MachineSample, ...] = ()
    n_cores: int | None = None

    @property
    def other_cores(self) -> float | None:
        """Cores used by other processes and other guests on average; None if unknown."""
        if len(self.samples) < 2:
            return None
        first, last = self.samples[0].cpu, self.samples[-1].cpu
        others, stolen = other_cores(first, last), stolen_cores(first, last)
        if last.at_s - first.at_s < _SHORTEST_S or others is None or stolen is None:
            return None
        return others + stolen

    @property
    def knows(self) -> frozenset[str]:
        """The conditions of `readiness` that were watched all along."""
        known = {"load"} if self.other_cores is not None else set()
        levels = any(
            s.seen.thermal_level is not None or s.seen.throttle_events is not None
            for s in self.samples
        )
        return frozenset(known | ({"thermal level"} if levels else set()))

    @property
    def lost_share(self) -> float:
        """The largest share of the run's time that a busy host can have cost it.

        Threads of an engine wait for the slowest, so one busy core can stop all of them.
        """
        return min(0.95, self.other_cores or 0.0)

    @property
    def guard_findings(self) -> tuple[GuardFinding, ...]:
        """The findings of the guards `throttled` and `host-busy`."""
        pressures = (0 if s.is_not_hot else s.seen.thermal_level for s in self.samples)
        levels = [level for level in pressures if level is not None]
        found = [throttled(levels, held_down=self._held_down())]
        if self.other_cores is not None:
            found.append(host_busy(self.other_cores, self.n_cores))
        return tuple(finding for finding in found if finding)

    @property
    def remarks_on_pairs(self) -> tuple[str, ...]:
        """The load in words: both variants of a pair share it, so it voids nothing."""
        return tuple(f"{f.guard}: {f.found}; both variants share it" for f in self.guard_findings)

    def _held_down(self) -> dict[str, float]:
        """The reasons for a throttled clock, each with its share of the samples."""
        counts = [n for s in self.samples if (n := s.seen.throttle_events) is not None]
        seen: dict[str, int] = {}
        if len(counts) > 1:
            rises = sum(b > a for a, b in pairwise(counts))
            seen["processor throttled"] = rises
        for sample in self.samples:
            for reason in {reason for card in sample.seen.cards for reason in card.cooling}:
                seen[reason] = seen.get(reason, 0) + 1
        return {reason: n / len(self.samples) for reason, n in seen.items()}

    def facts(self) -> MachineSeen:
        """Plain facts for a report; the number of samples is bounded."""
        return MachineSeen(self.other_cores, tuple(self._moments()))

    def _moments(self) -> Iterator[MomentSeen]:
        """Each sample that has one before it, with other programs' use in between."""
        for before, after in pairwise(self.samples):
            yield replace(
                after.seen,
                other_cores=other_cores(before.cpu, after.cpu),
                stolen_cores=stolen_cores(before.cpu, after.cpu),
            )


NOT_WATCHED: Final = Watched()


class MachineWatch:
    """Samples the machine in a thread of its own; a context manager."""

    def __init__(
        self, open_sampler: Callable[[], Sampler] | None = None, *, period_s: float = _PERIOD_S
    ) -> None:
        self._open_sampler = open_sampler or MachineSampler
        self._period_s = period_s
        self._samples: list[MachineSample] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @cached_property
    def _sampler(self) -> Sampler:
        """Opened by the first sample: an unused watch costs nothing."""
        return self._open_sampler()

    def __enter__(self) -> Self:
        self._take()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._sampler.close()

    def seen(self) -> Watched:
        """The samples so far, up to now."""
        self._take()
        return Watched(tuple(self._samples), os.cpu_count())

    def _run(self) -> None:
        while not self._ended.wait(self._period_s):
            self._take()

    def _take(self) -> None:
        with self._lock:
            if len(self._samples) >= _MOST_SAMPLES:
                del self._samples[1::2]
                self._period_s *= 2
            self._samples.append(self._sampler.sample())


class Sampler(Protocol):
    """Samples a machine."""

    def sample(self) -> MachineSample:
        """The machine now."""

    def close(self) -> None:
        """Free the samplers' resources."""


class MachineSampler:
    """Samples this machine: 1 to 2 ms each, on a Mac 15 ms."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._system = platform.system()
        self._cards = CardWatch()

    def sample(self) -> MachineSample:
        """This machine now."""
        import psutil  # noqa: PLC0415 -- heavy, and needed only where something is measured

        pressure = read_thermal_pressure() if self._system == "Darwin" else None
        battery = getattr(psutil, "sensors_battery", lambda: None)()
        seen = MomentSeen(
            at_s=round(time.monotonic() - self._began_s, 3),
            clock_mhz=_clock_mhz(),
            thermal_level=pressure or None,
            throttle_events=read_throttle_events() if self._system == "Linux" else None,
            swap_bytes=psutil.swap_memory().used,
            on_battery=None if battery is None else not battery.power_plugged,
            cards=self._cards.read(),
        )
        return MachineSample(read_cpu_times(), seen, is_not_hot=pressure == 0)

    def close(self) -> None:
        """Leave the driver of the cards alone."""
        self._cards.close()


def _clock_mhz() -> float | None:
    files = _POLICIES.glob("policy[0-9]*/scaling_cur_freq")
    clocks_khz = [khz for file in files if (khz := probe.whole_number(probe.read(file)))]
    return sum(clocks_khz) / len(clocks_khz) / 1e3 if clocks_khz else None
