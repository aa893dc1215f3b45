"""The share of the processor that an engine gets: threads, nice value, and a slowdown for tests."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Linux shares the cores out between sessions, and only then by nice value (sched(7)).
_SESSION: Final = Path("/proc/self/autogroup")
#: It allows ordinary users one change of a session in 0.1 s.
_ATTEMPTS: Final = 20


def take_priority(nice: int) -> int:
    """Set the nice value of this process and its session; gives it if it is not permitted, or 0.

    The user's own value, any other than 0, stays unchanged. Threads and programs that this process
    starts from now on inherit it.
    """
    nice = os.getpriority(os.PRIO_PROCESS, 0) or nice
    if not nice:
        return 0
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except PermissionError:
        return nice
    _take_priority_of_session(nice)
    return 0


def _take_priority_of_session(nice: int) -> None:
    for _ in range(_ATTEMPTS):
        try:
            _SESSION.write_text(str(nice))
        except BlockingIOError:
            # Given up, one of two engines that started together would come before the other.
            time.sleep(0.1)
        except OSError:  # there are none, or another session sets this share
            return
        else:
            return


def priority(rejected: int = 0) -> str | None:
    """The nice value of this process, with its session's if that differs; None if both are 0.

    A session's cannot be set in some containers, and decides if there are sessions. `rejected` is a
    value that the system did not permit.
    """
    nice = session = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError, ValueError):
        session = int(_SESSION.read_text().rpartition(" ")[2])
    if session != nice:
        return f"nice {nice}, its session {session}"
    if rejected:
        return f"nice {nice}, as {rejected} needs root's rights"
    return f"nice {nice}" if nice else None


if __name__ == "__main__":
    sys.stdout.write(priority(take_priority(int(sys.argv[1]))) or "")


def usable_cores() -> int:
    """The logical cores that this process may run on."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1


def default_threads() -> int:
    """The threads that llama.cpp's binaries use (`common_cpu_get_num_math` in common.cpp).

    The binaries count hybrid x86 chips' performance cores by running code on each core; here such a
    chip's cores all count.
    """
    usable = usable_cores()
    if platform.system() == "Darwin":
        for key in ("hw.perflevel0.physicalcpu", "hw.physicalcpu"):
            answer = subprocess.run(
                ["/usr/sbin/sysctl", "-n", key], capture_output=True, text=True, check=False
            )
            if answer.returncode == 0 and answer.stdout.strip().isdigit():
                return int(answer.stdout)
    if platform.machine() in {"x86_64", "AMD64"}:
        return usable
    siblings = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings")
    cores = {path.read_text() for path in siblings}
    return min(len(cores) or usable, usable)


def linger(began_ns: int, share: float) -> None:
    """Spin until the time since `began_ns` is longer by a share; a sleep overshoots by a slice.

    Weights that other guests push out of a shared cache meanwhile make the next step slower too:
    measured +75 % for a share of 60 % with 14 MB, and +60 % with 2.4 MB (AMD EPYC, 2026-11-26).
    """
    until_ns = began_ns + round((time.perf_counter_ns() - began_ns) * (1 + share))
    while time.perf_counter_ns() < until_ns:
        pass
