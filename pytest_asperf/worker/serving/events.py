"""The events of a streamed reply, parsed after its end: tokens with their times, counts, faults.

Reads server-sent events and JSON lines, of the APIs of OpenAI, llama-server, Ollama and LM Studio.
An event has the time of the read that completed it. Role chunks, progress, comments and empty
deltas are no tokens, and one event can have the output of several: tokens are counted by the
server's own counts, never by events.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from .event_stream import SHOWN, JsonLines, ServerSentEvents, quoted
from .payload import (
    OLLAMA_TIMES,
    TokenCounts,
    as_dict,
    counts_of,
    error_of,
    error_text,
    finish_of,
    numbers,
    output_parts,
    outputs,
)
from .record import Fault, StreamRecord

_FAILED: Final = ("server-error", "the server failed")
_NOT_FOUND: Final = ("not-found", "the server does not have the model or the path")
_OF_STATUS: Final = {
    401: ("unauthorised", "the server rejected the API key, or needs one"),
    403: ("unauthorised", "the server forbids the request to this API key"),
    404: _NOT_FOUND,
    429: ("rate-limit", "the server rejects more requests for now"),
}


@dataclass(frozen=True, slots=True)
class OutputEvent:
    """An event with output: its time, its text, and its number of tokens if it has one."""

    ns: int
    text: str
    n_tokens_so_far: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The content of a reply."""

    events: tuple[OutputEvent, ...]  #: those with output, in order
    counts: TokenCounts  #: of tokens
    #: the server's own times and counts, by its own names: llama-server's `timings`, Ollama's
    #: durations, LM Studio's stats
    timings: dict[str, float]
    model: str  #: the model's name in the reply
    build: str  #: the server's `system_fingerprint`
    finish: str  #: why it ended: `length`, `stop` or the server's own word; empty if it did not
    is_cut: bool  #: the server reports that it cut the context
    faults: tuple[Fault, ...]  #: its faults, in order; a reply with any is no measurement

    @property
    def text(self) -> str:
        """The whole output."""
        return "".join(event.text for event in self.events)

    @property
    def token_ns(self) -> tuple[int, ...]:
        """The times of the events with output."""
        return tuple(event.ns for event in self.events)

    @property
    def first_token_ns(self) -> int | None:
        """The time of the first output."""
        return self.events[0].ns if self.events else None


def read_reply(record: StreamRecord, *, is_known: bool = False) -> Reply:
    """Parse a reply; all of its faults are in the result. If its path `is_known`, see `Replies`."""
    reading = _Reading()
    if record.fault:
        reading.fault(record.fault.kind, record.fault.text)
    if (problem := _problem_of_head(record, is_known=is_known)) is not None:
        reading.faults.append(problem)
    else:
        reading.read(record)
    return reading.reply()


class Replies:
    """Parses the replies of one path and model.

    After a whole reply both are known to exist, so a server that does not find them has failed:
    mlx_lm.server replies 404 after the end of its thread.
    """

    def __init__(self) -> None:
        self._is_known = False

    def read(self, record: StreamRecord) -> Reply:
        """Parse a reply; all of its faults are in the result."""
        reply = read_reply(record, is_known=self._is_known)
        self._is_known |= not reply.faults
        return reply


def _problem_of_head(record: StreamRecord, *, is_known: bool) -> Fault | None:
    """The problem that the status or the type of the reply shows."""
    status, kind = record.status, record.header("content-type").partition(";")[0].strip().lower()
    if status is None:
        return None
    if status != 200:
        word, what = _OF_STATUS.get(status, _FAILED)
        if is_known and word == _NOT_FOUND[0]:
            word, what = _FAILED
        if 300 <= status < 400:
            word, what = "redirect", f"the server sends to {record.header('location')[:SHOWN]!r}"
        said = error_text(record.body, kind)
        return Fault(word, f"{what} (HTTP {status})" + (f": {said}" if said else ""))
    if kind in {"text/html", "application/xhtml+xml"} or record.body[:200].lstrip()[:1] == b"<":
        return Fault("html", f"the reply is a web page: {quoted(record.body)}")
    if (encoding := record.header("content-encoding")) not in {"", "identity"}:
        return Fault(
            "encoding", f"the reply is encoded as {encoding[:SHOWN]!r}; none was requested"
        )
    return None


