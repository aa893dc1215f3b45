"""A slowdown of known size, for tests of gates."""

from __future__ import annotations

import time


def linger(began_ns: int, share: float) -> None:
    """Spin until the time since `began_ns` is longer by a share; a sleep overshoots by a slice.

    Weights that other guests push out of a shared cache meanwhile make the next step slower too:
    measured +75 % for a share of 60 % with 14 MB, and +60 % with 2.4 MB (AMD EPYC, 2026-11-26).
    """
    until_ns = began_ns + round((time.perf_counter_ns() - began_ns) * (1 + share))
    while time.perf_counter_ns() < until_ns:
        pass
