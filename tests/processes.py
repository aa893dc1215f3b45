"""Processes that a test did not start itself, and that must end."""

import time

import psutil


def wait_for_end(pid: int, *, within_s: float = 120.0) -> None:
    """Wait until a process has ended, for any reaper.

    Raises:
        AssertionError: it is still there.
    """
    until_s = time.monotonic() + within_s
    while _runs(pid):
        assert time.monotonic() < until_s, f"process {pid} is still there"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
