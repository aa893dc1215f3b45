"""A slowdown of known size, for tests of gates."""

from __future__ import annotations

import time


def linger(began_ns: int, share: float) -> None:
    """Let what began then take longer by a share of its time.

    It spins, because a sleep is at least a scheduler's slice longer than it was asked to be.
    """
    until_ns = began_ns + round((time.perf_counter_ns() - began_ns) * (1 + share))
    while time.perf_counter_ns() < until_ns:
        pass
