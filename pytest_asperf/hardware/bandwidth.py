"""Memory read bandwidth, measured once on a machine whose chip has no published figure.

It is the rate at which all usable cores together read memory that no cache contains. Each thread
owns a buffer that it touched first, so that its pages are near it, and reads one window of it per
round with numpy's maximum over 32-bit integers, which is vectorised, releases the interpreter lock
and writes nothing. A round's rate is the bytes of all threads over the time from the first start to
the last end. Disturbance only lowers a rate, so the result is the best of many short rounds, until
none has been better for a while; `machine_bandwidth` keeps the highest of all.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.errors import Advice, HardwareError
from pytest_asperf.hardware.machine import Bandwidth, Machine
from pytest_asperf.hardware.records import load_record, machine_key, record_path, store_record

if TYPE_CHECKING:
    from pytest_asperf.hardware.machine_lock import MachineQueue

_MIB = 1 << 20
# Caches do not evict strictly in order: a buffer of four times the last cache was still read up to
# 1.4 times as fast as memory, one of eight times as fast as one of more.
_CACHE_MULTIPLE = 8
_LEAST_CACHE_MULTIPLE = 4
#: If the cache's size cannot be read: no system-level cache of a single chip is larger.
LARGEST_CACHE_BYTES = 128 * _MIB
_LEAST_BUFFER_BYTES = 512 * _MIB
_MEMORY_SHARE = 0.25
_WINDOW_BYTES = 32 * _MIB
_STEADY_S = 1.5
_LONGEST_S = 8.0
_GAIN = 1.005
_SCHEMA = 1
_NAME = "bandwidth"


@dataclass(frozen=True, slots=True)
class BandwidthMeasurement:
    """The read rate of the best round in decimal GB/s, and the sizes it was measured with."""

    gbs: float
    threads: int
    buffer_bytes: int
    rounds: int


@dataclass(frozen=True, slots=True)
class BandwidthPlan:
    """Sizes of a measurement; in each round, a thread reads one of its windows."""

    threads: int
    windows: int
    window_bytes: int

    @property
    def buffer_bytes(self) -> int:
        """Memory of all threads together."""
        return self.threads * self.windows * self.window_bytes


def machine_bandwidth(cache_dir: Path, machine: Machine, *, remeasure: bool = False) -> Bandwidth:
    """This machine's measured read bandwidth, measured only if it is unknown or on demand.

    The higher of two measurements is kept, below ``hardware/`` in the cache. The caller makes sure
    that nothing else is measured at the same time; see `bandwidth_in_turn`.
    """
    path = record_path(cache_dir, _NAME, machine)
    known = _load(path)
    if known is not None and not remeasure:
        return known
    measurement = measure_bandwidth_gbs(machine)
    if known is not None and known.gbs >= measurement.gbs:
        return known
    today = dt.datetime.now(tz=dt.UTC).date()
    record = {
        "schema": _SCHEMA,
        **asdict(measurement),
        "measured_on": today.isoformat(),
        "machine": machine_key(machine),
    }
    store_record(path, record, what="the measured memory bandwidth")
    return Bandwidth(measurement.gbs, "measured", measured_on=today)


def bandwidth_in_turn(
    cache_dir: Path, machine: Machine, queue: MachineQueue, *, remeasure: bool = False
) -> Bandwidth:
    """This machine's read bandwidth; if it has to be measured, after other measurements here."""
    known = known_bandwidth(cache_dir, machine)
    if known is not None and not remeasure:
        return known
    with queue.turn():
        return machine_bandwidth(cache_dir, machine, remeasure=remeasure)


def known_bandwidth(cache_dir: Path, machine: Machine) -> Bandwidth | None:
    """The earlier measurement on this machine, None if there is none."""
    return _load(record_path(cache_dir, _NAME, machine))


