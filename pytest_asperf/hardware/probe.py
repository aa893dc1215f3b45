"""Bounded reading of commands and system files: an absent, slow or unreadable one is None.

Processor time is since boot: the machine's, and that of this process with all that it started.
"""

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LIMIT_BYTES = 1 << 20


def run(args: Sequence[str], *, timeout_s: float = 5.0) -> str | None:
    """The output of a command, at most 1 MiB; None if it cannot be run or is too slow.

    The exit status is left to the parser of the text: ``sysctl`` fails when one of many keys is
    unknown and prints the others, ``nvidia-smi`` prints its error instead of the values.
    """
    with tempfile.TemporaryFile() as output:
        try:
            subprocess.run(
                args,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=timeout_s,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        output.seek(0)
        return output.read(_LIMIT_BYTES).decode("utf-8", "replace")


def read(path: Path) -> str | None:
    """A system file's text without surrounding blanks, at most 1 MiB; None if unreadable."""
    try:
        with path.open("rb") as stream:
            return stream.read(_LIMIT_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None


def whole_number(text: str | None) -> int | None:
    """A non-negative decimal integer of at most 20 digits, or None for any other text."""
    stripped = (text or "").strip()
    plain = stripped.isascii() and stripped.isdigit() and len(stripped) <= 20
    return int(stripped) if plain else None


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Processor time since boot in core-seconds, and our own, at one moment."""

    at_s: float
    busy_s: float
    stolen_s: float
    own_s: float  #: of this process and of its descendants, engines among them


def other_cores(before: CpuTimes, after: CpuTimes) -> float | None:
    """The number of cores that other processes kept busy between two samples."""
    window_s = after.at_s - before.at_s
    if window_s <= 0:
        return None
    busy_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, busy_s / window_s)


def stolen_cores(before: CpuTimes, after: CpuTimes) -> float | None:
    """The number of cores whose time the hypervisor gave to others between two samples."""
    window_s = after.at_s - before.at_s
    return max(0.0, after.stolen_s - before.stolen_s) / window_s if window_s > 0 else None


def read_cpu_times() -> CpuTimes:
    """Read the processor times of the machine, and our own."""
    import psutil  # noqa: PLC0415 -- heavy, and needed only where something is measured

    times: Any = psutil.cpu_times()
    idle = ("idle", "iowait", "steal", "guest", "guest_nice")  # user time contains the guests'
    busy_s = sum(getattr(times, field) for field in times._fields if field not in idle)
    return CpuTimes(time.monotonic(), busy_s, getattr(times, "steal", 0.0), _own_s())


def _own_s() -> float:
    """The seconds of this process and its descendants, including those that ended."""
    import psutil  # noqa: PLC0415 -- as above

    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    total_s = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # one may end at any moment
            # Linux counts a process's ended children too, macOS does not.
            total_s += sum(child.cpu_times()[:4])
    return total_s
