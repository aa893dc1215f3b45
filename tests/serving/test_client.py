"""Requests over real sockets: times, framing, and every fault by its name."""

import dataclasses
import socket
from collections.abc import Iterable
from time import perf_counter_ns
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_asperf.worker.serving.client import Chunked, _Exchange, get_request, stream_request
from pytest_asperf.worker.serving.events import Reply, read_reply
from pytest_asperf.worker.serving.record import Endpoint, StreamRecord, Timeouts
from tests.serving.fake_server import Step, chunked, delta, head, last, role, serving, sse, streamed

SHORT = Timeouts(connect_s=2.0, headers_s=0.3, idle_s=0.3, total_s=0.6)
#: For calls that must not end by a timeout, on any busy machine.
PATIENT = Timeouts(connect_s=5.0, headers_s=5.0, idle_s=5.0, total_s=10.0)
KEY = "sk-secret-0123456789"


def ask(script: Iterable[Step], **options: Any) -> tuple[StreamRecord, Reply]:
    """One request to a server that replies by a script."""
    with serving(script) as server:
        record = stream_request(server.endpoint, "/v1/chat/completions", {"n": 1}, **options)
    return record, read_reply(record)


def test_a_reply_has_a_time_for_each_read() -> None:
    """Sent, headers, first byte, each event and the end follow one another."""
    parts: list[Step] = []
    for part in sse(role(), delta("a"), delta("b"), delta("c"), last()):
        parts += [part, 0.005]
    record, reply = ask(streamed(parts), intended_ns=5)
    assert (record.fault, reply.faults) == (None, ())
    assert record.sent_ns
    assert record.headers_ns
    times = [record.sent_ns, record.headers_ns, *reply.token_ns, record.closed_ns]
    assert times == sorted(times)
    assert (record.intended_ns, reply.text) == (5, "abc")
    assert (reply.counts.n_prompt, reply.counts.n_output, reply.finish) == (8, 3, "length")


def answer(status: str, body: bytes, kind: str = "application/json", *more: str) -> list[Step]:
    """A reply that is no stream of events."""
    return [head(status, kind, *more), *chunked([body])]