def measure_bandwidth_gbs(machine: Machine) -> BandwidthMeasurement:
    """Measure the read bandwidth of all usable cores, in two to eight seconds."""
    import psutil  # noqa: PLC0415 -- heavy, and needed only here

    available_bytes = psutil.virtual_memory().available
    if machine.limits.memory_bytes is not None:
        own_bytes = psutil.Process().memory_info().rss
        available_bytes = min(available_bytes, machine.limits.memory_bytes - own_bytes)
    plan = plan_measurement(machine.usable_cores or 1, machine.cache_bytes, available_bytes)
    return _Readers(plan).measure()


def plan_measurement(threads: int, cache_bytes: int | None, available_bytes: int) -> BandwidthPlan:
    """Choose buffers of four to eight times the last-level cache, in a quarter of free memory."""
    cache = LARGEST_CACHE_BYTES if cache_bytes is None else cache_bytes
    wanted = max(_LEAST_BUFFER_BYTES, _CACHE_MULTIPLE * cache)
    total = min(wanted, int(available_bytes * _MEMORY_SHARE))
    if total < max(_LEAST_CACHE_MULTIPLE * cache, threads * _MIB):
        raise HardwareError(
            f"{memory_text(available_bytes)} of free memory do not suffice to measure the memory "
            f"bandwidth with {memory_text(cache)} of cache",
            why="a buffer in the cache would measure the cache",
            remedy="free memory, or raise the container's memory limit",
            opt_out=Advice("use a published figure instead", "hardware"),
        )
    per_thread = total // threads
    windows = max(2, per_thread // _WINDOW_BYTES)
    return BandwidthPlan(threads, windows, per_thread // windows // _MIB * _MIB or _MIB // 2)


class _Readers:
    """Threads that read their windows in step; the last to arrive judges the round before."""

    def __init__(self, plan: BandwidthPlan) -> None:
        self._plan = plan
        self._starts_ns = [0] * plan.threads
        self._ends_ns = [0] * plan.threads
        self._round = -1
        self._best = 0.0
        self._steady_since_s = self._began_s = 0.0
        self._done = False
        self._barrier = threading.Barrier(plan.threads, action=self._judge)
        self._failure: BaseException | None = None

    def measure(self) -> BandwidthMeasurement:
        threads = [
            threading.Thread(target=self._read, args=(index,), daemon=True)
            for index in range(self._plan.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        plan = self._plan
        return BandwidthMeasurement(self._best, plan.threads, plan.buffer_bytes, self._round)

    def _read(self, index: int) -> None:
        try:
            buffer = self._touched_buffer()
            while True:
                self._barrier.wait()
                if self._done:
                    return
                window = buffer[self._round % self._plan.windows]
                self._starts_ns[index] = time.perf_counter_ns()
                window.max()
                self._ends_ns[index] = time.perf_counter_ns()
        except threading.BrokenBarrierError:
            return
        except BaseException as error:  # noqa: BLE001 -- carried to the caller's thread
            self._failure = error
            self._barrier.abort()

    def _touched_buffer(self) -> Any:
        import numpy as np  # noqa: PLC0415 -- heavy, and needed only here

        # Written, not only reserved: untouched pages would all be one page of zeros.
        return np.ones((self._plan.windows, self._plan.window_bytes // 4), dtype=np.int32)

    def _judge(self) -> None:
        now_s = time.monotonic()
        self._round += 1
        if self._round == 0:
            self._began_s = self._steady_since_s = now_s
            return
        spent_ns = max(self._ends_ns) - min(self._starts_ns)
        rate = self._plan.threads * self._plan.window_bytes / max(spent_ns, 1)
        if rate > self._best * _GAIN:
            self._steady_since_s = now_s
        self._best = max(self._best, rate)
        self._done = now_s - self._steady_since_s > _STEADY_S or now_s - self._began_s > _LONGEST_S


def _load(path: Path) -> Bandwidth | None:
    record = load_record(path, _SCHEMA)
    if record is None:
        return None
    try:
        gbs = float(record["gbs"])
        day = dt.date.fromisoformat(record["measured_on"])
    except (ValueError, KeyError, TypeError):
        return None  # as if absent: measuring again replaces it
    return Bandwidth(gbs, "measured", measured_on=day) if 0 < gbs < float("inf") else None
