"""What an RPC server of llama.cpp answers, and how fast its link is.

The protocol is that of ggml-rpc.cpp: a command's byte, the length of what follows in 8 bytes, and
that; an answer has no command. HELLO comes first and answers with the version.
"""

from __future__ import annotations

import os
import statistics
import struct
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket

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
#: Each way; what is larger than 10 MiB may be cached there.
_PROBE_BYTES: Final = 4 << 20
_TYPE_I8: Final = 24
#: `rpc_tensor`: id, type, buffer, ne, nb; op to view_offs, which are zeros; data; name and uses.
_TENSOR: Final = "<QIQ4I4I168xQ68x"


def greeting_of(link: socket.socket) -> dict[str, Any]:
    """The server's version, devices and offers, and the speed of its link.

    The round trip is the median of small requests, in microseconds. The bandwidth is that of a
    tensor that is sent and read back, over TCP; None where the version's tensors are not known.

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
    """Bytes sent and read back in MB/s; None where the server has no memory for them."""
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
