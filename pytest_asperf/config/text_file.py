"""Small files that a user names, of text or JSON: read whole, and never without end.

A pipe or a device may block for ever, and so may a file of the kernel's: such "regular" files
(`/proc/kmsg`) have size 0, and a file of size 0 holds nothing to read.
"""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES: Final = 64 * 2**20


class UnreadableTextError(ValueError):
    """The file holds no text that can be read; the message says why, to follow the file's name."""


def read_bytes(path: Path, at_most: int = _MAX_BYTES) -> bytes:
    """The content of a regular file; UnreadableTextError where there is none, or too much of it."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "folder" if stat.S_ISDIR(status.st_mode) else "pipe or device"
            raise UnreadableTextError(f"cannot be read: it is a {what}")
        if status.st_size == 0:
            return b""
        with path.open("rb") as file:
            content = file.read(at_most + 1)
    except OSError as error:
        raise UnreadableTextError(f"cannot be read: {error.strerror}") from error
    if len(content) > at_most:
        raise UnreadableTextError(f"has more than {at_most >> 20} MiB")
    return content


def read_text(path: Path, at_most: int = _MAX_BYTES) -> str:
    """The text of a regular file in UTF-8, without a byte order mark, with Python's line ends."""
    try:
        text = read_bytes(path, at_most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableTextError(f"is not UTF-8: byte {error.start}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json_table(path: Path) -> dict[str, Any]:
    """The table that a JSON file holds; UnreadableTextError where it holds none."""
    try:
        content = json.loads(read_bytes(path))
    except UnreadableTextError:
        raise
    except (ValueError, RecursionError) as error:
        raise UnreadableTextError("is not JSON") from error
    if not isinstance(content, dict):
        raise UnreadableTextError("is not a JSON table")
    return content
