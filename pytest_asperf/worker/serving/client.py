"""One HTTP request whose reply is streamed, with the time of each raw read.

Each read is stamped as soon as the kernel returns it. The loop only finds the end of the body; the
reply is parsed afterwards (`events`). A failure of the server is the record's `fault` and no
exception, so that one of many requests may fail and the others count.
"""

from __future__ import annotations

import io
import json
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http.client import HTTPException, parse_headers
from time import perf_counter_ns, thread_time_ns
from typing import Any, Final, Protocol

from .record import Endpoint, Fault, FaultError, StreamRecord, Timeouts

_CHUNK_SIZE: Final = re.compile(rb"(?:\r\n)?([0-9A-Fa-f]{1,8})(?:[ ;][^\r\n]{0,256})?\r\n")
_LONGEST_SIZE_LINE: Final = 300


class Framing(Protocol):
    """Removes the transfer's framing, and finds the end of the body."""

    is_complete: bool  #: whether the body has ended
    may_end: bool  #: whether the connection's end is the body's
    mark: bytes | tuple[()]  #: a read that ends the body ends with it; others may, too

    def feed(self, data: bytes) -> bytes:
        """The part of a read that is of the body."""

    def left(self, most: int) -> int:
        """Bytes after which the body may have ended."""


class Plain:
    """A body of a known length, or one that ends with the connection."""

    mark: bytes | tuple[()] = ()

    def __init__(self, length: int | None) -> None:
        self._left = length
        self.may_end = length is None
        self.is_complete = length == 0

    def feed(self, data: bytes) -> bytes:
        """The part of a read that is of the body."""
        if self._left is None:
            return data
        body = data[: self._left]
        self._left -= len(body)
        self.is_complete = not self._left
        return body

    def left(self, most: int) -> int:
        """Bytes after which the body may have ended."""
        return most if self._left is None else min(most, self._left)


class Chunked:
    """A body in chunks, each after a line with its size."""

    mark: bytes | tuple[()] = b"0\r\n\r\n"

    def __init__(self) -> None:
        self._left = 0
        self._size_line = b""
        self.may_end = False
        self.is_complete = False

    def feed(self, data: bytes) -> bytes:
        """The part of a read that is of the body."""
        data, at, body = self._size_line + data, 0, b""
        self._size_line = b""
        while not self.is_complete and at < len(data):
            if not self._left:
                size = _CHUNK_SIZE.match(data, at)
                if not size:
                    self._keep(data[at:])
                    break
                self._left, at = int(size[1], 16), size.end()
                self.is_complete = not self._left
            piece = data[at : at + self._left]
            body += piece
            at += len(piece)
            self._left -= len(piece)
        return body

    def left(self, most: int) -> int:
        """Bytes after which the body may have ended."""
        return most

    def _keep(self, rest: bytes) -> None:
        if len(rest) > _LONGEST_SIZE_LINE or rest.find(b"\r\n", 1) > 0:
            raise FaultError("not-http", f"a chunk without its size: {rest[:60]!r}")
        self._size_line = rest


def framing_of(headers: Mapping[str, str]) -> Framing:
    """How a body is framed, by its headers; names are in lower case."""
    if headers.get("transfer-encoding", "").strip().lower() == "chunked":
        return Chunked()
    length = headers.get("content-length", "").strip()
    return Plain(int(length) if re.fullmatch("[0-9]{1,12}", length) else None)


#: Bounds on one reply. A reply of 100,000 tokens has about 25 MB in as many reads.
MAX_BODY_BYTES: Final = 64 * 2**20
MAX_READS: Final = 500_000
_MAX_HEAD_BYTES: Final = 64 * 2**10
_READ_BYTES: Final = 64 * 2**10

_SECRET_HEADERS: Final = {"authorization", "proxy-authorization", "api-key", "x-api-key", "cookie"}
#: Shorter ones are placeholders such as "none", and words of a reply.
_LEAST_SECRET: Final = 8

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")


def stream_request(
    endpoint: Endpoint,
    path: str,
    body: Mapping[str, Any],
    *,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    intended_ns: int | None = None,
) -> StreamRecord:
    """POST a JSON object and read the reply to its end, with a time for each read."""
    data = json.dumps(body, allow_nan=False).encode()
    given = {"Content-Type": "application/json", **(headers or {})}
    return _exchange(
        endpoint, _request("POST", endpoint, path, given, data), given, timeouts, intended_ns
    )


def get_request(
    endpoint: Endpoint,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
) -> StreamRecord:
    """GET a path, such as a server's `/props`."""
    given = dict(headers or {})
    return _exchange(endpoint, _request("GET", endpoint, path, given, b""), given, timeouts, None)


