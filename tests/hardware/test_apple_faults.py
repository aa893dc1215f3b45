"""Apple's counters in their real cadence, through the meter, and their faults' results."""

import io
import math
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_asperf.analysis.guards import restarted_counter
from pytest_asperf.hardware.meters import choose
from pytest_asperf.hardware.meters.choose import apple_meter
from pytest_asperf.hardware.meters.meter import (
    LEAST_UPDATES,
    Counter,
    CounterTrace,
    CounterWindow,
    Meter,
)
from pytest_asperf.hardware.meters.powermetrics import RunningSum, parse_sample
from pytest_asperf.measure.metered import PhaseEnergy
from tests.power_samples import phase, sample, stream

#: W by rail of a phase, an idle machine before it, and when it begins.
WORK_W = {"cpu": 12.0, "gpu": 25.0, "ane": 1.6, "dram": 4.0}
IDLE_W = {"cpu": 0.4, "gpu": 0.03, "ane": 0.0, "dram": 0.2}
BEGIN_S, END_S = 3.0, 22.0


@dataclass
class IoReport:
    """The samples of zeus-apple-silicon, on a clock of its own.

    The channels in mJ are published in batches; the GPU's is current at every sample. Attributes:

        batch_s: between batches.
        dead: rails that do not move.
        falls: by rail, the time from which it reads so many mJ less.
    """

    batch_s: float
    dead: tuple[str, ...] = ()
    falls: dict[str, tuple[float, float]] = field(default_factory=dict)
    now_s: float = BEGIN_S

    def clock(self) -> float:
        """Now; each call lasts a while."""
        self.now_s += 2e-5
        return self.now_s

    def get_cumulative_energy(self) -> SimpleNamespace:
        """All counters in whole mJ, as the package gives them."""
        self.now_s += 2e-4
        # Batches jitter by a thirtieth: 2.03 to 2.23 s were seen.
        published_s = math.floor(self.now_s / self.batch_s) * self.batch_s
        published_s -= self.batch_s * (0.03 + 0.03 * math.sin(12.9898 * published_s))
        fields = {"cpu": "cpu_total_mj", "gpu": "gpu_mj", "ane": "ane_mj", "dram": "dram_mj"}
        values: dict[str, Any] = {"gpu_sram_mj": None}
        for rail, name in fields.items():
            at_s = self.now_s if rail == "gpu" else published_s
            values[name] = 0 if rail in self.dead else self._mj(rail, at_s)
        return SimpleNamespace(**values)

    def _mj(self, rail: str, at_s: float) -> int:
        worked_s = max(0.0, at_s - BEGIN_S)
        joules = 1000.0 + WORK_W[rail] * worked_s + IDLE_W[rail] * (at_s - worked_s)
        from_s, less_mj = self.falls.get(rail, (math.inf, 0.0))
        return round(1e3 * joules - (less_mj if at_s >= from_s else 0.0))


def _meter(io_report: IoReport, monkeypatch: pytest.MonkeyPatch) -> Meter:
    package = SimpleNamespace(AppleEnergyMonitor=lambda: io_report)
    monkeypatch.setitem(sys.modules, "zeus_apple_silicon", package)
    monkeypatch.setattr(choose, "version", lambda _: "1.1.0")
    monkeypatch.setattr(choose, "time", SimpleNamespace(monotonic=io_report.clock))
    return apple_meter("Apple M5 Max")


def _windows(io_report: IoReport, monkeypatch: pytest.MonkeyPatch) -> dict[str, CounterWindow]:
    """By rail the window of a phase of 19 s, all counters polled in turn."""
    traces = [CounterTrace(counter) for counter in _meter(io_report, monkeypatch).counters]
    while io_report.now_s < END_S:
        for trace in traces:
            trace.poll(io_report.clock)
        io_report.now_s = max(io_report.now_s + 5e-3, min(trace.due_s for trace in traces))
    found = (trace.window(BEGIN_S, END_S) for trace in traces)
    return {window.rail: window for window in found if window}


