"""The cost of this client: its lag behind a server that streams at a known pace."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from ..engine import RefusalError  # noqa: TID252  # a worker does not know the package by name
from .client import stream_request
from .events import read_reply
from .load import closed_loop
from .record import Endpoint, StreamRecord, Timeouts

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    lag_max_ns: int
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
    """Stream from a server of known pace, in a process of its own; takes `n_chunks * pace_us`."""
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
        lag_max_ns=every[-1],
        cpu_ns_per_chunk=sum(record.cpu_ns for record in records) // n_reads,
    )


def _failure(what: str) -> RefusalError:
    return RefusalError("client", f"the server that measures the client itself failed: {what}")


def quiet_median(lags: Sequence[Sequence[int]]) -> int:
    """The median lag of all streams in the quietest fifth of the time.

    What other work on the machine adds comes and goes; the client's own cost is there throughout.
    """
    length = max(1, min(map(len, lags)) // _PARTS)
    parts = range(0, length * _PARTS, length)
    medians = (median(chain.from_iterable(s[at : at + length] for s in lags)) for at in parts)
    return round(min(medians))
