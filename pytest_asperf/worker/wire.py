"""The pipe's language: one JSON object a line, each with the protocol's version.

Both ends use this module; it is independent of engines.
"""

from __future__ import annotations

import json
import os
from typing import Any, Final

PROTOCOL: Final = 1

#: Longest line either end accepts: a tokenised corpus of about ten million tokens.
MAX_LINE_BYTES: Final = 128 * 2**20

#: A line of the log after which it is of other models.
LOG_ENDS: Final = b"asperf: all models are freed\n"


class WireError(Exception):
    """A line that is not a message of this protocol."""


def encode(message: dict[str, Any]) -> bytes:
    """A message as one line; NaN and infinities are an error, JSON has none."""
    body = json.dumps({"v": PROTOCOL, **message}, allow_nan=False, separators=(",", ":"))
    return body.encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Read one line; raises WireError for a line that is no message of this version."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise WireError(f"not JSON: {line[:80]!r}") from err
    if not isinstance(message, dict):
        raise WireError(f"not an object: {line[:80]!r}")
    if message.get("v") != PROTOCOL:
        raise WireError(f"protocol {message.get('v')!r} instead of {PROTOCOL}")
    return message


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, however small the pipe's buffer is."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
