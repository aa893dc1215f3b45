"""Many requests at once: N users in a closed loop, or arrivals at intended times in an open one.

In a closed loop a user sends the next request when the last one has ended. In an open loop requests
arrive whether or not the server keeps up, and latency counts from the intended time, so that a
request that had to wait before it was sent waits in the figures too (no coordinated omission).

The cost of this client is its lag behind a server that streams at a known pace.
"""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain
from pathlib import Path
from statistics import median
from time import perf_counter_ns, sleep
from typing import Final

from ..engine import RefusalError  # noqa: TID252  # a worker does not know the package by name
from .client import stream_request
from .events import read_reply
from .record import Endpoint, StreamRecord, Timeouts

Ask = Callable[[int, int], StreamRecord]

#: Requests under way at once in an open loop; one more waits, and its latency counts the wait.
MAX_OPEN: Final = 256


def closed_loop(ask: Ask, n_users: int, n_requests: int) -> list[StreamRecord]:
    """Send requests 0 … n - 1 by N users, each its next one when its last has ended."""
    return _run(ask, [None] * n_requests, n_users)


def open_loop(
    ask: Ask, arrivals_ns: Sequence[int], *, max_open: int = MAX_OPEN
) -> list[StreamRecord]:
    """Send a request at each time after now, whether or not the earlier ones have ended."""
    now = perf_counter_ns()
    return _run(ask, [now + arrival for arrival in arrivals_ns], min(max_open, len(arrivals_ns)))


def poisson_arrivals(rate_per_s: float, n: int, seed: int) -> list[int]:
    """Times in ns of n arrivals of a Poisson process, not rescaled to a duration."""
    if not rate_per_s > 0:
        raise ValueError(f"{rate_per_s} requests per second is not a rate")
    draw = random.Random(seed)  # noqa: S311  # arrivals are no secrets
    gaps = (draw.expovariate(rate_per_s) for _ in range(n))
    return [round(1e9 * time) for time in accumulate(gaps)]


def _run(ask: Ask, intended: Sequence[int | None], n_threads: int) -> list[StreamRecord]:
    """Each thread waits for the next request's time and sends it."""
    records: dict[int, StreamRecord] = {}
    failures: list[Exception] = []
    pending = iter(enumerate(intended))
    taking, ready = threading.Lock(), threading.Barrier(n_threads)

    def send_requests() -> None:
        ready.wait()
        try:
            while not failures:
                with taking:
                    number, time_ns = next(pending, (None, None))
                if number is None:
                    return
                if time_ns is not None:
                    sleep(max(0, time_ns - perf_counter_ns()) / 1e9)
                records[number] = ask(number, time_ns or perf_counter_ns())
        except Exception as err:  # noqa: BLE001  # raised again by the caller's thread
            failures.append(err)

    threads = [threading.Thread(target=send_requests, daemon=True) for _ in range(n_threads)]
    with _no_collection():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return [records[number] for number in range(len(intended))]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage, which would stop every stream of the client at once."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


#: Parts of the time, of which the quietest counts.
_PARTS: Final = 5
_LONGEST_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ClientCost:
    """The client's lag and CPU time for each chunk of several streams at once.

    The lag is from just before a chunk was sent, by another process of this machine, to its stamp:
    the kernel's way, the thread's wake-up, and its wait for the other streams. Its median is that
    of the quietest fifth of the time.
    """

    n_streams: int
    n_chunks: int
    lag_p50_ns: int
    lag_p95_ns: int
    cpu_ns_per_chunk: int

    def __str__(self) -> str:
        lag_us, cpu_us = self.lag_p50_ns / 1e3, self.cpu_ns_per_chunk / 1e3
        streams = f"{self.n_streams} stream{'s' * (self.n_streams > 1)}"
        return f"stamps lag by {lag_us:.0f} us with {streams}, {cpu_us:.0f} us of CPU a chunk"


@cache
def client_cost(n_streams: int) -> ClientCost:
    """The cost with so many streams, measured once in this process."""
    return measure_client_cost(n_streams)


def measure_client_cost(n_streams: int, n_chunks: int = 40, pace_us: int = 2000) -> ClientCost:
    """Stream from a server of known pace, in a process of its own; lasts `n_chunks * pace_us`."""
    numbers = (str(number) for number in (n_streams, n_chunks, pace_us))
    program = Path(__file__).with_name("pace_server.py")
    with subprocess.Popen(
        [sys.executable, "-I", str(program), *numbers], stdout=subprocess.PIPE
    ) as process:
        try:
            port = process.stdout.readline() if process.stdout else b""
            if not port.strip().isdigit():
                raise _failure("it did not start")
            endpoint = Endpoint("http", "127.0.0.1", int(port))
            records = closed_loop(
                lambda _, now: stream_request(
                    endpoint, "/", {}, intended_ns=now, timeouts=Timeouts(total_s=_LONGEST_S)
                ),
                n_streams, n_streams,
            )  # fmt: skip
        finally:
            process.kill()
    return _cost_of(records)


def _cost_of(records: list[StreamRecord]) -> ClientCost:
    replies = [read_reply(record) for record in records]
    if faults := [fault for reply in replies for fault in reply.faults]:
        raise _failure(faults[0].text)
    lags = [[event.ns - int(event.text) for event in reply.events] for reply in replies]
    every = sorted(chain.from_iterable(lags))
    n_reads = sum(len(record.chunks) for record in records)
    return ClientCost(
        n_streams=len(records),
        n_chunks=len(every) // len(records),
        lag_p50_ns=quiet_median(lags),
        lag_p95_ns=every[len(every) * 95 // 100],
        cpu_ns_per_chunk=sum(record.cpu_ns for record in records) // n_reads,
    )


def _failure(what: str) -> RefusalError:
    return RefusalError("client", f"the server that measures the client itself failed: {what}")


def quiet_median(lags: Sequence[Sequence[int]]) -> int:
    """The median lag of all streams in the quietest fifth of the time.

    The delay by other work on the machine varies; the client's own cost is constant.
    """
    length = max(1, min(map(len, lags)) // _PARTS)
    parts = range(0, length * _PARTS, length)
    medians = (median(chain.from_iterable(s[at : at + length] for s in lags)) for at in parts)
    return round(min(medians))
