"""One measurement at a time on one machine, whoever asks: xdist, two sessions, two users."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from pytest_asperf.errors import CacheError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL_INTERVAL_S: Final = 0.5


def machine_lock_path() -> Path:
    """Return the lock's path: one for the machine, so the temporary folder all users share."""
    shared = Path("/tmp")  # noqa: S108  # the lock holds no data, and must be the same for all
    return (shared if shared.is_dir() else Path(tempfile.gettempdir())) / "pytest-asperf.lock"


@contextmanager
def machine_turn(lock_path: Path, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the machine for one measurement.

    Args:
        lock_path: the machine's lock file.
        on_wait: told once, when another measurement is running.

    Raises:
        CacheError: the lock file cannot be made.
    """
    lock = FileLock(lock_path, mode=0o666)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            on_wait(f"another measurement is running on this machine ({lock_path})")
            # Whoever waits must not disturb what it waits for.
            lock.acquire(poll_interval=_POLL_INTERVAL_S)
    except OSError as err:
        raise CacheError(
            f"the machine's measurement lock {lock_path} cannot be taken: {err.strerror}",
            why="two measurements at once disturb each other",
            remedy=f"make the file writable for user {os.getuid()}, or remove it",
        ) from err
    try:
        yield
    finally:
        lock.release()