WRAPPED = b'{"error":{"message":"no"}}'
WHOLE = b'{"choices":[{"message":{"content":"hi"}}]}'
FAULTS: dict[str, tuple[list[Step], str]] = {
    "closed at once": ([], "lost"),
    "reset before the head": ([None], "lost"),
    "half a head": ([b"HTTP/1.1 200 OK\r\nContent"], "lost"),
    "not HTTP": ([b"SSH-2.0-OpenSSH_9.6\r\n"], "not-http"),
    "endless head": ([b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000], "not-http"),
    "silent": ([0.4], "timeout"),
    "HTML": (answer("200 OK", b"<html>Sign in</html>", "text/html"), "html"),
    "HTML as a stream": (streamed([b"<!doctype html>"]), "html"),
    "401": (answer("401 Unauthorized", WRAPPED), "unauthorised"),
    "404": (answer("404 Not Found", b'{"error":"model \'x\' not found"}'), "not-found"),
    "429": (answer("429 Too Many Requests", b"slow down", "text/plain"), "rate-limit"),
    "500": (answer("500 Oops", b"", "text/plain"), "server-error"),
    "503": (answer("503 Loading", b'{"error":{"message":"Loading model"}}'), "server-error"),
    "302": (answer("302 Found", b"", "text/html", "Location: /login"), "redirect"),
    "compressed": (answer("200 OK", b"\x1f", "text/x", "Content-Encoding: gzip"), "encoding"),
    "not streamed": (answer("200 OK", WHOLE), "not-streamed"),
    "nothing said": (streamed(sse(role(), last(n_output=0))), "no-output"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_its_name(name: str) -> None:
    """A broken reply ends within its bounds, with the fault that it has."""
    script, expected = FAULTS[name]
    timeouts = SHORT if expected in {"timeout", "deadline"} else PATIENT
    _, reply = ask(script, timeouts=timeouts)
    assert [fault.kind for fault in reply.faults] == [expected]
    assert all(len(fault.text) < 600 for fault in reply.faults)


def test_an_endless_body_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body without an end stops at a number of bytes."""
    monkeypatch.setattr("pytest_asperf.worker.serving.client.MAX_BODY_BYTES", 2**20)
    record, reply = ask([head(), *chunked([b": " + b"x" * 65_534] * 40)])
    assert reply.faults[0].kind == "too-long"
    assert len(record.body) < 2**20 + 2**17


def test_nobody_listens() -> None:
    """A wrong port and a wrong name are named, with the address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    record = stream_request(Endpoint.parse(f"http://127.0.0.1:{port}"), "/", {})
    assert record.fault is not None
    assert (record.fault.kind, record.sent_ns) == ("connect", None)
    assert f"127.0.0.1:{port}" in record.fault.text
    record = get_request(Endpoint.parse("http://no-such-host.invalid:80"), "/")
    assert record.fault is not None
    assert record.fault.kind == "connect"


def test_tls_to_a_server_without_it_is_named() -> None:
    """TLS to an http port is a named fault, and no hang."""
    with serving(streamed(sse(last()))) as server:
        secure = dataclasses.replace(server.endpoint, scheme="https")
        record = stream_request(secure, "/", {}, timeouts=Timeouts(connect_s=0.2))
    assert record.fault is not None
    assert record.fault.kind == "tls"


def test_a_key_is_in_no_record_and_no_error() -> None:
    """A server that repeats the key, in a header, an error or over two reads, shows none of it."""
    parts: list[Step] = [
        f"Bearer {KEY[:9]}".encode(),
        0.05,
        b" is".join([KEY[9:].encode(), b" wrong"]),
    ]
    script = [head("401 No", "text/plain", f"X-Echo: {KEY}"), *chunked(parts)]
    headers = {"Authorization": f"Bearer {KEY}"}
    with serving(script) as server:
        record = stream_request(server.endpoint, "/", {}, headers=headers)
        assert KEY in server.heads[0]
    shown = f"{record} {record.body!r} {read_reply(record)}"
    assert "sk-secret" not in shown
    assert "*" * len(KEY) in shown


def test_a_body_with_a_length_or_none_is_read() -> None:
    """A length, or the connection's end, ends a body too."""
    body = b"".join(sse(delta("a"), last()))
    length = f"Content-Length: {len(body)}"
    for headers in ([length], []):
        begin = head("200 OK", "text/event-stream", *headers, chunked=False)
        _, reply = ask([b"HTTP/1.1 100 Continue\r\n\r\n", begin + body + b"\n" * bool(headers)])
        assert (reply.faults, reply.text) == ((), "a")


def test_an_end_in_two_reads_is_seen_while_the_connection_stays_open() -> None:
    """A server whose last bytes come apart, and that closes no connection, is not waited for."""

    class Socket:
        reads = iter([b"2\r\nab\r\n", b"0\r\n", b"\r\n"])
        settimeout = staticmethod(lambda _: None)

        def recv(self, _: int) -> bytes:
            return next(self.reads)  # a fourth read would end the test

    exchange = _Exchange(SHORT, perf_counter_ns())
    exchange.headers = [("Transfer-Encoding", "chunked")]
    exchange._read_body(cast("socket.socket", Socket()), (1, b""))
    assert [data for _, data in exchange.chunks] == [b"ab"]


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_chunks_are_read_however_they_arrive(parts: list[bytes], data: st.DataObject) -> None:
    """The body is equal for any cut of the transfer."""
    raw = b"".join(part for part in chunked([p for p in parts if p]) if isinstance(part, bytes))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=10)))
    framing = Chunked()
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert b"".join(framing.feed(piece) for piece in pieces) == b"".join(parts)
    assert framing.is_complete


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8080", "ftp://x", "http://", "http://a:99999", "http://a/?q", "http://u:pw@a"],
)
def test_a_wrong_url_is_refused_without_its_password(url: str) -> None:
    """A URL that is none is named, and a password is never shown."""
    with pytest.raises(ValueError, match=r"URL|port|path") as caught:
        Endpoint.parse(url)
    assert "pw" not in str(caught.value)


def test_a_header_cannot_smuggle_another() -> None:
    """A line's end in a header raises before anything is sent."""
    with pytest.raises(ValueError, match="line's end"):
        stream_request(Endpoint.parse("http://[::1]:1"), "/", {}, headers={"A": "b\r\nC: d"})
