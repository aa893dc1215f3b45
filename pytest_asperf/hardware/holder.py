"""Who holds the machine: a note in the lock file itself, which every user of the machine can write.

So it is checked, bounded, and believed only of a process that the operating system knows too.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from pytest_asperf.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEY: Final = "pytest-asperf holder"
#: A file that begins otherwise is not ours, and is not written to.
_HEAD: Final = f'{{"{_KEY}": '.encode()
_MAX_BYTES: Final = 2048
_MAX_COMMAND: Final = 160
_MAX_USER: Final = 40
_MAX_PID: Final = 2**31 - 1
#: Clocks are read to hundredths of a second, and by two processes.
_SAME_START_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that noted that it holds the machine; times are seconds since the epoch."""

    pid: int
    started_s: float
    since_s: float
    command: str

    def __str__(self) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(self.since_s))
        state = self.state
        who = f"pid {self.pid}{self.user and f' of {self.user}'} ({self.command})"
        return f"{who}, since {since}{state and f', {state}'}"

    @property
    def user(self) -> str:
        """Whose process it is, as the operating system says; empty where it does not."""
        try:
            return printable(psutil.Process(self.pid).username(), _MAX_USER)
        except psutil.Error:
            return ""

    @property
    def state(self) -> str:
        """``ended`` or ``stopped``; empty where it runs."""
        try:
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.started_s) > _SAME_START_S:
                return "ended"
            status = process.status()
        except psutil.NoSuchProcess:
            return "ended"
        except psutil.Error:
            return ""
        if status == psutil.STATUS_ZOMBIE:
            return "ended"
        return "stopped" if status == psutil.STATUS_STOPPED else ""


@contextmanager
def noted(path: Path) -> Iterator[None]:
    """Note in a lock file that is held that this process holds it; a courtesy that may fail."""
    process = psutil.Process()
    note = {
        _KEY: process.pid,
        "started_s": process.create_time(),
        "since_s": time.time(),
        "command": _command(),
    }
    _write(path, json.dumps(note).encode())
    try:
        yield
    finally:
        _write(path, b"")


def holder_of(path: Path) -> Holder | None:
    """The process that last noted that it holds a lock file."""
    try:
        with _opened(path, os.O_RDONLY) as fd:
            note = json.loads(os.pread(fd, _MAX_BYTES, 0))
        return _holder(note)
    # RecursionError: of a note nested by somebody without need.
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _holder(note: dict[str, object]) -> Holder:
    pid, started_s, since_s = (note[key] for key in (_KEY, "started_s", "since_s"))
    if type(pid) is not int or not 0 < pid <= _MAX_PID:
        raise ValueError
    if type(started_s) is not float or type(since_s) is not float:
        raise TypeError
    time.localtime(since_s)  # OverflowError or ValueError for what is no time
    return Holder(pid, started_s, since_s, printable(note["command"], _MAX_COMMAND))


def _command() -> str:
    program, *words = sys.orig_argv or ["python"]
    return printable(" ".join([Path(program).name, *words]), _MAX_COMMAND)


def _write(path: Path, content: bytes) -> None:
    with suppress(OSError), _opened(path, os.O_RDWR) as fd:
        before = os.pread(fd, len(_HEAD), 0)
        # A link to a file of somebody's would be overwritten: it is taken as a lock and no more.
        if os.fstat(fd).st_nlink == 1 and before in {b"", _HEAD}:
            os.ftruncate(fd, 0)
            os.pwrite(fd, content, 0)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Open a regular file, but no link to one; raises OSError for anything else."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError
        yield fd
    finally:
        os.close(fd)
