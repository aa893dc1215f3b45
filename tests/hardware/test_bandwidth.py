import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.errors import CacheError, HardwareError
from pytest_asperf.hardware import bandwidth
from pytest_asperf.hardware.bandwidth import (
    BandwidthMeasurement,
    BandwidthPlan,
    bandwidth_in_turn,
    machine_bandwidth,
    plan_measurement,
)
from pytest_asperf.hardware.machine import Machine
from pytest_asperf.hardware.machine_lock import MachineQueue

_MIB = 2**20
_MACHINE = Machine(
    os="Linux",
    arch="x86_64",
    cpu_brand="Some CPU",
    logical_cores=2,
    memory_bytes=8 * 2**30,
    cache_bytes=1 * _MIB,
)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Have the next measurement give this figure, so that storing it can be tested in no time."""

    def script(gbs: float) -> None:
        result = BandwidthMeasurement(gbs, 2, 512 * _MIB, 100)
        monkeypatch.setattr(bandwidth, "measure_bandwidth_gbs", lambda _machine: result)

    return script


@given(
    threads=st.integers(1, 512),
    cache=st.none() | st.integers(0, 4 * 2**30),
    available=st.integers(0, 2**42),
)
def test_a_plan_exceeds_the_cache_and_spares_the_memory(
    threads: int, cache: int | None, available: int
) -> None:
    """Buffers are four times the cache within a quarter of memory, or it is an error."""
    try:
        plan = plan_measurement(threads, cache, available)
    except HardwareError:
        assert available / 4 < max(4 * (128 * _MIB if cache is None else cache), threads * _MIB)
        return
    assert plan.threads == threads
    assert plan.buffer_bytes <= available / 4
    assert plan.window_bytes % 4 == 0
    assert plan.windows >= 2
    rounding = threads * plan.windows * _MIB
    assert plan.buffer_bytes + rounding >= 4 * (cache or 0)


def test_a_small_container_gets_a_small_buffer() -> None:
    """One GB of memory allows a quarter of it, not the usual half GiB."""
    assert plan_measurement(2, 16 * _MIB, 10**9).buffer_bytes <= 250_000_000


@pytest.mark.usefixtures("quick_bandwidth")
def test_reading_is_measured_and_counted() -> None:
    """A short real measurement reads every thread's windows; no unit is off by a thousand."""
    result = bandwidth._Readers(
        BandwidthPlan(threads=2, windows=2, window_bytes=2 * _MIB)
    ).measure()
    assert result.rounds >= 1
    assert result.buffer_bytes == 8 * _MIB
    assert 0.1 < result.gbs < 2_000


def test_a_readers_failure_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that cannot be had ends the measurement instead of hanging it."""

    def no_memory(_self: object) -> None:
        raise MemoryError

    monkeypatch.setattr(bandwidth._Readers, "_touched_buffer", no_memory)
    with pytest.raises(MemoryError):
        bandwidth._Readers(BandwidthPlan(threads=2, windows=2, window_bytes=_MIB)).measure()


def test_the_figure_is_measured_once(tmp_path: Path, measured: Callable[[float], None]) -> None:
    """The second call reads the first one's result, labelled and dated."""
    measured(20.0)
    first = machine_bandwidth(tmp_path, _MACHINE)
    measured(99.0)
    assert machine_bandwidth(tmp_path, _MACHINE) == first
    assert (first.gbs, first.kind) == (20.0, "measured")
    assert first.measured_on is not None
    (file,) = (tmp_path / "hardware").iterdir()
    assert json.loads(file.read_text())["machine"]["cpu"] == "Some CPU"


def test_measuring_again_keeps_the_higher(
    tmp_path: Path, measured: Callable[[float], None]
) -> None:
    """A machine that once read at a rate can do so, for any later disturbance."""
    for gbs, kept in ((20.0, 20.0), (15.0, 20.0), (25.0, 25.0)):
        measured(gbs)
        assert machine_bandwidth(tmp_path, _MACHINE, remeasure=True).gbs == kept
    assert machine_bandwidth(tmp_path, _MACHINE).gbs == 25.0


def test_only_a_measurement_waits_for_others(
    tmp_path: Path, measured: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A known figure is read at once; its measurement waits for the machine first."""
    turns: list[object] = []

    @contextmanager
    def turn(_self: MachineQueue) -> Iterator[None]:
        turns.append(1)
        yield

    monkeypatch.setattr(MachineQueue, "turn", turn)
    queue = MachineQueue(tmp_path / "lock", turns.append)
    measured(20.0)
    assert bandwidth_in_turn(tmp_path, _MACHINE, queue).gbs == 20.0
    assert bandwidth_in_turn(tmp_path, _MACHINE, queue).gbs == 20.0
    assert turns == [1]
    measured(25.0)
    assert bandwidth_in_turn(tmp_path, _MACHINE, queue, remeasure=True).gbs == 25.0
    assert turns == [1, 1]


def test_other_limits_are_another_machine(
    tmp_path: Path, measured: Callable[[float], None]
) -> None:
    """A figure of two cores is not used for one core."""
    measured(20.0)
    machine_bandwidth(tmp_path, _MACHINE)
    measured(10.0)
    single = Machine(os="Linux", arch="x86_64", cpu_brand="Some CPU", logical_cores=1)
    assert machine_bandwidth(tmp_path, single).gbs == 10.0


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "[]",
        "{",
        '{"schema": 1}',
        '{"schema": 1, "gbs": -1, "measured_on": "2026-11-20"}',
        '{"schema": 1, "gbs": NaN, "measured_on": "2026-11-20"}',
        '{"schema": 1, "gbs": 5, "measured_on": "yesterday"}',
        '{"schema": 9, "gbs": 5, "measured_on": "2026-11-20"}',
    ],
)
def test_a_damaged_file_is_measured_anew(
    tmp_path: Path, measured: Callable[[float], None], damage: str
) -> None:
    """An incomplete or foreign file is not believed."""
    measured(20.0)
    machine_bandwidth(tmp_path, _MACHINE)
    (file,) = (tmp_path / "hardware").iterdir()
    file.write_text(damage)
    measured(30.0)
    assert machine_bandwidth(tmp_path, _MACHINE).gbs == 30.0


def test_an_unusable_cache_folder_is_named(
    tmp_path: Path, measured: Callable[[float], None]
) -> None:
    """A file where the folder should be is a cache error with its path."""
    measured(20.0)
    (tmp_path / "hardware").write_text("in the way")
    with pytest.raises(CacheError, match=r"cannot be kept in .*hardware"):
        machine_bandwidth(tmp_path, _MACHINE)
