"""One request to a server, whose answer is one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .engine import Facts, RefusalError
from .serving.client import stream_request
from .serving.payload import answered_object, error_text

if TYPE_CHECKING:
    from .serving.record import Endpoint


def posted(
    endpoint: Endpoint, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
) -> Facts:
    """The object in a server's answer; an engine error if it is an error."""
    record = stream_request(endpoint, path, body, headers=headers)
    if record.fault is not None:
        raise RefusalError("server", f"{path}: {record.fault.text}")
    if record.status != 200:
        said = error_text(record.body, record.header("content-type"))
        raise RefusalError("server", f"{path}: HTTP {record.status}: {said}")
    return answered_object(record.body)
