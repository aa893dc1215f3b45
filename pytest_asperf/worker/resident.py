"""The peak resident memory of a process.

On Linux `ru_maxrss` of a process also has the memory of the one that started it, so a worker's
would be that of pytest. `VmHWM` begins anew with the process's own program.
"""

from __future__ import annotations

import ctypes
import re
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_PEAK: Final = re.compile(r"^VmHWM:\s+(\d{1,12}) kB", re.MULTILINE)
#: macOS counts bytes, Linux kibibytes (getrusage(2) of either).
UNIT: Final = 1 if sys.platform == "darwin" else 1024


def peak_of(process: str) -> int:
    """That of a process, by its number or `self`, in bytes; 0 if the system does not report it."""
    try:
        status = Path(f"/proc/{process}/status").read_text("ascii", "replace")
    except OSError:
        return 0
    peak = _PEAK.search(status)
    return int(peak[1]) * 1024 if peak else 0


def own_peak() -> int:
    """The larger one of this process and of the programs that it ran, in bytes."""
    own = peak_of("self") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * UNIT)


def give_back_free() -> None:
    """Give the allocator's free memory back to the system, if the C library can.

    Later allocations fill it otherwise, so that memory that nothing uses would not show as growth.
    """
    library = ctypes.CDLL(None)
    with suppress(AttributeError):
        library.malloc_trim(ctypes.c_size_t(0))  # glibc
    with suppress(AttributeError):
        relieve = library.malloc_zone_pressure_relief  # macOS
        relieve.restype = ctypes.c_size_t
        relieve(None, ctypes.c_size_t(0))
