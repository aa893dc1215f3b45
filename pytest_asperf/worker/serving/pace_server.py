"""A server that streams at a known pace, in a process of its own: pace_server.py N CHUNKS US.

It accepts N connections, then sends each of them one event every so many microseconds, all within a
burst as a server that decodes a batch does. Each event contains the time just before it was sent.
"""

from __future__ import annotations

import json
import socket
import sys
from time import perf_counter_ns, sleep

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_LAST = {
    "choices": [{"delta": {}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 0},
}


def main(n_streams: int, n_chunks: int, pace_us: int) -> None:
    """Print the port, serve the streams and end."""
    with socket.create_server(("127.0.0.1", 0), backlog=n_streams) as listener:
        listener.settimeout(10.0)
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        streams = [_accept(listener) for _ in range(n_streams)]
    started_ns = perf_counter_ns()
    for tick in range(1, n_chunks + 1):
        sleep(max(0, started_ns + tick * pace_us * 1000 - perf_counter_ns()) / 1e9)
        for stream in streams:
            stream.sendall(_event({"choices": [{"delta": {"content": f"{perf_counter_ns()} "}}]}))
    for stream in streams:
        stream.sendall(_event(_LAST) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        stream.close()


def _accept(listener: socket.socket) -> socket.socket:
    stream, _ = listener.accept()
    stream.settimeout(10.0)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while b"\r\n\r\n" not in stream.recv(65536):
        pass
    stream.sendall(_HEAD)
    return stream


def _event(payload: object) -> bytes:
    return _chunk(b"data: %b\n\n" % json.dumps(payload).encode())


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
