"""The cores that workers compute on."""

import os
import sys
from pathlib import Path


def usable_cores() -> tuple[int, ...]:
    """The logical cores that a worker can be confined to; none if none can be chosen."""
    return tuple(sorted(os.sched_getaffinity(0))) if sys.platform == "linux" else ()


def n_usable_cores() -> int:
    """The number of logical cores of a worker, also on a system where none can be chosen."""
    return len(usable_cores()) or os.cpu_count() or 1


def core_times_ns(pid: int) -> tuple[int, int]:
    """Nanoseconds that a process's first thread has had a core so far, and waited for one.

    While it waits it is ready to run, and other work has the core. 0 where the system does not
    count them: Linux does in `schedstat`.
    """
    try:
        counted = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text("ascii").split()
        return int(counted[0]), int(counted[1])
    except (OSError, ValueError, IndexError):
        return 0, 0
