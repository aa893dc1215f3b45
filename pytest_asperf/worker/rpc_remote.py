"""A machine that computes for this one: llama.cpp's RPC server, reached or started.

A server serves one connection at a time, and a client that it cannot serve ends its own process
(`GGML_ABORT`), so a server gets a request before llama.cpp connects. Programs get their options,
and show that the machine computed.
"""

from __future__ import annotations

import contextlib
import ctypes
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
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .engine import RefusalError
from .printed.engine_log import buffers_mib
from .tool_process import own_libraries

if TYPE_CHECKING:
    from .tool_process import Toolbox, ToolRun


#: Offsets in Linux's `struct tcp_info`.
_TCP_INFO: Final = 11
_ACKED_AND_RECEIVED: Final = 120
#: The same on every architecture; Python has no name for it.
_PIDFD_GETFD: Final = 438

ARE_COUNTED: Final = sys.platform == "linux"


def n_received(peers: Container[tuple[str, int]]) -> int:
    """Bytes that came over this process's open connections to an address."""
    total = 0
    for _, link in _links_of(os.getpid(), peers):
        with link:
            info = link.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 256)
            total += struct.unpack_from("=QQ", info, _ACKED_AND_RECEIVED)[1]
    return total


def _links_of(pid: int, peers: Container[tuple[str, int]]) -> Iterator[tuple[str, socket.socket]]:
    """A copy of each of a process's connections to an address, by the kernel's name of it.

    A child's stay open, and are counted as this process's own.

    Raises:
        OSError: the kernel does not hand them over.
    """
    seen = set()
    for descriptor in list(Path(f"/proc/{pid}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):
            name = str(descriptor.readlink())
            if not name.startswith("socket:") or name in seen:
                continue
            seen.add(name)
            link = socket.socket(fileno=_copied(pid, int(descriptor.name)))
            if _peer(link) in peers:
                yield name, link
            else:
                link.close()


def _peer(link: socket.socket) -> tuple[str, int] | None:
    with contextlib.suppress(OSError):  # it is connected to nothing
        peer = link.getpeername()
        return peer[:2] if isinstance(peer, tuple) else None
    return None


def _copied(pid: int, descriptor: int) -> int:
    if pid == os.getpid():
        return os.dup(descriptor)
    process = os.pidfd_open(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        copy: int = libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
        if copy < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return copy
    finally:
        os.close(process)


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
    """The work of a server, as far as it is known."""

    n_bytes: int | None  #: bytes that came over the open connections, by the kernel's count (Linux)
    n_graphs: int | None  #: graphs that it computed, by its log, if it was started here


class Remote:
    """An RPC server at an address.

    Args:
        address: `host:port` of one that runs; `loopback` to start one here; `ssh:HOST` to start one
            there, on its own loopback, through a tunnel.
        folder: of llama.cpp's binaries, which is searched before PATH for a server to start here.
    """

    def __init__(self, address: str, folder: str = "") -> None:
        self.address = address
        self.greeting: dict[str, Any] = {}  #: the server's last facts about itself
        self._process: subprocess.Popen[bytes] | None = None
        self._n_graphs = 0
        self._held: dict[str, socket.socket] = {}
        self._counts_bytes = ARE_COUNTED
        self._folder = folder
        if address == "loopback" or address.startswith("ssh:"):
            self.host, self.port = "127.0.0.1", _free_port()
            self._start(address.removeprefix("ssh:") if ":" in address else "")
        else:
            host, _, port = address.removeprefix("public:").rpartition(":")
            self.host, self.port = host.strip("[]"), int(port)

    @property
    def endpoint(self) -> str:
        """The address in llama.cpp's form."""
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
            env={**os.environ, **own_libraries(Path(command[0]).parent), "GGML_RPC_DEBUG": "1"},
        )
        self._reader = threading.Thread(target=self._count, args=(self._process,), daemon=True)
        self._reader.start()
        ends = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < ends:
            # A tunnel accepts connections before the server behind it does.
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
        """The server's report about itself; an error if it is absent, busy or another program."""
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
        """Count the bytes over a child's connections as well, until `release`."""
        if not self._counts_bytes:
            return
        try:
            for name, link in _links_of(pid, self._peers):
                if self._held.setdefault(name, link) is not link:
                    link.close()
        except ProcessLookupError:  # it has ended: its failure is the answer
            return
        except OSError:  # an older kernel, or a sandbox
            self._counts_bytes = False

    def release(self) -> None:
        """Allow the kept connections to end."""
        for link in self._held.values():
            link.close()
        self._held.clear()

    @cached_property
    def _peers(self) -> frozenset[tuple[str, int]]:
        """The kernel's form of a host's name."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        return frozenset((str(where[4][0]), self.port) for where in found)

    def work_so_far(self) -> Work:
        """The server's work for this process."""
        # TCP's counters do not include RDMA.
        counts = self._counts_bytes and not self.greeting.get("offers_rdma")
        n_bytes = n_received(self._peers) if counts else None
        return Work(n_bytes, self._n_graphs if self._process else None)

    def require_work(self, before: Work, n_steps: int, n_vocab: int) -> None:
        """Reject a computation in which the server did not do its part.

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
                    f"{n_steps} steps: another device computed them",
                )
            time.sleep(0.01)  # its log is read by a thread
            came = self.work_so_far()
        n_bytes = 4 * n_steps * n_vocab
        if came.n_bytes is not None and came.n_bytes - (before.n_bytes or 0) < n_bytes:
            raise RefusalError(
                "remote",
                f"{came.n_bytes - (before.n_bytes or 0)} bytes came from {self.endpoint}, and the "
                f"logits alone are {n_bytes}: another device computed them",
            )

    def weights_mib(self, buffers_mib: Mapping[str, Mapping[str, float]]) -> float:
        """MiB of weights on the server's devices, by a log."""
        weights = buffers_mib.get("model", {})
        here = f"[{self.endpoint}]"
        return sum(mib for name, mib in weights.items() if name.endswith(here))

    def require_weights(self, buffers_mib: Mapping[str, Mapping[str, float]]) -> None:
        """Reject a model without weights there: llama.cpp can silently compute it here."""
        if not self.weights_mib(buffers_mib) > 0:
            raise RefusalError("remote", f"no weights are on {self.endpoint}: they stayed here")

    @property
    def has_ended(self) -> bool:
        """True if it was started here and runs no more."""
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


# The protocol of ggml-rpc.cpp: a command's byte, the length of its data in 8 bytes, and the data.
# An answer has no command. HELLO comes first, and its answer has the version.
_ALLOC_BUFFER: Final = 0
_BASE_OF_BUFFER: Final = 3
_FREE_BUFFER: Final = 4
_SET_TENSOR: Final = 6
_GET_TENSOR: Final = 8
_HELLO: Final = 14
_DEVICE_COUNT: Final = 15
#: `conn_caps` of the request, and three numbers, a blank and `conn_caps` of the answer. Without
#: RDMA they are zeros; those of the request are, so that the link stays TCP.
_CAPS_BYTES: Final = 24
_PINGS: Final = 20
#: The version whose tensors are known. One of another layout could end the server.
_TENSORS_OF: Final = 7
#: In each direction; data larger than 10 MiB may be cached there.
_PROBE_BYTES: Final = 4 << 20
_TYPE_I8: Final = 24
#: `rpc_tensor`: id, type, buffer, ne, nb; op to view_offs, which are zeros; data; name and uses.
_TENSOR: Final = "<QIQ4I4I168xQ68x"


def greeting_of(link: socket.socket) -> dict[str, Any]:
    """The server's version, devices and offers, and the speed of its link.

    The round trip is the median of small requests, in microseconds. The bandwidth is that of a
    tensor that is sent and read back, over TCP; None if the version's tensors are unknown.

    Raises:
        OSError: it is no RPC server, or does not answer.
    """
    answer = _ask(link, _HELLO, bytes(_CAPS_BYTES), 4 + _CAPS_BYTES)
    trips_ns = []
    for _ in range(_PINGS):
        began_ns = time.perf_counter_ns()
        (n_devices,) = struct.unpack("<I", _ask(link, _DEVICE_COUNT, b"", 4))
        trips_ns.append(time.perf_counter_ns() - began_ns)
    return {
        "protocol": ".".join(map(str, answer[:3])),
        "n_devices": n_devices,
        "offers_rdma": any(answer[4:]),
        "round_trip_us": statistics.median(trips_ns) / 1000,
        "bandwidth_mbs": _bandwidth_mbs(link) if n_devices and answer[0] == _TENSORS_OF else None,
    }


def _bandwidth_mbs(link: socket.socket) -> float | None:
    """Bytes sent and read back in MB/s; None if the server has no memory for them."""
    request = struct.pack("<IQ", 0, _PROBE_BYTES)
    buffer, size = struct.unpack("<QQ", _ask(link, _ALLOC_BUFFER, request, 16))
    if not buffer or size < _PROBE_BYTES:
        return None
    handle = struct.pack("<Q", buffer)
    (base,) = struct.unpack("<Q", _ask(link, _BASE_OF_BUFFER, handle, 8))
    shape, strides = (_PROBE_BYTES, 1, 1, 1), (1, *[_PROBE_BYTES] * 3)
    tensor = struct.pack(_TENSOR, 1, _TYPE_I8, buffer, *shape, *strides, base)
    data = os.urandom(_PROBE_BYTES)
    began_ns = time.perf_counter_ns()
    _send(link, _SET_TENSOR, tensor + bytes(1 + 8) + data)  # no cache flag, offset 0
    back = _ask(link, _GET_TENSOR, tensor + struct.pack("<QQ", 0, len(data)), len(data))
    elapsed_ns = time.perf_counter_ns() - began_ns
    _send(link, _FREE_BUFFER, handle)
    if back != data:
        raise OSError("other bytes came back than were sent")
    return 2 * len(data) / elapsed_ns * 1000


def _send(link: socket.socket, command: int, payload: bytes) -> None:
    link.sendall(struct.pack("<BQ", command, len(payload)) + payload)


def _ask(link: socket.socket, command: int, payload: bytes, n_answer: int) -> bytes:
    _send(link, command, payload)
    (length,) = struct.unpack("<Q", _exactly(link, 8))
    if length != n_answer:
        raise OSError(f"it answers with {length} bytes, not {n_answer}: another protocol")
    return _exactly(link, n_answer)


def _exactly(link: socket.socket, n: int) -> bytes:
    data = bytearray(n)
    room = memoryview(data)
    while room:
        n_read = link.recv_into(room)
        if not n_read:
            raise OSError("it closed the connection: another protocol, or an older version")
        room = room[n_read:]
    return bytes(data)


_DEVICE: Final = re.compile(r"^ +(\S+): .+ \(\d{1,9} MiB, ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of a program's target and draft: a server, or None for this machine."""

    tools: Toolbox
    target: Remote | None = None
    draft: Remote | None = None

    @property
    def remotes(self) -> tuple[Remote, ...]:
        """The servers, in the order in which the program counts their devices."""
        return tuple(dict.fromkeys(filter(None, (self.target, self.draft))))

    def greet(self) -> None:
        """Raise if servers are absent or busy: a program would end, or hang."""
        for remote in self.remotes:
            remote.greet()

    @contextmanager
    def watched(self) -> Iterator[Mapping[Remote, Work]]:
        """The work of each server before a program's run, for `require`.

        If the program fails, the server is the cause if it is gone, or if the error names RPC.
        Afterwards the connections end that were kept for the count of bytes.
        """
        self.greet()
        try:
            yield {remote: remote.work_so_far() for remote in self.remotes}
        except RefusalError as err:
            if err.kind != "tool" or not self.remotes:
                raise
            gone = [wrong for remote in self.remotes if (wrong := _wrong_with(remote))]
            if not gone and "RPC" not in str(err):
                raise
            raise RefusalError("remote", "; ".join([*gone, str(err)])) from err
        finally:
            for remote in self.remotes:
                remote.release()

    def watch(self, pid: int, line: str) -> None:
        """Count a program's connections from the log line that lists the buffers on a server."""
        for remote in self.remotes:
            if "buffer size =" in line and f"[{remote.endpoint}]" in line:
                remote.hold(pid)

    def options(self, program: str, *, drafts: bool = False) -> list[str]:
        """The devices of each model, by name: a draft would follow its target."""
        if not self.remotes:
            return []
        if "--rpc" not in self.tools.help(program):
            raise RefusalError(
                "remote", f"this build's {program} has no RPC: -DGGML_RPC=ON adds it"
            )
        names: dict[Remote | None, list[str]] = {}
        for remote in self.remotes:
            first = sum(map(len, names.values()))
            names[remote] = [f"RPC{first + index}" for index in range(remote.greeting["n_devices"])]
        if self.target is None or (drafts and self.draft is None):
            listed = self.tools.run(program, "--list-devices").output
            names[None] = _DEVICE.findall(listed) or ["none"]
        separator = "/" if program == "llama-bench" else ","
        endpoints = ",".join(remote.endpoint for remote in self.remotes)
        options = ["--rpc", endpoints, "-dev", separator.join(names[self.target])]
        return options + (["-devd", ",".join(names[self.draft])] if drafts else [])

    def require(
        self,
        run: ToolRun,
        before: Mapping[Remote, Work],
        n_vocab: int,
        *,
        of_target: int = 0,
        of_draft: int = 0,
    ) -> None:
        """Reject a run whose servers did not compute these steps of the target and of the draft."""
        buffers = buffers_mib(run.log)
        for remote in self.remotes:
            remote.require_weights(buffers)
            n_steps = of_target * (remote is self.target) + of_draft * (remote is self.draft)
            remote.require_work(before[remote], n_steps, n_vocab)


def _wrong_with(remote: Remote) -> str:
    remote.release()
    try:
        remote.greet()
    except RefusalError as err:
        return str(err)
    return ""
