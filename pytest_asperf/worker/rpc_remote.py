"""A machine that computes for this one: llama.cpp's RPC server, reached or started.

A server serves one connection at a time, and a client that it cannot serve ends its own process
(`GGML_ABORT`), so a server is asked before llama.cpp connects.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from . import received_bytes
from .engine import RefusalError
from .rpc_protocol import greeting_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S: Final = 5.0
_START_S: Final = 30.0
_LOG_S: Final = 2.0
_PROGRAMS: Final = ("ggml-rpc-server", "rpc-server")
#: With a terminal there, the server ends with the connection.
_SSH_OPTIONS: Final = ("-tt", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes")
#: A new graph, and one that is computed again; decoding mostly reuses.
_GRAPH: Final = re.compile(rb"\[graph_(?:re)?compute\]")


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
        folder: of llama.cpp's programs, where a server to start here is looked for before PATH.

    Attributes:
        greeting: what the server said of itself last.
    """

    def __init__(self, address: str, folder: str = "") -> None:
        self.address = address
        self.greeting: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._n_graphs = 0
        self._held: dict[str, socket.socket] = {}
        self._counts_bytes = received_bytes.ARE_COUNTED
        self._folder = folder
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
        port = _free_port() if host else self.port  # there it may be another that is free
        serve = ("-H", "127.0.0.1", "-p", str(port))
        if host:
            tunnel = ("-L", f"{self.port}:127.0.0.1:{port}", *_SSH_OPTIONS)
            there = ("env", "GGML_RPC_DEBUG=1", _PROGRAMS[0], *serve)
            command: tuple[str, ...] = ("ssh", *tunnel, "--", host, *there)
        else:
            places = os.pathsep.join(filter(None, (self._folder, os.environ.get("PATH"))))
            found = (shutil.which(program, path=places) for program in _PROGRAMS)
            program = next(filter(None, found), None)
            if program is None:
                beside = f"in {self._folder} or " if self._folder else ""
                raise RefusalError("remote", f"there is no {_PROGRAMS[0]} {beside}on PATH")
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
            # A tunnel takes connections before the server behind it does.
            with contextlib.suppress(RefusalError):
                self.greet()
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
        """What the server says of itself; refused where it is absent, busy or another program."""
        where = f"the RPC server at {self.endpoint}"
        try:
            with socket.create_connection((self.host, self.port), timeout=_TIMEOUT_S) as link:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # A busy server answers when its client has left, and SIGPIPE would end it if this
                # one had left in peace by then.
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                greeting = greeting_of(link)
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        except TimeoutError as err:
            raise RefusalError(
                "remote", f"{where} does not answer: it serves another client, or hangs"
            ) from err
        except OSError as err:
            reason = err.strerror or err
            raise RefusalError("remote", f"{where} cannot be reached: {reason}") from err
        self.greeting = {"endpoint": self.endpoint, **greeting}
        return self.greeting

    def hold(self, pid: int) -> None:
        """Count what comes over a child's connections as well, until `release`."""
        if not self._counts_bytes:
            return
        try:
            for name, link in received_bytes.held_links(pid, self._peers).items():
                if self._held.setdefault(name, link) is not link:
                    link.close()
        except ProcessLookupError:  # it has ended: it is told by its failure
            return
        except OSError:  # an older kernel, or a sandbox
            self._counts_bytes = False

    def release(self) -> None:
        """Let the connections end that were held."""
        for link in self._held.values():
            link.close()
        self._held.clear()

    @cached_property
    def _peers(self) -> frozenset[tuple[str, int]]:
        """What the kernel calls a host's name."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        return frozenset((str(where[4][0]), self.port) for where in found)

    def work_so_far(self) -> Work:
        """What the server has done for this process."""
        # What comes by RDMA is in no count of TCP's.
        counts = self._counts_bytes and not self.greeting.get("offers_rdma")
        n_bytes = received_bytes.n_received(self._peers) if counts else None
        return Work(n_bytes, self._n_graphs if self._process else None)

    def require_work(self, before: Work, n_steps: int, n_vocab: int) -> None:
        """Refuse a computation in which the server did not do what it must have done.

        Args:
            before: its work before that computation.
            n_steps: steps since, of which each is a graph and sends a row of logits.
            n_vocab: logits of a row.
        """
        came = self.work_so_far()
        ends = time.monotonic() + _LOG_S
        while came.n_graphs is not None and came.n_graphs - (before.n_graphs or 0) < n_steps:
            if time.monotonic() > ends:
                raise RefusalError(
                    "remote",
                    f"{self.endpoint} computed {came.n_graphs - (before.n_graphs or 0)} graphs for "
                    f"{n_steps} steps: something else computed them",
                )
            time.sleep(0.01)  # its log is read by a thread
            came = self.work_so_far()
        n_bytes = 4 * n_steps * n_vocab
        if came.n_bytes is not None and came.n_bytes - (before.n_bytes or 0) < n_bytes:
            raise RefusalError(
                "remote",
                f"{came.n_bytes - (before.n_bytes or 0)} bytes came from {self.endpoint}, and the "
                f"logits alone are {n_bytes}: something else computed them",
            )

    def weights_mib(self, buffers_mib: Mapping[str, Mapping[str, float]]) -> float:
        """MiB of weights that a log says are on the server's devices."""
        weights = buffers_mib.get("model", {})
        here = f"[{self.endpoint}]"
        return sum(mib for name, mib in weights.items() if name.endswith(here))

    def require_weights(self, buffers_mib: Mapping[str, Mapping[str, float]]) -> None:
        """Refuse a model none of whose weights are there: llama.cpp may stay here silently."""
        if not self.weights_mib(buffers_mib) > 0:
            raise RefusalError("remote", f"no weights are on {self.endpoint}: they stayed here")

    @property
    def has_ended(self) -> bool:
        """Whether it was started here and runs no more."""
        return self._process is not None and self._process.poll() is not None

    def close(self) -> None:
        """End the server, if it was started here."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._reader.join()


class Remotes:
    """The servers of a process, each started or reached once; `folder` as of a Remote."""

    def __init__(self, folder: str = "") -> None:
        self._folder = folder
        self._remotes: dict[str, Remote] = {}

    def at(self, address: str) -> Remote:
        """The server at an address; one that was started here and ended is started again."""
        known = self._remotes.get(address)
        if known is None or known.has_ended:
            known = self._remotes[address] = Remote(address, self._folder)
        return known


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
