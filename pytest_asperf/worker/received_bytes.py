"""Bytes that came over a process's connections, by the kernel's count (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

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


def held_links(pid: int, peers: Container[tuple[str, int]]) -> dict[str, socket.socket]:
    """A child's connections to an address, which stay open and are counted as this process's own.

    Raises:
        OSError: the kernel does not hand them over.
    """
    return dict(_links_of(pid, peers))


def _links_of(pid: int, peers: Container[tuple[str, int]]) -> Iterator[tuple[str, socket.socket]]:
    """A copy of each of a process's connections, by the kernel's name of it."""
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
