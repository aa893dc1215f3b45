"""One measurement at a time on one machine, for all callers: xdist, two sessions, two users.

A note in the lock file names the process that has the lock. Every user of the machine can write the
note, so it is checked and bounded, and believed only if the operating system lists the process too.
"""

import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from filelock import FileLock, Timeout

from pytest_asperf.errors import Advice, BusyError, CacheError, printable

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
    """The process in a lock's note; times are seconds since the epoch."""

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
        """The process's user, by the operating system; empty if unknown."""
        try:
            return printable(psutil.Process(self.pid).username(), _MAX_USER)
        except psutil.Error:
            return ""

    @property
    def is_sibling(self) -> bool:
        """True if one process started it and this one: xdist's workers, which take turns."""
        try:
            return psutil.Process(self.pid).ppid() == os.getppid()
        except psutil.Error:
            return False

    @property
    def state(self) -> str:
        """``ended`` or ``stopped``; empty if it runs."""
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
    """Write this process into the note of its locked file; a courtesy that may fail."""
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
    """The process in the last note of a lock file."""
    try:
        with _opened(path, os.O_RDONLY) as fd:
            note = json.loads(os.pread(fd, _MAX_BYTES, 0))
        return _holder(note)
    # RecursionError: for a deeply nested note.
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _holder(note: dict[str, object]) -> Holder:
    pid, started_s, since_s = (note[key] for key in (_KEY, "started_s", "since_s"))
    if type(pid) is not int or not 0 < pid <= _MAX_PID:
        raise ValueError
    if type(started_s) is not float or type(since_s) is not float:
        raise TypeError
    time.localtime(since_s)  # OverflowError or ValueError for an invalid time
    return Holder(pid, started_s, since_s, printable(note["command"], _MAX_COMMAND))


def _command() -> str:
    program, *words = sys.orig_argv or ["python"]
    return printable(" ".join([Path(program).name, *words]), _MAX_COMMAND)


def _write(path: Path, content: bytes) -> None:
    with suppress(OSError), _opened(path, os.O_RDWR) as fd:
        before = os.pread(fd, len(_HEAD), 0)
        # A link to another user's file would be overwritten: it is locked and not written.
        if os.fstat(fd).st_nlink == 1 and before in {b"", _HEAD}:
            os.ftruncate(fd, 0)
            os.pwrite(fd, content, 0)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Open a regular file, but no link to one; raises OSError for any other file."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError
        yield fd
    finally:
        os.close(fd)


#: Waiting must not disturb the measurement that it waits for.
_POLL_INTERVAL_S: Final = 0.5
_WAIT_S: Final = 600.0


def machine_lock_path() -> Path:
    """The lock's path: one for the machine, so the temporary folder all users share."""
    shared = Path("/tmp")  # noqa: S108  # the lock must be the same for all
    return (shared if shared.is_dir() else Path(tempfile.gettempdir())) / "pytest-asperf.lock"


class MachineQueue:
    """The queue of measurements that wait for one another.

    The time limit starts again whenever the machine changes hands: a queue that moves is no hang.
    Once it is over, later measurements do not wait for the same holder again.

    Args:
        on_wait: called once for each process that has the lock, and once the machine is free.
        limit_s: time after which waiting for one holder is given up.
    """

    def __init__(
        self, lock_path: Path, on_wait: Callable[[str], None], limit_s: float = _WAIT_S
    ) -> None:
        self._path = lock_path
        self._on_wait = on_wait
        self._limit_s = limit_s
        self._given_up: list[Holder | None] = []

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Lock the machine for one measurement.

        Raises:
            BusyError: another process has it for too long.
            CacheError: the lock file cannot be made.
        """
        lock = FileLock(self._path, mode=0o666)
        try:
            self._acquire(lock)
        except OSError as err:
            raise CacheError(
                f"the machine's measurement lock {self._path} is not available: {err.strerror}",
                why="two measurements at once disturb each other",
                remedy=f"make the file writable for user {os.getuid()}, or remove it",
            ) from err
        try:
            with noted(self._path):
                yield
        finally:
            lock.release()

    def _acquire(self, lock: FileLock) -> None:
        began_s = time.monotonic()
        holder, since_s = None, began_s
        named: set[int | None] = set()
        while not _taken(lock):
            now_s = time.monotonic()
            newest = holder_of(self._path)
            if newest != holder:
                holder, since_s = newest, now_s
            left_s = self._limit_s - (now_s - since_s)
            if left_s <= 0 or holder in self._given_up:
                self._given_up = [holder]
                raise _busy(self._path, holder, self._limit_s)
            pid = holder.pid if holder else None
            if pid not in named and (holder or not named):  # it may lock it repeatedly
                named.add(pid)
                self._on_wait(
                    f"another measurement is running on this machine: {holder or self._path}; "
                    f"giving up after {self._limit_s:.0f} s"
                )
            time.sleep(min(_POLL_INTERVAL_S, left_s))
        if named:
            self._on_wait(f"the machine is free after {time.monotonic() - began_s:.0f} s")


@contextmanager
def alone(path: Path, what: str, *, remedy: str) -> Iterator[None]:
    """Lock the work on a file; a BusyError with the remedy if another process is at it."""
    lock_path = path.with_suffix(".lock")
    lock = FileLock(lock_path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_taken = _taken(lock)
    except OSError as error:
        raise CacheError(
            f"the lock of {what} is not available: {error.strerror}",
            why="two at once would disturb each other",
            remedy=f"make {path.parent} writable, or set ASPERF_CACHE to another folder",
        ) from error
    if not is_taken:
        raise BusyError(
            f"{what} is running already: {holder_of(lock_path) or path}",
            why="two at once would disturb each other",
            remedy=remedy,
        )
    try:
        with noted(lock_path):
            yield
    finally:
        lock.release()


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True


def _busy(path: Path, holder: Holder | None, limit_s: float) -> BusyError:
    if holder is None:
        remedy = f"find the process that has the lock: fuser {path}"
    elif holder.state == "ended":
        remedy = f"another process has the lock since pid {holder.pid} ended: fuser {path}"
    elif holder.state:
        remedy = f"resume it (kill -CONT {holder.pid}), or end it (kill -KILL {holder.pid})"
    else:
        remedy = f"wait until it is over, or end it (kill {holder.pid})"
    return BusyError(
        f"gave up after waiting {limit_s:.0f} s for another measurement on this machine: "
        f"{holder or path}",
        why="two measurements at once disturb each other",
        remedy=Advice(f"{remedy}, or wait longer", wait="30min"),
    )
