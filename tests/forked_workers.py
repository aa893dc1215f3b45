"""Workers that import no engine: processes forked from one that has imported it.

Most tests start fresh processes of an engine, whose imports cost 0.05 s of CPU (scripted) or 0.2 s
(llama.cpp, MLX) each, and whose files cost 0.03 s to hash. Here one process for each engine imports
it, hashes them once and forks. A forked process runs the worker with its own pipes, environment,
folder and cores, and is a child of the requesting process, which sees its exit status. So do the
interpreters of `harmful_interpreter.py`.
"""

import ctypes
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from pytest_asperf.engine_process import process
from tests.harmful_interpreter import FORKS, is_harmful

#: The start of a worker as users have it.
START: Final = process.start_interpreter
#: The end of a worker's bootstrap.
_CALL: Final = "main(sys.argv[2:])"
_FORKS: Final = (
    FORKS
    + """import functools, gc, importlib, json, os, socket
asking = socket.socket(fileno=int(sys.argv.pop()))
common = importlib.import_module("asperf_worker.engine")
hashed = functools.cache(common.files_sha256)
common.files_sha256 = lambda paths: hashed(tuple(paths))
own = sys.modules["asperf_worker.main"].ENGINES[sys.argv[2]][0]
for name in (own, ".scoring", ".speculation_ops", ".revisits"):
    importlib.import_module(name, "asperf_worker")
if library_files := getattr(sys.modules["asperf_worker" + own], "library_files", None):
    common.files_sha256(library_files())
gc.freeze()

def forked():
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        child = os.fork()
        if child == 0:
            os.close(reader)
            os.close(writer)
            return 0
        os.write(writer, str(child).encode())
        os._exit(0)
    os.waitpid(between, 0)
    os.close(writer)
    with os.fdopen(reader) as pid:
        return int(pid.read())

while True:
    message, fds, *_ = socket.recv_fds(asking, 1 << 17, 3)
    if not message:
        os._exit(0)
    if (child := forked()) == 0:
        break
    for fd in fds:
        os.close(fd)
    asking.send(str(child).encode())

asking.close()
os.setsid()
request = json.loads(message)
os.environ.clear()
os.environ.update(request["environment"])
os.chdir(request["folder"])
os.sched_setaffinity(0, request["cores"])
os.dup2(fds[-1], 1)
os.dup2(fds[-1], 2)
sys.orig_argv = [*request["before"], *map(str, fds), *request["after"]]
sys.argv = sys.orig_argv[3:]
"""
)
#: A fork ends without the interpreter's own end, which would copy each module in order to free it.
_END: Final = "\nos._exit(0)"
#: The part of a worker's command at which the descriptors begin.
_FDS: Final = 7
_PR_SET_CHILD_SUBREAPER: Final = 36  # prctl(2)
_SETS_VARIABLES: Final = re.compile(
    rf'#!/bin/sh\n((?:\w+=\S+ )+)exec {re.escape(sys.executable)} "\$@"\n'
)


class Adopted:
    """A child of this process that another one forked, with the interface for `EngineProcess`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._waiting = threading.Lock()

    def poll(self) -> int | None:
        """The exit status as `subprocess` has it, or None while the process runs."""
        with self._waiting:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
            return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        """The exit status, once there is one.

        Raises:
            subprocess.TimeoutExpired: the process still runs after so many seconds.
        """
        deadline, pause_s = time.monotonic() + timeout, 0.0005
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("worker", timeout)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.02)
        return status


class Forks:
    """Starts workers of this interpreter as forks, and all others as usual; a context manager."""

    def __init__(self) -> None:
        self._asking: dict[tuple[str, str, int], socket.socket] = {}
        self._started: list[subprocess.Popen[bytes]] = []
        self._one_at_a_time = threading.Lock()

    def start(
        self, command: Sequence[str], fds: Sequence[int], variables: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | Adopted:
        """Start a worker's interpreter; replaces `start_interpreter`."""
        if its := _variables_of(Path(command[0])):
            command = [sys.executable, *command[1:]]
        is_usual = command[0] == sys.executable or is_harmful(Path(command[0]))
        if variables or not is_usual:
            return START(command, fds, variables)
        request = {
            "environment": {**os.environ, **its},
            "folder": str(Path.cwd()),
            "cores": sorted(os.sched_getaffinity(0)),
            "before": command[:_FDS],
            "after": command[_FDS + len(fds) :],
        }
        with self._one_at_a_time, _adopting(), suppress(ConnectionError):
            asking = self._asked(command)
            socket.send_fds(asking, [json.dumps(request).encode()], fds)
            if pid := asking.recv(20):
                return Adopted(int(pid))
        return START(command, fds, its)  # it has the reason why the engine cannot be imported

    def _asked(self, command: Sequence[str]) -> socket.socket:
        """The process that forks workers of the same engine."""
        python, *options, bootstrap, folder, engine = command[: _FDS - 1]
        key = python, engine, os.getpriority(os.PRIO_PROCESS, 0)  # which forks inherit
        if key not in self._asking:
            self._forget_harmful()
            ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            source = bootstrap.replace(_CALL, _FORKS + _CALL + _END)
            words = [python, *options, source, folder, engine, str(its.fileno())]
            quiet = subprocess.DEVNULL
            with its:
                started = subprocess.Popen(
                    words,
                    stdin=quiet,
                    stdout=quiet,
                    stderr=quiet,
                    pass_fds=[its.fileno()],
                    start_new_session=True,
                )
            self._asking[key] = ours
            self._started.append(started)
        return self._asking[key]

    def _forget_harmful(self) -> None:
        """End the processes of earlier tests' interpreters: each has an engine in memory.

        The last one stays, as a gate may compare two of them.
        """
        for key in [key for key in self._asking if key[0] != sys.executable][:-1]:
            self._asking.pop(key).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for asking in self._asking.values():
            asking.close()
        for started in self._started:
            started.wait()


def _variables_of(python: Path) -> dict[str, str]:
    """The variables that a shell script sets for this interpreter; none if it is no such script."""
    with suppress(OSError), python.open("rb") as file:
        text = file.read(1000).decode(errors="replace")
        if script := _SETS_VARIABLES.fullmatch(text):
            return dict(re.findall(r"(\w+)=(\S+) ", script[1]))
    return {}


@contextmanager
def _adopting() -> Iterator[None]:
    """Become the parent of processes that a descendant forks and leaves behind."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
