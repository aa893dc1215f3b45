"""Windows of counters that are replayed in the shapes that real ones have."""

import math
from dataclasses import dataclass, field

import pytest

from pytest_asperf.hardware.meters.meter import LEAST_UPDATES, Counter, CounterTrace

#: The phase that is measured, and the power before, in and after it.
BEGIN_S, WATTS, ELSE_W = 3.0, 400.0, 120.0


@dataclass
class Replay:
    """A counter on a clock of its own, published now and then.

    Attributes:
        period_s: between publications, which jitter by up to a tenth.
        read_s: duration of a sample.
        end_s: of the phase.
        resets_at_s: when the driver restarts; never by default.
        wraps_at_j: where the counter begins again.
    """

    period_s: float
    read_s: float = 0.004
    end_s: float = math.inf
    resets_at_s: float = math.inf
    wraps_at_j: float | None = None
    now_s: float = 0.0
    reads: int = field(default=0)

    def clock(self) -> float:
        """Now."""
        return self.now_s

    def energy_j(self, at_s: float) -> float:
        """The true energy since 0."""
        inside = min(max(at_s - BEGIN_S, 0.0), self.end_s - BEGIN_S)
        return WATTS * inside + ELSE_W * (at_s - inside)

    def read_j(self) -> float:
        """The energy at the last publication, at the middle of the sample."""
        self.now_s += self.read_s / 2
        n = math.floor(self.now_s / self.period_s)
        times_s = (self.period_s * (k + 0.1 * math.sin(12.9898 * k)) for k in (n - 1, n, n + 1))
        published_s = max(at_s for at_s in times_s if at_s <= self.now_s)
        self.now_s += self.read_s / 2
        self.reads += 1
        joules = self.energy_j(max(published_s, 0.0)) + 1000.0
        if self.now_s >= self.resets_at_s:
            joules -= self.energy_j(self.resets_at_s) + 1000.0
        return joules % self.wraps_at_j if self.wraps_at_j else joules

    def trace(self, until_s: float | None = None) -> CounterTrace:
        """Poll from the phase's begin until a window suffices, or until a moment."""
        counter = Counter("GPU 0", "gpu", self.read_j, lambda: WATTS, self.wraps_at_j)
        trace = CounterTrace(counter)
        self.now_s = BEGIN_S
        while self.now_s < (until_s or 60.0):
            trace.poll(self.clock)
            if until_s is None and trace.is_long_enough(BEGIN_S):
                break
            self.now_s = max(self.now_s + 0.0002, trace.due_s)
        return trace


@pytest.mark.parametrize(
    ("period_s", "read_s", "most_s"),
    [(0.1, 0.004, 1.4), (0.001, 0.0001, 1.2), (0.326, 0.002, 2.8), (2.2, 0.002, 17.0)],
    ids=["NVML", "RAPL", "M1 Ultra", "M5 Max in batches"],
)
def test_a_window_from_update_to_update(period_s: float, read_s: float, most_s: float) -> None:
    """Each cadence is found by polling, and the power is right to 1 %, however rare the updates."""
    replay = Replay(period_s, read_s)
    window = replay.trace().window(BEGIN_S, math.inf)
    assert window is not None
    assert window.watts == pytest.approx(WATTS, rel=0.01)
    assert window.n_updates >= LEAST_UPDATES
    assert replay.now_s - BEGIN_S < most_s
    if period_s > 0.01:
        assert window.period_s == pytest.approx(period_s, rel=0.1)


def test_a_plain_difference_would_be_wrong() -> None:
    """The same counter read at both ends of 2 s misses a batch or adds one."""
    replay = Replay(2.2, 0.002)
    errors = []
    for begin_s in (4.0 + 0.1 * n for n in range(22)):
        replay.now_s = begin_s
        first = replay.read_j()
        replay.now_s = begin_s + 2.0
        errors.append(abs((replay.read_j() - first) / 2.0 / WATTS - 1))
    assert max(errors) > 0.9


def test_what_ran_before_and_after_is_outside() -> None:
    """The phase's first update has energy from before it, and none after its end counts."""
    replay = Replay(0.1, end_s=BEGIN_S + 1.5)
    window = replay.trace(until_s=BEGIN_S + 3.0).window(BEGIN_S, BEGIN_S + 1.5)
    assert window is not None
    assert window.watts == pytest.approx(WATTS, rel=0.01)
    assert window.seconds < 1.5


def test_a_dead_counter_has_no_window() -> None:
    """A rail that does not move is neither 0 J nor 0 W."""
    trace = CounterTrace(Counter("ANE", "ane", lambda: 17.0))
    now_s = iter(range(100))
    for _ in range(50):
        trace.poll(lambda: float(next(now_s)))
    assert trace.window(0.0, math.inf) is None
    assert trace.period_s is None


def test_a_counter_that_is_reset_is_found() -> None:
    """A negative difference is no energy; the window shows it."""
    window = Replay(0.1, resets_at_s=BEGIN_S + 0.6).trace(BEGIN_S + 1.5).window(BEGIN_S, math.inf)
    assert window is not None
    assert window.restarted


def test_a_counter_that_wraps_goes_on() -> None:
    """RAPL restarts at 0 at the kernel's maximum."""
    replay = Replay(0.001, 0.0001, wraps_at_j=262.0)
    window = replay.trace().window(BEGIN_S, math.inf)
    assert window is not None
    assert not window.restarted
    assert window.watts == pytest.approx(WATTS, rel=0.01)


def test_power_beside_it_is_of_the_phase_alone() -> None:
    """The driver averages a second, so its first second is left out."""
    trace = Replay(0.1).trace(BEGIN_S + 2.0)
    early, late = trace.window(BEGIN_S, BEGIN_S + 1.0), trace.window(BEGIN_S, math.inf)
    assert early is not None
    assert late is not None
    assert (early.power_w, late.power_w) == (None, WATTS)


def test_polling_is_rare_between_updates() -> None:
    """A call to the driver needs 4 ms: the counter is not read until an update is due."""
    replay = Replay(0.1)
    replay.trace(until_s=BEGIN_S + 10.0)
    assert replay.reads < 1500
