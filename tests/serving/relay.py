"""A relay between the client and a server that streams: it does harm to the replies."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from itertools import cycle, islice, repeat
from typing import Any

from pytest_asperf.worker.serving.record import Endpoint
from tests.serving.fake_server import Step, chunked, head, sse

#: Makes the sent events of a reply's own.
Harm = Callable[[Iterator[bytes]], Iterable[Step]]

#: Events that are passed on before the harm.
_BEFORE = 3
_KEEP_ALIVE = b"8\r\n: ping\n\n\r\n"


def through(upstream: Endpoint, *harms: Harm) -> Callable[[dict[str, Any]], Iterator[Step]]:
    """Forward requests to a server, and do the harms to its replies in turn."""
    turns = cycle(harms)

    def reply(request: dict[str, Any]) -> Iterator[Step]:
        harm, body = next(turns), {k: v for k, v in request.items() if k != "path"}
        with closing(HTTPConnection(upstream.host, upstream.port, timeout=60)) as connection:
            connection.request("POST", request["path"], json.dumps(body))
            with connection.getresponse() as response:
                assert response.status == 200, response.read()
                yield head()
                yield from harm(_events(response))

    return reply


def _events(reply: Iterable[bytes]) -> Iterator[bytes]:
    """Whole events, however the connection divides them."""
    event = b""
    for line in reply:
        event += line
        if not line.strip():
            yield event
            event = b""
    if event:
        yield event


def untouched(events: Iterator[bytes]) -> Iterator[Step]:
    """The reply as it is."""
    return chunked(events)


def broken_off(*steps: Step) -> Harm:
    """Some events, then these bytes, waits and resets, and the connection is closed."""

    def harm(events: Iterator[bytes]) -> Iterator[Step]:
        yield from chunked(islice(events, _BEFORE), end=False)
        yield from steps

    return harm


def with_events(*parts: Step) -> Harm:
    """Some events, then these in the body, and its remainder."""

    def harm(events: Iterator[bytes]) -> Iterator[Step]:
        yield from chunked(islice(events, _BEFORE), end=False)
        yield from chunked([*parts, *events])

    return harm


def ended_with(*parts: bytes) -> Harm:
    """Some events, then these in the body, which ends as it should."""

    def harm(events: Iterator[bytes]) -> Iterator[Step]:
        return chunked([*islice(events, _BEFORE), *parts])

    return harm


def doubled(events: Iterator[bytes]) -> Iterator[Step]:
    """Each event twice."""
    return chunked(event for one in events for event in (one, one))


def late(events: Iterator[bytes]) -> Iterator[Step]:
    """Each event later than the last one."""
    return chunked(part for event in events for part in (0.002, event))


#: By its effect: the harm, and the fault's name; for a sound reply none.
HARMS: dict[str, tuple[Harm, str]] = {
    "nothing": (untouched, ""),
    "delay": (late, ""),
    "cut": (broken_off(), "truncated"),
    "reset": (broken_off(0.05, None), "lost"),
    "silence": (broken_off(0.6), "timeout"),
    "keep-alives for ever": (broken_off(*(_KEEP_ALIVE, 0.05) * 40), "deadline"),
    "a chunk without a length": (broken_off(b"zz\r\nabc\r\n"), "not-http"),
    "end before the last event": (ended_with(), "truncated"),
    "half an event": (ended_with(b'data: {"cho'), "half-event"),
    "junk": (ended_with(b"hello world\n"), "junk"),
    "an event that is no JSON": (with_events(b"data: hello\n\n"), "json"),
    "an event that is no object": (with_events(*sse([1, 2], done=False)), "json"),
    "invalid UTF-8": (with_events(b'data: {"a": "\xff\xfe"}\n\n'), "utf-8"),
    "an event of 10 MB": (with_events(b"data: ", *repeat(b"y" * 65_536, 160)), "event-too-long"),
    "500 in the middle": (
        with_events(*sse({"error": {"code": 500, "message": "oom"}}, done=False)),
        "stream-error",
    ),
    "an error line": (with_events(b'error: {"code":500}\n\n'), "stream-error"),
}
