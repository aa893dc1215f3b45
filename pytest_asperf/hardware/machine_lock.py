"""One measurement at a time on one machine, whoever asks: xdist, two sessions, two users."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from pytest_asperf.errors import Advice, BusyError, CacheError
from pytest_asperf.hardware.holder import Holder, holder_of, noted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Whoever waits must not disturb what it waits for.
_POLL_INTERVAL_S: Final = 0.5
_REPEAT_S: Final = 60.0
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
        on_wait: called with a message that names the holder, at once and then every `repeat_s`.
        limit_s: time after which waiting for one holder is given up.
    """

    def __init__(
        self,
        lock_path: Path,
        on_wait: Callable[[str], None],
        limit_s: float = _WAIT_S,
        *,
        repeat_s: float = _REPEAT_S,
    ) -> None:
        self._path = lock_path
        self._on_wait = on_wait
        self._limit_s = limit_s
        self._repeat_s = repeat_s
        self._given_up: list[Holder | None] = []

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the machine for one measurement.

        Raises:
            BusyError: another process holds it for too long.
            CacheError: the lock file cannot be made.
        """
        lock = FileLock(self._path, mode=0o666)
        try:
            self._acquire(lock)
        except OSError as err:
            raise CacheError(
                f"the machine's measurement lock {self._path} cannot be taken: {err.strerror}",
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
        holder, since_s, next_s, named_pid = None, began_s, 0.0, None
        while not _taken(lock):
            now_s = time.monotonic()
            newest = holder_of(self._path)
            if newest != holder:
                holder, since_s = newest, now_s
            left_s = self._limit_s - (now_s - since_s)
            if left_s <= 0 or holder in self._given_up:
                self._given_up = [holder]
                raise _busy(self._path, holder, self._limit_s)
            # A process that takes many turns is named once, and again as often as others.
            if now_s >= next_s or (holder and holder.pid != named_pid):
                next_s, named_pid = now_s + self._repeat_s, holder and holder.pid
                self._on_wait(
                    f"another measurement is running on this machine: {holder or self._path}; "
                    f"giving up after {self._limit_s:.0f} s"
                )
            time.sleep(min(_POLL_INTERVAL_S, left_s))
        if next_s:
            self._on_wait(f"the machine is free after {time.monotonic() - began_s:.0f} s")


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True


def _busy(path: Path, holder: Holder | None, limit_s: float) -> BusyError:
    if holder is None:
        remedy = f"find out who holds the lock: fuser {path}"
    elif holder.state == "ended":
        remedy = f"another process holds the lock since pid {holder.pid} ended: fuser {path}"
    elif holder.state:
        remedy = f"let it go on (kill -CONT {holder.pid}), or end it (kill -KILL {holder.pid})"
    else:
        remedy = f"wait until it is over, or end it (kill {holder.pid})"
    return BusyError(
        f"gave up after waiting {limit_s:.0f} s for another measurement on this machine: "
        f"{holder or path}",
        why="two measurements at once disturb each other",
        remedy=Advice(f"{remedy}, or wait longer", wait="30min"),
    )