def _request(
    method: str, endpoint: Endpoint, path: str, headers: Mapping[str, str], data: bytes
) -> bytes:
    lines = [
        f"{method} {endpoint.base}{path} HTTP/1.1",
        f"Host: {endpoint.authority}",
        "Accept-Encoding: identity",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
        f"Content-Length: {len(data)}",
    ]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header or path of a request has a line's end")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "backslashreplace") + data


def _exchange(
    endpoint: Endpoint,
    request: bytes,
    headers: Mapping[str, str],
    timeouts: Timeouts | None,
    intended_ns: int | None,
) -> StreamRecord:
    cpu_ns, now = thread_time_ns(), perf_counter_ns()
    exchange = _Exchange(timeouts or Timeouts(), now)
    exchange.run(endpoint, request)
    closed_ns, cpu_ns = perf_counter_ns(), thread_time_ns() - cpu_ns
    fault = exchange.fault
    return StreamRecord(
        intended_ns=now if intended_ns is None else intended_ns,
        sent_ns=exchange.sent_ns,
        headers_ns=exchange.headers_ns,
        chunks=_without_secrets(exchange.chunks, _secrets(headers)),
        closed_ns=closed_ns,
        status=exchange.status,
        headers=tuple((name.lower(), _masked(value, headers)) for name, value in exchange.headers),
        cpu_ns=cpu_ns,
        fault=fault and Fault(fault.kind, _masked(fault.text, headers)),
    )


class _Exchange:
    """The state of one request, until it is a record."""

    def __init__(self, timeouts: Timeouts, started_ns: int) -> None:
        self._timeouts = timeouts
        self._until_ns = started_ns + round(timeouts.total_s * 1e9)
        self.sent_ns: int | None = None
        self.headers_ns: int | None = None
        self.status: int | None = None
        self.headers: list[tuple[str, str]] = []
        self.chunks: list[tuple[int, bytes]] = []
        self.fault: Fault | None = None
        self._n_bytes = 0

    def run(self, endpoint: Endpoint, request: bytes) -> None:
        """Send the request and read the reply to its end."""
        try:
            with _connect(endpoint, self._timeouts.connect_s) as sock:
                self._send(sock, request)
                self._read_body(sock, self._read_head(sock))
        except FaultError as ended:
            self.fault = ended.fault

    def _send(self, sock: socket.socket, request: bytes) -> None:
        sock.settimeout(self._timeouts.headers_s)
        self.sent_ns = perf_counter_ns()
        try:
            # A server may reject, reply and close before it has read all of a long request.
            with suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(request)
        except OSError as err:
            raise FaultError("lost", f"the request could not be sent: {_said(err)}") from err

    def _read_head(self, sock: socket.socket) -> tuple[int, bytes]:
        """Read up to the end of the head; returns the last read's time, and the bytes after it."""
        head = b""
        while True:
            now, data = self._read(sock, self._timeouts.headers_s, "no reply")
            if not data:
                what = "without a reply" if not head else "within the head of its reply"
                raise FaultError("lost", f"the server closed the connection {what}")
            head += data
            if not b"HTTP/1.".startswith(head[:7]) and not head.startswith(b"HTTP/1."):
                raise FaultError("not-http", f"the reply is not HTTP: {head[:60]!r}")
            while (end := head.find(b"\r\n\r\n")) >= 0:
                self._parse_head(head[: end + 4])
                head = head[end + 4 :]
                if self.status and self.status >= 200:
                    self.headers_ns = now
                    return now, head
            if len(head) > _MAX_HEAD_BYTES:
                raise FaultError("not-http", f"a head of more than {_MAX_HEAD_BYTES} bytes")

    def _parse_head(self, head: bytes) -> None:
        line, _, fields = head.partition(b"\r\n")
        status = _STATUS_LINE.match(line + b"\r")
        if not status:
            raise FaultError("not-http", f"the reply is not HTTP: {line[:60]!r}")
        try:
            parsed = parse_headers(io.BytesIO(fields))
        except HTTPException as err:
            raise FaultError("not-http", f"the reply's headers are broken: {err}") from err
        self.status, self.headers = int(status[1]), [(k, str(v)) for k, v in parsed.items()]

    def _read_body(self, sock: socket.socket, first: tuple[int, bytes]) -> None:
        framing = framing_of({name.lower(): value for name, value in self.headers})
        reads = [first] if first[1] else []
        is_open = True
        while not self._unframe(framing, reads) and is_open:
            reads = []
            try:
                is_open = self._read_stretch(sock, framing, reads)
            except FaultError:
                if not self._unframe(framing, reads):
                    raise
                return
        if not framing.is_complete and not framing.may_end:
            what = f"after {self._n_bytes} bytes of an incomplete reply"
            raise FaultError("truncated", f"the server closed the connection {what}")

    def _unframe(self, framing: Framing, reads: list[tuple[int, bytes]]) -> bool:
        """Keep the body's bytes of some reads; whether they have ended it."""
        for now, data in reads:
            if body := framing.feed(data):
                self.chunks.append((now, body))
                self._n_bytes += len(body)
        if self._n_bytes > MAX_BODY_BYTES or len(self.chunks) > MAX_READS:
            what = f"{self._n_bytes} bytes in {len(self.chunks)} reads"
            raise FaultError("too-long", f"the reply had no end after {what}")
        return framing.is_complete

    def _read_stretch(
        self, sock: socket.socket, framing: Framing, reads: list[tuple[int, bytes]]
    ) -> bool:
        """Read until the body may have ended or a bound may be reached; False at the end of all.

        Other streams wait for the work of one here, so it only stamps and keeps.
        """
        idle_ns = round(self._timeouts.idle_s * 1e9)
        timeout_s = self._wait_s(self._timeouts.idle_s)
        sock.settimeout(timeout_s)
        check_ns = self._until_ns - idle_ns
        left, left_reads = framing.left(MAX_BODY_BYTES + 1 - self._n_bytes), MAX_READS
        recv, keep, clock, mark = sock.recv, reads.append, perf_counter_ns, framing.mark
        try:
            while data := recv(_READ_BYTES):
                now = clock()
                keep((now, data))
                left -= len(data)
                left_reads -= 1
                if left <= 0 or now > check_ns or not left_reads or data.endswith(mark):
                    return True
                if len(data) < len(mark):  # the rest of an end that came in two reads
                    return True
        except OSError as err:
            raise self._lost(err, timeout_s, "nothing more") from err
        return False

    def _read(self, sock: socket.socket, wait_s: float, lacking: str) -> tuple[int, bytes]:
        timeout_s = self._wait_s(wait_s)
        sock.settimeout(timeout_s)
        try:
            data = sock.recv(_READ_BYTES)
        except OSError as err:
            raise self._lost(err, timeout_s, lacking) from err
        return perf_counter_ns(), data

    def _wait_s(self, wait_s: float) -> float:
        """The time limit of a read, within the rest of the request's time."""
        left_s = (self._until_ns - perf_counter_ns()) / 1e9
        if left_s <= 0:
            raise self._overdue()
        return min(wait_s, left_s)

    def _overdue(self) -> FaultError:
        return FaultError(
            "deadline", f"the reply was not complete after {self._timeouts.total_s:g} s"
        )

    def _lost(self, err: OSError, timeout_s: float, lacking: str) -> FaultError:
        if isinstance(err, TimeoutError):
            if perf_counter_ns() >= self._until_ns:
                return self._overdue()
            return FaultError("timeout", f"{lacking} within {timeout_s:g} s")
        kind = "tls" if isinstance(err, ssl.SSLError) else "lost"
        return FaultError(kind, f"the connection was lost: {_said(err)}")


