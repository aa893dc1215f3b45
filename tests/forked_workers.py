"""Workers that import no engine: processes forked from one that has imported it.

Most tests start fresh processes of an engine, whose imports cost 0.05 s of CPU (scripted) or 0.2 s
(llama.cpp, MLX) each, and whose files cost 0.03 s to hash. Here one process for each engine imports
it, hashes them once and forks. A forked process runs the worker with its own pipes, environment,
folder and cores, and is a child of the requesting process, which sees its exit status. So do the
interpreters of `harmful_interpreter.py`.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from pytest_asperf.engine_process import process
from tests.fork_server import LOOP, ForkServer, ForkServers
from tests.harmful_interpreter import may_be_forked

#: The start of a worker as users have it.
START: Final = process.start_interpreter
#: The end of a worker's bootstrap.
_CALL: Final = "main(sys.argv[2:])"
_FORKS: Final = (
    """import functools, importlib
common = importlib.import_module("asperf_worker.engine")
hashed = functools.cache(common.files_sha256)
common.files_sha256 = lambda paths: hashed(tuple(paths))
own = sys.modules["asperf_worker.main"].ENGINES[sys.argv[2]][0]
for name in (own, ".scoring", ".speculation_ops", ".revisits"):
    importlib.import_module(name, "asperf_worker")
if library_files := getattr(sys.modules["asperf_worker" + own], "library_files", None):
    common.files_sha256(library_files())
"""
    + LOOP
    + """
os.setsid()
os.dup2(fds[-1], 1)
os.dup2(fds[-1], 2)
sys.orig_argv = [*request["before"], *map(str, fds), *request["after"]]
sys.argv = sys.orig_argv[3:]
if request["is_harmful"]:
    if own == ".llama_cpp_engine":
        # The functions that the engine uses; the package has only copies of them.
        sys.modules["llama_cpp"] = sys.modules["asperf_worker.llama_cpp_bindings"].llama_cpp
    sys.argv = sys.orig_argv
    with open(sys.argv[0]) as program:
        exec(program.read(), {"__name__": "__main__"})
else:
    main(sys.argv[2:])
# Without the interpreter's own end, which would copy each module in order to free it.
os._exit(0)
"""
)
#: The part of a worker's command at which the descriptors begin.
_FDS: Final = 7
_SETS_VARIABLES: Final = re.compile(
    rf'#!/bin/sh\n((?:\w+=\S+ )+)exec {re.escape(sys.executable)} "\$@"\n'
)


class Adopted:
    """A child of this process that a server forked, with the interface for `EngineProcess`."""

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


class Forks(ForkServers):
    """Starts workers of this interpreter as forks, and all others as usual; a context manager."""

    def start(
        self, command: Sequence[str], fds: Sequence[int], variables: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | Adopted:
        """Start a worker's interpreter; replaces `start_interpreter`."""
        if its := _variables_of(Path(command[0])):
            command = [sys.executable, *command[1:]]
        is_harmful = may_be_forked(Path(command[0]))
        if variables or not (is_harmful or command[0] == sys.executable):
            return START(command, fds, variables)
        before, after = command[:_FDS], command[_FDS + len(fds) :]
        pid = self._server(command).fork(
            os.environ | its,
            str(Path.cwd()),
            fds,
            before=before,
            after=after,
            is_harmful=is_harmful,
        )
        # A start has the reason why the engine cannot be imported.
        return Adopted(pid) if pid else START(command, fds, its)

    def _server(self, command: Sequence[str]) -> ForkServer:
        """The process that forks workers of the same engine."""
        _, *options, bootstrap, folder, engine = command[: _FDS - 1]
        key = engine, os.getpriority(os.PRIO_PROCESS, 0)  # which forks inherit
        words = [sys.executable, *options, bootstrap.replace(_CALL, _FORKS), folder, engine]
        # A thread for BLAS would be lost in a fork.
        variables = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        return self.server(key, partial(ForkServer, words, variables, own_session=True))


def _variables_of(python: Path) -> dict[str, str]:
    """The variables that a shell script sets for this interpreter; none if it is no such script."""
    with suppress(OSError), python.open("rb") as file:
        text = file.read(1000).decode(errors="replace")
        if script := _SETS_VARIABLES.fullmatch(text):
            return dict(re.findall(r"(\w+)=(\S+) ", script[1]))
    return {}
