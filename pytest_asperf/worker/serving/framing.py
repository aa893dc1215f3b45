"""The end of a reply's body, and the bytes that belong to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from .record import FaultError

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHUNK_SIZE: Final = re.compile(rb"(?:\r\n)?([0-9A-Fa-f]{1,8})(?:[ ;][^\r\n]{0,256})?\r\n")
_LONGEST_SIZE_LINE: Final = 300


class Framing(Protocol):
    """Removes the transfer's framing, and knows where the body ends.

    Attributes:
        is_complete: whether the body has ended.
        may_end: whether the connection's end is the body's.
        mark: a read that ends the body ends with it; others may, too.
    """

    is_complete: bool
    may_end: bool
    mark: bytes | tuple[()]

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
