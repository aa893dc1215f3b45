"""Many requests at once: N users in a closed loop, or arrivals at intended times in an open one.

In a closed loop a user sends the next request when the last one has ended. In an open loop requests
arrive whether or not the server keeps up, and latency counts from the intended time, so that a
request that had to wait before it was sent waits in the figures too (no coordinated omission).
"""

from __future__ import annotations

import gc
import random
import threading
from contextlib import contextmanager
from itertools import accumulate
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .record import StreamRecord

    #: Sends request number i, intended for a time, and reads its reply to the end.
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
    """Each thread takes the next request, waits for its time and sends it."""
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
