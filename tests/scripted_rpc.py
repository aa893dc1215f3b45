"""A server that speaks as much of llama.cpp's RPC as a greeting needs."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_SET_TENSOR = 6


@contextmanager
def served(treat: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that treats its clients in some way, one after the other."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with suppress(OSError):  # a client that left, and the end
            while True:
                client, _ = listener.accept()
                with client, suppress(ConnectionError):
                    treat(client)

    threading.Thread(target=run, daemon=True).start()
    port: int = listener.getsockname()[1]
    with listener:
        yield port


def scripted_rpc(
    version: int = 7, *, caps: bytes = bytes(24), loses: int = 0
) -> Callable[[socket.socket], None]:
    """A server that keeps one tensor, of which it may lose some bytes."""

    def treat(client: socket.socket) -> None:
        tensor = b""
        while header := client.recv(9, socket.MSG_WAITALL):
            command, length = struct.unpack("<BQ", header)
            payload = client.recv(length, socket.MSG_WAITALL)
            if command == _SET_TENSOR:
                tensor = payload[296 + 1 + 8 :]
            answers = {
                0: struct.pack("<QQ", 42, 4 << 20),
                3: struct.pack("<Q", 4096),
                8: tensor[loses:] + bytes(loses),
                14: bytes([version, 0, 0, 0]) + caps,
                15: struct.pack("<I", 2),
            }
            if command in answers:
                client.sendall(struct.pack("<Q", len(answers[command])) + answers[command])

    return treat
