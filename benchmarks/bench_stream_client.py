"""The cost of the client of servers: its lag behind a known pace, and its processor time.

A server in a process of its own streams to N connections at once, all of them in one burst as a
server that decodes a batch does. Each chunk contains the time just before it was sent. The client
reads them in alternation with threads that only receive and stamp. Exits with 1 if half of the
chunks of 8 streams are stamped later than 50 us in the quietest fifth of the time.
"""

from __future__ import annotations

import argparse
import random
import socket
import statistics
import subprocess
import sys
import threading
from itertools import chain
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Final

from timing import table

from pytest_asperf.worker.serving import pace_server
from pytest_asperf.worker.serving.load import measure_client_cost, quiet_median

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT_US: Final = 50.0
_LIMITED: Final = 8
_CHUNKS: Final = 100
_PACE_US: Final = 4000

#: Median of the lag in the quietest fifth of the time, its 95th percentile, and CPU time for each
#: chunk; in us.
Cost = tuple[float, float, float]


def main() -> bool:
    """Print the table, and return whether 8 streams are within the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    n_rounds = parser.parse_args().rounds
    coin = random.Random(0)  # noqa: S311  # repeatable
    kinds: dict[str, Callable[[int], Cost]] = {"ours": _ours, "receive and stamp": _bare}
    costs: dict[tuple[int, str], list[Cost]] = {}
    for _ in range(n_rounds):
        for n_streams in (1, 4, _LIMITED):
            for kind in coin.sample(sorted(kinds), 2):
                costs.setdefault((n_streams, kind), []).append(kinds[kind](n_streams))
    rows = [
        [str(n), kind, *(f"{statistics.median(column):.0f}" for column in zip(*done, strict=True))]
        for (n, kind), done in sorted(costs.items(), key=lambda item: (item[0][0], item[0][1]))
    ]
    print("## The client of servers\n")
    print(table(["streams", "client", "lag p50, us", "lag p95, us", "CPU a chunk, us"], rows))
    lag_us = statistics.median(lag for lag, _, _ in costs[_LIMITED, "ours"])
    print(f"\n{_CHUNKS} chunks a stream, one each {_PACE_US} us, {n_rounds} rounds.")
    return lag_us <= _LIMIT_US


def _ours(n_streams: int) -> Cost:
    cost = measure_client_cost(n_streams, _CHUNKS, _PACE_US)
    return cost.lag_p50_ns / 1e3, cost.lag_p95_ns / 1e3, cost.cpu_ns_per_chunk / 1e3


def _bare(n_streams: int) -> Cost:
    """Threads that only receive and stamp."""
    numbers = (str(number) for number in (n_streams, _CHUNKS, _PACE_US))
    program = [sys.executable, "-I", pace_server.__file__, *numbers]
    reads: list[list[tuple[int, bytes]]] = [[] for _ in range(n_streams)]
    cpu_ns = [0] * n_streams

    def receive(number: int, port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(b"POST / HTTP/1.1\r\n\r\n")
            began = thread_time_ns()
            while data := sock.recv(65536):
                reads[number].append((perf_counter_ns(), data))
            cpu_ns[number] = thread_time_ns() - began

    with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
        port = int(process.stdout.readline()) if process.stdout else 0
        threads = [
            threading.Thread(target=receive, args=(number, port)) for number in range(n_streams)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    by_stream = [*map(_lags, reads)]
    lags = sorted(chain.from_iterable(by_stream))
    return (
        quiet_median(by_stream) / 1e3,
        lags[len(lags) * 95 // 100] / 1e3,
        sum(cpu_ns) / 1e3 / len(lags),
    )


def _lags(reads: list[tuple[int, bytes]]) -> list[int]:
    found = []
    for ns, data in reads:
        _, mark, after = data.partition(b'"content": "')
        if mark:
            found.append(ns - int(after.split(b" ")[0]))
    return found


if __name__ == "__main__":
    sys.exit(not main())