@dataclass(slots=True)
class _Reading:
    """A reply as far as it was read."""

    events: list[OutputEvent] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    is_cut: bool = False

    def fault(self, kind: str, text: str) -> None:
        """Add a fault; one of each kind is enough."""
        if all(known.kind != kind for known in self.faults):
            self.faults.append(Fault(kind, text))

    def read(self, record: StreamRecord) -> None:
        """Read the body, event by event."""
        kind = record.header("content-type").partition(";")[0].strip().lower()
        if kind == "application/json":
            self._read_whole(record)
            return
        split = JsonLines(record.chunks) if "json" in kind else ServerSentEvents(record.chunks)
        for ns, data in split:
            if data == b"[DONE]":
                self.words.setdefault("finish", "done")
            elif data is not None:  # a comment, such as a keep-alive, has none
                self._take_event(ns, data)
        if split.problem and not self.faults:
            self.faults.append(split.problem)
        if "finish" not in self.words and not self.faults:
            self.fault("truncated", "the stream ended before the server marked it complete")

    def reply(self) -> Reply:
        """Freeze the parsed reply."""
        if not self.faults and not self.events and not self.counts.get("n_output"):
            self.fault("no-output", "the reply has no output")
        return Reply(
            events=tuple(self.events),
            counts=TokenCounts(**self.counts),
            timings=self.timings,
            model=self.words.get("model", ""),
            build=self.words.get("build", ""),
            finish=self.words.get("finish", ""),
            is_cut=self.is_cut,
            faults=tuple(self.faults),
        )

    def _read_whole(self, record: StreamRecord) -> None:
        """Read a reply that is one JSON document: an error, or an answer that was not streamed."""
        if record.chunks and not record.fault:
            self._take_event(record.chunks[-1][0], record.body)
        if not self.faults:
            self.fault("not-streamed", "the server sent its reply as one document, not as a stream")

    def _take_event(self, ns: int, data: bytes) -> None:
        try:
            payload = json.loads(data.decode())
        except UnicodeDecodeError:
            self.fault("utf-8", f"an event is not UTF-8: {quoted(data)}")
        except (ValueError, RecursionError):
            self.fault("json", f"an event is not JSON: {quoted(data)}")
        else:
            self._take_payload(ns, payload)

    def _take_payload(self, ns: int, payload: Any) -> None:
        if not isinstance(payload, dict):
            self.fault("json", f"an event is not an object: {quoted(json.dumps(payload).encode())}")
            return
        if (said := error_of(payload)) is not None:
            self.fault("stream-error", f"the server failed within its reply: {said}")
            return
        self._take_facts(payload)
        if text := "".join(outputs(output_parts(payload))):
            self.events.append(OutputEvent(ns, text, counts_of(payload)["n_output"]))

    def _take_facts(self, payload: dict[str, Any]) -> None:
        """Counts, times and names; later events replace earlier ones."""
        result = as_dict(payload.get("result"))  # LM Studio's last event
        for source in (payload, result):
            for counts in (as_dict(source.get("timings")), as_dict(source.get("stats"))):
                self.timings |= numbers(counts)
            self.timings |= {k: v for k, v in numbers(source).items() if k in OLLAMA_TIMES}
        self.counts |= {k: v for k, v in counts_of({**payload, **result}).items() if v is not None}
        self.is_cut |= payload.get("truncated") is True
        words = {"model": payload.get("model"), "build": payload.get("system_fingerprint")}
        finish = finish_of(payload)
        for name, word in {**words, "finish": finish}.items():
            if isinstance(word, str) and word:
                self.words[name] = word[:SHOWN]


def request_facts(
    record: StreamRecord, reply: Reply, *, from_intended: bool = False, lag_ns: int = 0
) -> dict[str, Any]:
    """The fields of `analysis.serving_metrics.ServedRequest`.

    Latency counts from the intended time in an open loop, otherwise from sending.
    """
    sent_ns = record.intended_ns if from_intended else record.sent_ns
    return {
        "start_ns": record.intended_ns if sent_ns is None else sent_ns,
        "event_ns": reply.token_ns,
        "closed_ns": record.closed_ns,
        "n_output": reply.counts.n_output,
        "n_prompt": reply.counts.n_prompt,
        "n_cached": reply.counts.n_cached,
        "failure": f"{reply.faults[0].kind}: {reply.faults[0].text}" if reply.faults else "",
        "is_cut": reply.is_cut,
        "model": reply.model,
        "cpu_ns": record.cpu_ns,
        "lag_ns": lag_ns,
        "timings": reply.timings,
    }
