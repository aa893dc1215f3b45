"""A process that has imported what others need and forks them; Linux alone.

A forked process is a child of the process that started the server, which sees its exit status.
"""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

#: The end of the server's program, and the start of a fork's. A fork has `request` and `fds`.
LOOP: Final = """
import ctypes, gc, json, os, signal, socket, sys
asking = socket.socket(fileno=int(sys.argv.pop()))
gc.freeze()

def forked():
    # As `os.fork`, but the new process is a child of the server's parent: clone(2).
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    pid = ctypes.PyDLL(None).syscall(number, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
    python.PyOS_AfterFork_Parent() if pid else python.PyOS_AfterFork_Child()
    return pid

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
request = json.loads(message)
os.environ.clear()
os.environ.update(request["environment"])
os.chdir(request["folder"])
os.sched_setaffinity(0, request["cores"])
"""


class ForkServer:
    """A running server.

    Args:
        command: starts its program, and gets one more argument.
        environment: its environment.
        own_session: True if it is not in this process's session and group.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, own_session: bool
    ) -> None:
        self._one_at_a_time = threading.Lock()
        self._asking, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        quiet = subprocess.DEVNULL
        with its:
            self._started = subprocess.Popen(
                [*command, str(its.fileno())],
                env=environment,
                stdin=quiet,
                stdout=quiet,
                stderr=quiet,
                pass_fds=[its.fileno()],
                start_new_session=own_session,
            )

    def fork(
        self, environment: Mapping[str, str], folder: str, fds: Sequence[int], **more: Any
    ) -> int:
        """Fork a process; its PID, or 0 if the server could not import its modules.

        Args:
            environment: that of the process.
            folder: in which it runs.
            fds: of this process; the fork has copies of them.
            more: what its program needs.
        """
        request = {
            "environment": dict(environment),
            "folder": folder,
            "cores": sorted(os.sched_getaffinity(0)),
            **more,
        }
        try:
            with self._one_at_a_time:
                socket.send_fds(self._asking, [json.dumps(request).encode()], fds)
                return int(self._asking.recv(20) or 0)
        except ConnectionError:
            return 0

    def close(self) -> None:
        """End it; its forks go on."""
        self._asking.close()
        self._started.wait()


class ForkServers:
    """The servers that were started, each with a key; a context manager."""

    def __init__(self) -> None:
        self._servers: dict[object, ForkServer] = {}
        self._one_at_a_time = threading.Lock()

    def server(self, key: object, start: Callable[[], ForkServer]) -> ForkServer:
        """The server with this key, started the first time."""
        with self._one_at_a_time:
            if key not in self._servers:
                self._servers[key] = start()
            return self._servers[key]

    def close(self) -> None:
        """End them; their forks go on."""
        for server in self._servers.values():
            server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
