"""The events of a stream, each with the time of the read that completed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from .record import Fault

#: Longest event; the last one of a reply may carry the settings of the request, some 10 KB.
MAX_EVENT_BYTES: Final = 2**20
#: Characters of a reply that an error shows.
SHOWN: Final = 200


def quoted(data: bytes) -> str:
    """The reads with any key in them masked, also if two reads share it."""
    return repr(data[:SHOWN].decode(errors="replace"))


class JsonLines:
    """Each line of a stream with the time of the read that completed it."""

    def __init__(self, chunks: Iterable[tuple[int, bytes]]) -> None:
        self._chunks = chunks
        self.problem: Fault | None = None

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        for ns, line in self._lines():
            if line:
                yield ns, line

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        rest = b""
        for ns, data in self._chunks:
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield ns, line.removesuffix(b"\r")
            if len(rest) > MAX_EVENT_BYTES:
                what = f"an event is longer than {MAX_EVENT_BYTES} bytes"
                self.problem = Fault("event-too-long", what)
                return
        if rest.strip():
            self.problem = Fault("half-event", f"the stream ended within an event: {quoted(rest)}")


class ServerSentEvents(JsonLines):
    """Each event of a stream (HTML standard, section 9.2), None for a comment."""

    def __iter__(self) -> Iterator[tuple[int, bytes | None]]:
        data: list[bytes] = []
        n_bytes = 0
        for ns, line in self._lines():
            name, _, value = line.partition(b":")
            if not line and data:
                yield ns, b"\n".join(data)
                data, n_bytes = [], 0
            elif line and not name:
                yield ns, None
            elif name in {b"data", b"error"}:  # llama-server's errors until 2025
                wrapped = b'{"error":%b}' % value if name == b"error" else value.removeprefix(b" ")
                data.append(wrapped)
                n_bytes += len(wrapped)
            elif line and name not in {b"event", b"id", b"retry"}:
                self.problem = Fault("junk", f"a line is not a server-sent event: {quoted(line)}")
                return
            if n_bytes > MAX_EVENT_BYTES:
                self.problem = Fault(
                    "event-too-long", f"an event is longer than {MAX_EVENT_BYTES} bytes"
                )
                return
        if data and self.problem is None:
            what = f"the stream ended within an event: {quoted(data[0])}"
            self.problem = Fault("half-event", what)
