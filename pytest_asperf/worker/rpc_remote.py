"""A machine that computes for this one: llama.cpp's RPC server, reached or started.

The protocol is that of ggml-rpc.cpp: a command's byte, the length of what follows in 8 bytes, and
that; an answer has no command. HELLO comes first and answers with the version. A server serves one
connection at a time, and a client that it cannot serve ends its own process (`GGML_ABORT`), so a
server is asked before the library connects.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .engine import RefusalError

_HELLO: Final = 14
_DEVICE_COUNT: Final = 15
#: `conn_caps` of the request, and three numbers, a blank and `conn_caps` of the answer.
_CAPS_BYTES: Final = 24
_HELLO_ANSWER: Final = 4 + _CAPS_BYTES
_TIMEOUT_S: Final = 5.0
_START_S: Final = 30.0
_PINGS: Final = 20
_LOG_S: Final = 2.0
_PROGRAMS: Final = ("ggml-rpc-server", "rpc-server")
#: With a terminal there, the server ends with the connection.
_SSH_OPTIONS: Final = ("-tt", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes")
#: A new graph, and one that is computed again; decoding mostly reuses.
_GRAPH: Final = re.compile(rb"\[graph_(?:re)?compute\]")
#: Offsets in Linux's `struct tcp_info`.
_TCP_INFO: Final = 11
_ACKED_AND_RECEIVED: Final = 120


@dataclass(frozen=True, slots=True)
class Work:
    """What a server has done, as far as it is known.

    Attributes:
        n_bytes: bytes that came over the open connections, by the kernel's count (Linux).
        n_graphs: graphs that it computed, by its log, where it was started here.
    """

    n_bytes: int | None
    n_graphs: int | None


class Remote:
    """An RPC server at an address.

    Args:
        address: `host:port` of one that runs; `loopback` to start one here; `ssh:HOST` to start
            one there, on its own loopback, through a tunnel.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._process: subprocess.Popen[bytes] | None = None
        self._n_graphs = 0
        if address == "loopback" or address.startswith("ssh:"):
            self.host, self.port = "127.0.0.1", _free_port()
            self._start(address.removeprefix("ssh:") if ":" in address else "")
        else:
            host, _, port = address.removeprefix("public:").rpartition(":")
            self.host, self.port = host.strip("[]"), int(port)

    @property
    def endpoint(self) -> str:
        """The address as llama.cpp takes it."""
        return f"{self.host}:{self.port}"

    def _start(self, host: str) -> None:
        serve = ("-H", "127.0.0.1", "-p", str(self.port))
        if host:
            tunnel = ("-L", f"{self.port}:127.0.0.1:{self.port}", *_SSH_OPTIONS)
            there = ("env", "GGML_RPC_DEBUG=1", _PROGRAMS[0], *serve)
            command: tuple[str, ...] = ("ssh", *tunnel, "--", host, *there)
        else:
            program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
            if program is None:
                raise RefusalError("remote", f"there is no {_PROGRAMS[0]} on PATH")
            command = (program, *serve)
        self._last_line = b""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "GGML_RPC_DEBUG": "1"},
        )
        self._reader = threading.Thread(target=self._count, args=(self._process,), daemon=True)
        self._reader.start()
        ends = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < ends:
            with contextlib.suppress(OSError):
                socket.create_connection((self.host, self.port), timeout=1.0).close()
                return
            time.sleep(0.05)
        said = self._last_line.decode(errors="replace")[:200]
        self.close()
        raise RefusalError("remote", f"{' '.join(command[:2])} … does not serve: {said}")

    def _count(self, process: subprocess.Popen[bytes]) -> None:
        with process.stdout or contextlib.nullcontext(()) as lines:
            for line in lines:
                if _GRAPH.search(line):
                    self._n_graphs += 1
                elif line.strip():
                    self._last_line = line.strip()

    def greet(self) -> dict[str, Any]:
        """What the server says of itself; refused where it is absent, busy or another program.

        The round trip is the median of small requests, in microseconds.
        """
        where = f"the RPC server at {self.endpoint}"
        try:
            with socket.create_connection((self.host, self.port), timeout=_TIMEOUT_S) as link:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                version = _ask(link, _HELLO, bytes(_CAPS_BYTES), _HELLO_ANSWER)[:3]
                trips_ns = []
                for _ in range(_PINGS):
                    began_ns = time.perf_counter_ns()
                    _ask(link, _DEVICE_COUNT, b"", 4)
                    trips_ns.append(time.perf_counter_ns() - began_ns)
        except TimeoutError as err:
            raise RefusalError(
                "remote", f"{where} does not answer: it serves another client, or hangs"
            ) from err
        except OSError as err:
            reason = err.strerror or err
            raise RefusalError("remote", f"{where} cannot be reached: {reason}") from err
        return {
            "endpoint": self.endpoint,
            "protocol": ".".join(map(str, version)),
            "round_trip_us": statistics.median(trips_ns) / 1000,
        }

    def work_so_far(self) -> Work:
        """What the server has done for this process."""
        n_bytes = None
        if sys.platform == "linux":
            n_bytes = sum(map(self._received_by, Path("/proc/self/fd").iterdir()))
        return Work(n_bytes, self._n_graphs if self._process else None)

    def _received_by(self, descriptor: Path) -> int:
        with contextlib.suppress(OSError):
            if not str(descriptor.readlink()).startswith("socket:"):
                return 0
            with socket.socket(fileno=os.dup(int(descriptor.name))) as link:
                if link.getpeername()[:2] == (self.host, self.port):
                    info = link.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 256)
                    n_received: int = struct.unpack_from("=QQ", info, _ACKED_AND_RECEIVED)[1]
                    return n_received
        return 0

    def require_work(self, before: Work, n_bytes: int) -> None:
        """Refuse a computation in which the server did not do what it must have done.

        Args:
            before: its work before that computation.
            n_bytes: bytes of logits that it has sent since.
        """
        came = self.work_so_far()
        ends = time.monotonic() + _LOG_S
        while came.n_graphs is not None and came.n_graphs == before.n_graphs:
            if time.monotonic() > ends:
                raise RefusalError("remote", f"{self.endpoint} computed no graph for it")
            time.sleep(0.01)  # its log is read by a thread
            came = self.work_so_far()
        if came.n_bytes is not None and came.n_bytes - (before.n_bytes or 0) < n_bytes:
            raise RefusalError(
                "remote",
                f"{came.n_bytes - (before.n_bytes or 0)} bytes came from {self.endpoint}, and the "
                f"logits alone are {n_bytes}: something else computed them",
            )

    def close(self) -> None:
        """End the server, if it was started here."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._reader.join()


def _ask(link: socket.socket, command: int, payload: bytes, n_answer: int) -> bytes:
    link.sendall(struct.pack("<BQ", command, len(payload)) + payload)
    (length,) = struct.unpack("<Q", _exactly(link, 8))
    if length != n_answer:
        raise OSError(f"it answers with {length} bytes, not {n_answer}: another protocol")
    return _exactly(link, n_answer)


def _exactly(link: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        part = link.recv(n - len(data))
        if not part:
            raise OSError("it closed the connection: another protocol, or an older version")
        data += part
    return data


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
