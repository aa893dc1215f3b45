"""Which other work an engine computes before."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

#: A gate beside other work is decided as if there were none (docs/benchmarks.md).
_FIRST: Final = -20
#: Linux shares the cores out between sessions, and only then by nice value (sched(7)).
_SESSION: Final = Path("/proc/self/autogroup")
#: It lets ordinary users change one session in 0.1 s.
_ATTEMPTS: Final = 20


def take_priority() -> None:
    """Come before other work where the system allows it; a nice value that was named stays.

    Threads and programs that this process starts from now on do the same.
    """
    nice = os.getpriority(os.PRIO_PROCESS, 0) or _FIRST
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        _take_priority_of_session(nice)


def _take_priority_of_session(nice: int) -> None:
    for _ in range(_ATTEMPTS):
        try:
            _SESSION.write_text(str(nice))
        except BlockingIOError:
            # Given up, one of two engines that started together would come before the other.
            time.sleep(0.1)
        except OSError:  # there are none, or this one's share is set elsewhere
            return
        else:
            return


def priority() -> str | None:
    """The nice value of this process, with its session's where that differs; None where both are 0.

    A session's cannot be set in some containers, and decides where there are sessions.
    """
    nice = session = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError, ValueError):
        session = int(_SESSION.read_text().rpartition(" ")[2])
    if session != nice:
        return f"nice {nice}, its session {session}"
    return f"nice {nice}" if nice else None
