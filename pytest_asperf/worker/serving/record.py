"""A request to a server, the reply with its times, and its faults."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of a request or its reply: a short stable word, and a sentence."""

    kind: str
    text: str


class FaultError(Exception):
    """Ends a request, for a fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.fault = Fault(kind, text)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a server. `base` is the path before those of the API."""

    scheme: str
    host: str
    port: int
    base: str = ""

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Read a URL; ValueError for one that is no http or https address.

        The message shows nothing of a URL with a password.
        """
        parts = urlsplit(url)
        if parts.username or parts.password:
            raise ValueError("a URL with a user or password; give the key in a variable instead")
        try:
            port = parts.port
        except ValueError as err:
            raise ValueError(f"{url!r} has no valid port") from err
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{url!r} is no URL such as http://127.0.0.1:8080")
        if parts.query or parts.fragment:
            raise ValueError(f"{url!r} has more than a scheme, a host, a port and a path")
        default = 443 if parts.scheme == "https" else 80
        return cls(parts.scheme, parts.hostname, port or default, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """Host and port as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.base}"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds.

    `headers_s` covers queue and prompt where a server sends nothing before the first token;
    `idle_s` is the time between two reads, `total_s` that of the whole request.
    """

    connect_s: float = 5.0
    headers_s: float = 300.0
    idle_s: float = 120.0
    total_s: float = 900.0


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One request and its reply. Times are those of `time.perf_counter_ns`; None if not reached."""

    intended_ns: int  #: its intended time; the start of latency in an open loop
    #: just before its first byte was handed to the kernel, with the connection open
    sent_ns: int | None
    headers_ns: int | None  #: the read that completed the head of the reply
    #: each read's bytes of the body, with the time at which the kernel handed it over
    chunks: tuple[tuple[int, bytes], ...]
    closed_ns: int  #: when the body was complete, or the request was given up
    status: int | None  #: of HTTP
    headers: tuple[tuple[str, str], ...]  #: of the reply, names in lower case
    cpu_ns: int  #: CPU time of the client's thread for this request
    fault: Fault | None  #: an error below the API

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(data for _, data in self.chunks)

    def header(self, name: str) -> str:
        """The first header of a name, otherwise an empty string."""
        return next((value for key, value in self.headers if key == name), "")
