"""The energy of one phase: a workload is run repeatedly while counters are sampled.

A phase has one kind of work. J per token is the power between two updates of a counter, times the
duration of the phase, over its tokens: the tokens of the window are counted in proportion.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.engine_process import ContextFacts, RawRun
from pytest_asperf.hardware.meters.choose import open_meters
from pytest_asperf.hardware.meters.meter import (
    LEAST_UPDATES,
    RAILS,
    Counter,
    CounterWindow,
    Meter,
    MissingRail,
    Rail,
    Recorder,
)
from pytest_asperf.measure.validity import require_valid

_IDLE_STEP_S: Final = 0.02
#: Before the machine's idle power is read: power falls for about a second after work.
_QUIET_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class PhaseEnergy:
    """The counters while one kind of work was done."""

    windows: tuple[CounterWindow, ...]  #: of the counters that moved often enough
    short: tuple[CounterWindow, ...]  #: of those that moved more rarely
    still: tuple[Counter, ...]  #: the counters that did not move
    missing: tuple[MissingRail, ...]  #: rails that nothing here measures
    wall_s: float  #: time of the phase
    busy_s: float  #: of it, time that the engine counted as work
    n_tokens: int = 0  #: tokens of all runs; 0 of an idle machine

    @property
    def rails(self) -> tuple[Rail, ...]:
        """The rails that have a figure."""
        return tuple(rail for rail in RAILS if any(w.rail == rail for w in self.windows))

    @property
    def unmeasured(self) -> tuple[MissingRail, ...]:
        """The rails without a figure, each with the reason."""
        idle = (MissingRail(c.rail, f"{c.name} did not move: idle, or dead") for c in self.still)
        rare = (MissingRail(w.rail, f"{w.name} moved {w.n_updates} times") for w in self.short)
        return tuple(m for m in (*self.missing, *idle, *rare) if m.rail not in self.rails)

    def watts(self, rail: Rail | None = None) -> float:
        """Mean power of a rail, or of all that were measured."""
        return sum(w.watts for w in self.windows if rail in {None, w.rail})

    def joules_per_token(self, rail: Rail | None = None, *, idle_w: float = 0.0) -> float:
        """Energy of a token, less an idle power."""
        return (self.watts(rail) - idle_w) * self.wall_s / self.n_tokens

    def guard_findings(self, *, on_gpu: bool) -> tuple[GuardFinding, ...]:
        """The faults of this phase by itself."""
        needed = {"package", "cpu", *(["gpu"] if on_gpu else [])} - set(self.rails)
        found = [
            *(guards.dead_counter(c.name) for c in self.still if c.rail in needed),
            *(guards.restarted_counter(w.name) for w in self.windows if w.restarted),
            *(
                guards.short_window(w.name, w.n_updates, LEAST_UPDATES)
                for w in self.short
                if w.rail in needed
            ),
            guards.idle_gaps(self.busy_s, self.wall_s),
            guards.idle_rails(self.rails, on_gpu=on_gpu),
        ]
        return tuple(finding for finding in found if finding)


@dataclass(frozen=True, slots=True)
class MeteredRun:
    """Runs of one workload back to back, with their energy."""

    phase: PhaseEnergy
    context: ContextFacts

    @property
    def n_tokens(self) -> int:
        """Tokens of all runs."""
        return self.phase.n_tokens

    @property
    def elapsed_ns(self) -> int:
        """Time of all runs."""
        return round(self.phase.wall_s * 1e9)

    @property
    def energy_nj(self) -> int:
        """Energy of all runs."""
        return round(self.phase.joules_per_token() * self.n_tokens * 1e9)


class EnergyMeter:
    """Measures the energy of phases, one at a time."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._recorder = Recorder(meter.counters)

    @classmethod
    def here(cls) -> EnergyMeter:
        """The counters of this machine; HardwareError if there is none."""
        return cls(open_meters())

    def idle(self) -> PhaseEnergy:
        """The energy of this machine while an engine has its model and does nothing."""
        time.sleep(_QUIET_S)
        with self._recorder as recorder:
            began_s = time.monotonic()
            while not recorder.is_long_enough:
                time.sleep(_IDLE_STEP_S)
            return self._phase(began_s, ())

    def metered(self, what: str, run_once: Callable[[], RawRun], *, on_gpu: bool) -> MeteredRun:
        """Repeat runs until every counter has its window; a message names them `what`.

        Raises:
            MeasurementError: a counter is dead or was reset, or the phase contains other work.
        """
        runs: list[RawRun] = []
        with self._recorder as recorder:
            began_s = time.monotonic()
            while not runs or not recorder.is_long_enough:
                runs.append(run_once())
            phase = self._phase(began_s, runs)
        require_valid(what, phase.guard_findings(on_gpu=on_gpu))
        return MeteredRun(phase, runs[-1].context)

    def close(self) -> None:
        """Free the counters' resources."""
        self._meter.close()

    def _phase(self, began_s: float, runs: Sequence[RawRun]) -> PhaseEnergy:
        ended_s = time.monotonic()
        windows = self._recorder.windows(ended_s)
        moved = {window.name for window in windows}
        return PhaseEnergy(
            tuple(window for window in windows if window.n_updates >= LEAST_UPDATES),
            tuple(window for window in windows if window.n_updates < LEAST_UPDATES),
            tuple(c for c in self._meter.counters if c.name not in moved),
            self._meter.missing,
            ended_s - began_s,
            sum(run.elapsed_ns for run in runs) / 1e9,
            sum(run.n_tokens for run in runs),
        )
