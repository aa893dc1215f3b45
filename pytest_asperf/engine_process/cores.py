"""The cores that workers compute on."""

import os
import sys


def usable_cores() -> tuple[int, ...]:
    """The logical cores that a worker can be confined to; none if none can be chosen."""
    return tuple(sorted(os.sched_getaffinity(0))) if sys.platform == "linux" else ()


def n_usable_cores() -> int:
    """The number of logical cores of a worker, also on a system where none can be chosen."""
    return len(usable_cores()) or os.cpu_count() or 1
