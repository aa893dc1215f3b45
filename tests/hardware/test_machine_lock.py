"""Waiting for the machine: the process that has it, the time, and the end of the wait."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_asperf.errors import BusyError
from pytest_asperf.hardware.machine_lock import MachineQueue, holder_of, noted

#: Locks until it is ended, and prints when it has the lock; with a word, a forked child lives on.
HOLDER = """
import os, sys, time
from pathlib import Path
from pytest_asperf.hardware.machine_lock import MachineQueue
with MachineQueue(Path(sys.argv[1]), print).turn():
    if sys.argv[2:] and os.fork():
        time.sleep(60)
    print(os.getpid(), flush=True)
    time.sleep(60)
"""


class Clock:
    """A clock that advances by sleeping, and by nothing else."""

    localtime = staticmethod(time.localtime)
    strftime = staticmethod(time.strftime)

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        """Advance the time."""
        self.now_s += duration_s


@contextmanager
def _held(lock: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start another process that locks; returns it, and the pid of a child that may outlive it."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, lock, *words], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    last = int(holder.stdout.readline())
    try:
        yield holder, last
    finally:
        for pid in {holder.pid, last}:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
        holder.communicate()


def _take(lock: Path, limit_s: float = 0.0) -> None:
    with MachineQueue(lock, lambda _: None, limit_s).turn():
        pass


def test_the_error_names_the_holder(tmp_path: Path) -> None:
    """Pid, command and time of the holder, and the option that waits longer."""
    lock = tmp_path / "lock"
    with _held(lock) as (holder, _), pytest.raises(BusyError) as error:
        _take(lock)
    text = str(error.value)
    command = os.path.basename(sys.executable)  # noqa: PTH119  # as a process list shows it
    user = psutil.Process().username()
    assert f"pid {holder.pid} of {user} ({command} -c " in text
    assert ", since " in text
    assert f"kill {holder.pid}" in text
    assert "wait = 30min" in text


def test_a_wait_is_printed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message for minutes, with the process and the maximal wait: a log is not filled."""
    lock = tmp_path / "lock"
    told: list[str] = []
    monkeypatch.setattr("pytest_asperf.hardware.machine_lock.time", Clock())
    queue = MachineQueue(lock, told.append, limit_s=200)
    with _held(lock) as (holder, _), pytest.raises(BusyError), queue.turn():
        pass
    (text,) = told
    assert f"pid {holder.pid} " in text
    assert text.endswith("; giving up after 200 s")


def test_the_end_of_a_wait_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a wait the time is printed; without one nothing is."""
    lock, told = tmp_path / "lock", list[str]()
    queue = MachineQueue(lock, told.append)
    with queue.turn():
        pass
    assert not told
    taken = iter((False, False, True))
    monkeypatch.setattr("pytest_asperf.hardware.machine_lock._taken", lambda _: next(taken))
    with queue.turn():
        pass
    assert len(told) == 2
    assert re.fullmatch(r"the machine is free after [01] s", told[1])


def test_a_stopped_holder_is_called_stopped(tmp_path: Path) -> None:
    """A process after SIGSTOP does not block for ever, and the error has the way to resume."""
    lock = tmp_path / "lock"
    with _held(lock) as (holder, _):
        holder.send_signal(signal.SIGSTOP)
        while psutil.Process(holder.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        with pytest.raises(BusyError, match=r"since [\d:]+, stopped") as error:
            _take(lock)
        assert f"kill -CONT {holder.pid}" in str(error.value)


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    """The lock is free when its process is killed, for any note in it."""
    lock = tmp_path / "lock"
    with _held(lock) as (holder, _):
        holder.kill()
        holder.wait()
        assert holder_of(lock) is not None
        _take(lock)
        assert holder_of(lock) is None


def test_a_fork_of_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    """A child that lives on does not keep the lock of its parent."""
    pytest.importorskip("filelock", minversion="4")  # others keep it: the error names it
    lock = tmp_path / "lock"
    with _held(lock, "fork") as (holder, child):
        holder.kill()
        holder.wait()
        assert psutil.pid_exists(child)
        _take(lock)


def test_a_lock_that_outlives_its_holder_is_explained(tmp_path: Path) -> None:
    """If another process has the lock of one that ended, the error has the command to find it."""
    lock = tmp_path / "lock"
    with _held(lock) as (holder, _):
        holder.kill()
        holder.wait()
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(BusyError, match=f"pid {holder.pid} .*, ended") as error:
                _take(lock)
    assert f"fuser {lock}" in str(error.value)


def test_the_same_holder_is_waited_for_once(tmp_path: Path) -> None:
    """The second measurement of a session does not wait for a process that the first gave up on."""
    lock = tmp_path / "lock"
    told: list[str] = []
    queue = MachineQueue(lock, told.append, 0.2)
    with _held(lock):
        for _ in range(2):
            with pytest.raises(BusyError), queue.turn():
                pass
    assert len(told) == 1
    with queue.turn():
        assert holder_of(lock) is not None


@pytest.mark.parametrize(
    "note",
    [
        "\x1b[2Jnot JSON",
        "[" * 1000,
        "null",
        "{}",
        json.dumps({"pytest-asperf holder": "1", "started_s": 1.0, "since_s": 1.0, "command": ""}),
        json.dumps({"pytest-asperf holder": 10**30, "started_s": 1.0, "since_s": 1.0}),
        json.dumps({"pytest-asperf holder": 1, "started_s": 1.0, "since_s": 1e300, "command": "x"}),
        '{"pytest-asperf holder": 1, "started_s": 1.0, "since_s": NaN, "command": "x"}',
    ],
)
def test_a_note_of_another_kind_is_no_holder(tmp_path: Path, note: str) -> None:
    """Any user can write to the file: other text is left out."""
    (tmp_path / "lock").write_text(note)
    assert holder_of(tmp_path / "lock") is None


def test_a_noted_command_is_escaped_and_bounded(tmp_path: Path) -> None:
    """A command line from outside cannot write to the terminal."""
    note: dict[str, Any] = {"pytest-asperf holder": os.getpid(), "started_s": 1.0, "since_s": 1.0}
    (tmp_path / "lock").write_text(json.dumps(note | {"command": "\x1b]0;" + "x" * 999}))
    holder = holder_of(tmp_path / "lock")
    assert holder is not None
    assert len(str(holder)) < 250
    assert str(holder).isprintable()
    assert holder.state == "ended"  # another process had that number


@pytest.mark.parametrize("kind", ["symlink", "hard link", "foreign"])
def test_no_other_file_is_written_to(tmp_path: Path, kind: str) -> None:
    """A lock path that leads to another user's file is not written through."""
    lock, file = tmp_path / "lock", tmp_path / "precious"
    file.write_text("precious")
    if kind == "symlink":
        lock.symlink_to(file)
    elif kind == "hard link":
        file.write_text("")
        lock.hardlink_to(file)
    else:
        file.rename(lock)
        file = lock
    before = file.read_text()
    with noted(lock):
        assert file.read_text() == before
    assert file.read_text() == before