def _connect(endpoint: Endpoint, timeout_s: float) -> socket.socket:
    """Open a connection; certificates are checked, and no proxy of the environment is used."""
    try:
        sock = socket.create_connection((endpoint.host, endpoint.port), timeout_s)
    except (OSError, UnicodeError) as err:
        raise FaultError("connect", f"no connection to {endpoint}: {_said(err)}") from err
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if endpoint.scheme == "http":
        return sock
    try:
        return ssl.create_default_context().wrap_socket(sock, server_hostname=endpoint.host)
    except OSError as err:
        sock.close()
        raise FaultError("tls", f"TLS failed with {endpoint}: {_said(err)}") from err


def _said(err: Exception) -> str:
    return str(getattr(err, "strerror", None) or err)[:200]


def _secrets(headers: Mapping[str, str]) -> list[str]:
    values = (value for name, value in headers.items() if name.lower() in _SECRET_HEADERS)
    words = (word for value in values for word in value.split())
    return [word for word in words if len(word) >= _LEAST_SECRET]


def _masked(text: str, headers: Mapping[str, str]) -> str:
    """A text without the keys in the headers of a request."""
    for secret in _secrets(headers):
        text = text.replace(secret, "*" * len(secret))
    return text


def _without_secrets(
    chunks: Iterable[tuple[int, bytes]], secrets: Iterable[str]
) -> tuple[tuple[int, bytes], ...]:
    """The reads with any key in them masked, also where two reads share it."""
    kept = tuple(chunks)
    body = b"".join(data for _, data in kept)
    found = [key for secret in secrets if (key := secret.encode()) in body]
    if not found:
        return kept
    for key in found:
        body = body.replace(key, b"*" * len(key))
    masked_body = io.BytesIO(body)
    return tuple((now, masked_body.read(len(data))) for now, data in kept)
