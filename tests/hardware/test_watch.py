"""The machine during a measurement: the samples, and the guards' use of them."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pytest_asperf.analysis.facts import CardSeen, MomentSeen
from pytest_asperf.hardware.nvidia import CardWatch
from pytest_asperf.hardware.probe import CpuTimes, read_cpu_times
from pytest_asperf.hardware.watch import MachineSample, MachineSampler, MachineWatch, Watched


def _sample(
    at_s: float, busy_s: float = 0.0, stolen_s: float = 0.0, **more: object
) -> MachineSample:
    cpu = CpuTimes(at_s, busy_s, stolen_s, own_s=at_s)
    return MachineSample(cpu, MomentSeen(at_s=at_s, **more))  # type: ignore[arg-type]  # as named


def _guards(*samples: MachineSample, n_cores: int = 2) -> list[str]:
    return [found.guard for found in Watched(samples, n_cores).guard_findings]


class Scripted:
    """A sampler whose samples are a second apart."""

    def __init__(self) -> None:
        self.n = 0

    def sample(self) -> MachineSample:
        """The next one."""
        self.n += 1
        return _sample(self.n, 2.0 * self.n)

    def close(self) -> None:
        """Note it."""
        self.n = -1


@pytest.mark.parametrize(
    ("busy_s", "stolen_s", "n_cores", "is_busy"),
    [
        (10.0, 0.0, 2, False),  # all of it our own
        (14.0, 0.0, 2, False),  # 0.4 cores
        (16.0, 0.0, 2, True),
        (13.0, 3.0, 2, True),  # others of this machine, and of its host
        (22.0, 0.0, 16, False),  # 1.2 of 16
        (27.0, 0.0, 16, True),
    ],
)
def test_a_busy_host(busy_s: float, stolen_s: float, n_cores: int, *, is_busy: bool) -> None:
    """Other programs' use over the whole run decides, as a share of a large machine's cores."""
    found = _guards(_sample(0.0), _sample(10.0, busy_s, stolen_s), n_cores=n_cores)
    assert found == (["host-busy"] if is_busy else [])


def test_over_a_moment_nobody_s_share_is_known() -> None:
    """Processor times are counted in ticks, so a short run has neither a share nor a finding."""
    moment = Watched((_sample(0.0), _sample(0.9, 9.0)), 2)
    assert moment.other_cores is None
    assert (moment.guard_findings, moment.lost_share, moment.knows) == ((), 0.0, frozenset())


def test_a_machine_that_cools_itself() -> None:
    """Rising thermal pressure, rising throttle counts, and a limited card are throttled."""
    assert _guards(*(_sample(n, thermal_level=level) for n, level in enumerate((0, 1, 2)))) == [
        "throttled"
    ]
    pressed = [_sample(n, thermal_level=1) for n in (1, 2)]
    assert _guards(replace(_sample(0), is_not_hot=True), *pressed) == ["throttled"]
    # A pressure that was unknown before may have been equal.
    assert _guards(_sample(0), *pressed) == []
    counts = [_sample(n, throttle_events=7 + (n > 2)) for n in range(5)]
    assert _guards(*counts) == ["throttled"]
    hot = CardSeen(1200, ("power cap", "thermal slowdown (hardware)"))
    (found,) = Watched((_sample(0, cards=(hot,)), _sample(0.5, cards=(hot,)))).guard_findings
    assert "thermal slowdown (hardware) in 100% of the samples" in found.found


def test_full_load_is_no_throttling() -> None:
    """A power cap, counts from before the run and one event in a long run are none."""
    capped = CardSeen(1600, ("power cap",))
    samples = [_sample(n, cards=(capped,), throttle_events=40 + (n > 9)) for n in range(20)]
    assert _guards(*samples) == []


def test_samples_are_bounded_and_go_up_to_now() -> None:
    """A long watch keeps fewer samples, the first and last among them, and closes its sampler."""
    sampler = Scripted()
    with MachineWatch(lambda: sampler, period_s=0.0001) as watch:
        deadline = time.monotonic() + 60
        while sampler.n < 400 and time.monotonic() < deadline:
            time.sleep(0.001)
        seen = watch.seen()
    times = [sample.seen.at_s for sample in seen.samples]
    assert times == sorted(times)
    assert times[0] == 1
    assert times[-1] >= 400
    assert len(times) <= 121
    assert {moment.other_cores for moment in seen.facts().samples} == {1.0}
    assert sampler.n == -1


def test_this_machine_is_sampled() -> None:
    """The system's own figures, without a card; a child's time is not other programs' time."""
    sampler = MachineSampler()
    before = sampler.sample()
    spin = "import time; e = time.process_time() + 0.2\nwhile time.process_time() < e: pass"
    subprocess.run([sys.executable, "-S", "-c", spin], check=True)
    after = sampler.sample()
    sampler.close()
    assert after.cpu.own_s - before.cpu.own_s >= 0.2
    assert after.cpu.busy_s - before.cpu.busy_s >= 0.15
    assert after.seen.swap_bytes is not None


def test_a_running_child_s_time_is_our_own() -> None:
    """An engine's process counts while it runs, not only once it has ended."""
    spin = "import time; e = time.process_time() + 0.2\nwhile time.process_time() < e: pass\n"
    program = f"{spin}print(flush=True); input()"
    before = read_cpu_times()
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = read_cpu_times()
        child.communicate(b"\n")
    assert during.own_s - before.own_s >= 0.19
    assert os.getpid() != child.pid


def test_cards_are_read_through_one_opened_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card reports its clock and its limits; one that reports neither is not left out."""

    class NvmlError(Exception):
        pass

    def clock(handle: int, _domain: int) -> int:
        if handle:
            raise NvmlError
        return 1980

    nvml = SimpleNamespace(
        NVMLError=NvmlError,
        NVML_CLOCK_SM=1,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=int,
        nvmlDeviceGetClockInfo=clock,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0 if handle else 0x24,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    watch = CardWatch()
    first, second = watch.read()
    assert first == CardSeen(1980, ("power cap", "thermal slowdown (software)"))
    assert first.cooling == ("thermal slowdown (software)",)
    assert second == CardSeen(None)
    watch.close()