@pytest.mark.parametrize("batch_s", [2.2, 0.326], ids=["M5 Max", "M1 Ultra"])
def test_batches_of_channels_beside_a_current_one(
    batch_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rail's power is right, though three are published in batches and one at each sample."""
    windows = _windows(IoReport(batch_s), monkeypatch)
    for rail, watts in WORK_W.items():
        assert windows[rail].watts == pytest.approx(watts, rel=0.02)
        assert windows[rail].n_updates >= LEAST_UPDATES
        assert not windows[rail].restarted
    assert windows["cpu"].period_s == pytest.approx(batch_s, rel=0.1)
    assert windows["gpu"].period_s < 0.02


def test_a_dead_rail_has_no_figure_and_others_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor's does not move, as on macOS 27: not 0 W, and INVALID if it did the work."""
    io_report = IoReport(2.2, dead=("cpu",))
    windows = _windows(io_report, monkeypatch)
    assert sorted(windows) == ["ane", "dram", "gpu"]
    still = tuple(c for c in _meter(io_report, monkeypatch).counters if c.rail == "cpu")
    measured = PhaseEnergy(tuple(windows.values()), (), still, (), 19.0, 18.5, 512)
    assert "cpu" not in measured.rails
    assert "CPU (IOReport) did not move" in str(measured.unmeasured[0])
    findings = measured.guard_findings(on_gpu=True)
    assert [finding.guard for finding in findings] == ["dead-counter"]


@pytest.mark.parametrize(
    "less_mj", [1e6, 300_000.0, 150_000.0], ids=["to 0", "by much", "by a step"]
)
def test_a_counter_that_falls_voids_its_window(
    less_mj: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart, or a negative difference however large: never less energy, nor a negative one."""
    io_report = IoReport(2.2, falls={"cpu": (BEGIN_S + 8.0, less_mj)})
    windows = _windows(io_report, monkeypatch)
    assert windows["cpu"].restarted
    assert not windows["dram"].restarted
    measured = PhaseEnergy(tuple(windows.values()), (), (), (), 19.0, 18.5, 512)
    assert restarted_counter("CPU (IOReport)") in measured.guard_findings(on_gpu=False)


def _summed(recorded: bytes) -> RunningSum:
    running = RunningSum(io.BytesIO(recorded))
    running._thread.join(10)
    return running


def test_powermetrics_of_two_dies() -> None:
    """The processor's energy is that of both dies; the GPU's own sampler adds nothing."""
    read = parse_sample(sample(200.0, gpu_mw=62_050.0, ane_mw=1580.0, cpu_mw=24_000.0))
    assert dict(read.energy_mj) == {"cpu": 4800.0, "gpu": 12_410.0, "ane": 316.0}


def test_a_recorded_stream_gives_its_power() -> None:
    """Samples of unequal length, read one at a time: mean power to 1 %, and an idle rail none."""
    measured = phase(stream({"cpu_mw": 3770.0, "gpu_mw": 220.0, "ane_mw": 0.0}, 30))
    assert measured.watts("cpu") == pytest.approx(3.77, rel=0.01)
    assert measured.watts("gpu") == pytest.approx(0.22, rel=0.01)
    assert [counter.rail for counter in measured.still] == ["ane"]


def test_a_negative_sample_voids_what_it_lies_in() -> None:
    """A sample that is lost would leave less energy in the same time, so that the sum falls."""
    good = stream({"cpu_mw": 5000.0, "gpu_mw": 100.0}, 3)
    bad = sample(200.0, gpu_mw=100.0, cpu_mw=-5000.0)
    assert _summed(good).joules["cpu"] == pytest.approx(3.1, rel=0.01)
    running = _summed(good + bad + b"\0" + sample(200.0, gpu_mw=100.0, cpu_mw=5000.0) + b"\0")
    assert running.joules["cpu"] == pytest.approx(1.0, rel=0.01)


def test_a_sum_that_fell_is_seen_by_the_trace() -> None:
    """Like any counter's fall: its window is void."""
    steps = iter([1.0, 2.0, 3.0, 4.0, 0.5, 1.5, 2.5, 3.5])
    trace = CounterTrace(Counter("CPU (powermetrics)", "cpu", lambda: next(steps)))
    for at_s in range(8):
        trace.poll(lambda at_s=at_s: 0.2 * at_s)  # type: ignore[misc]  # bound now
    window = trace.window(0.0, 2.0)
    assert window is not None
    assert window.restarted
