"""A server on a real socket that replies by a script."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from time import sleep
from typing import Any

from pytest_asperf.worker.serving.record import Endpoint

#: A step: bytes to send, seconds to wait, or None to reset the connection.
Step = bytes | float | None
Script = "Callable[[dict[str, Any]], Iterable[Step]]"


def sse(*payloads: Any, done: bool = True) -> list[bytes]:
    """Server-sent events of the payloads, each one's bytes apart."""
    events = [b"data: %b\n\n" % json.dumps(payload).encode() for payload in payloads]
    return [*events, b"data: [DONE]\n\n"] if done else events


def delta(text: str, **more: Any) -> dict[str, Any]:
    """A chunk of OpenAI's chat API with some output."""
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **more}


def role() -> dict[str, Any]:
    """The chunk that begins a reply of that API and has no token."""
    return {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]}


def last(
    n_prompt: int = 8, n_output: int = 3, reason: str = "length", **more: Any
) -> dict[str, Any]:
    """The chunk that ends a reply, with the counts of tokens."""
    usage = {"prompt_tokens": n_prompt, "completion_tokens": n_output}
    return {"choices": [{"delta": {}, "finish_reason": reason}], "usage": usage, **more}


def head(
    status: str = "200 OK", kind: str = "text/event-stream", *more: str, chunked: bool = True
) -> bytes:
    """The head of a reply."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *more]
    return "\r\n".join([*lines, *(["Transfer-Encoding: chunked"] * chunked), "", ""]).encode()


def chunked(parts: Iterable[Step], *, end: bool = True) -> Iterator[Step]:
    """Bodies' parts, each as a chunk of the transfer."""
    for part in parts:
        yield b"%x\r\n%b\r\n" % (len(part), part) if isinstance(part, bytes) else part
    if end:
        yield b"0\r\n\r\n"


def streamed(parts: Iterable[Step], *, end: bool = True) -> list[Step]:
    """A whole reply that streams its parts."""
    return [head(), *chunked(parts, end=end)]


class FakeServer:
    """Accepts any number of connections at once, and keeps the requests' bodies in order."""

    def __init__(self, script: Callable[[dict[str, Any]], Iterable[Step]]) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.requests: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.endpoint = Endpoint("http", "127.0.0.1", self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError), connection:
            request = self._read(connection)
            self.requests.append(request)
            for step in self._script(request):
                if step is None:
                    linger = struct.pack("ii", 1, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    return
                if isinstance(step, bytes):
                    connection.sendall(step)
                else:
                    sleep(step)

    def _read(self, connection: socket.socket) -> dict[str, Any]:
        stream = connection.makefile("rb")
        lines: list[bytes] = []
        while (line := stream.readline()) != b"\r\n":
            if not line:
                raise ConnectionError  # the client left before the end of a request's head
            lines.append(line)
        self.heads.append(b"".join(lines).decode())
        length = next(
            (
                int(line.partition(b":")[2])
                for line in lines
                if line.lower().startswith(b"content-l")
            ),
            0,
        )
        body: dict[str, Any] = json.loads(stream.read(length) or b"{}")
        return {**body, "path": lines[0].split()[1].decode()}


@contextmanager
def serving(
    script: Iterable[Step] | Callable[[dict[str, Any]], Iterable[Step]],
) -> Iterator[FakeServer]:
    """A server that replies to every request by a script, or by a function."""
    server = FakeServer(script if callable(script) else lambda _: script)
    try:
        yield server
    finally:
        server.close()
