"""The content of a reply, in the forms of each API."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_asperf.worker.serving.events import Replies, read_reply
from pytest_asperf.worker.serving.record import StreamRecord
from tests.serving.fake_server import delta, last, role, sse


def received(reads: Iterable[bytes], kind: str = "text/event-stream") -> StreamRecord:
    """A reply whose reads came at 10, 20, ... ns."""
    chunks = tuple((10 * number, data) for number, data in enumerate(reads, 1))
    headers = (("content-type", kind),)
    return StreamRecord(0, 1, 2, chunks, 10**6, 200, headers, cpu_ns=0, fault=None)


def lines(*payloads: dict[str, Any]) -> list[bytes]:
    """JSON lines, as Ollama sends them."""
    return [json.dumps(payload).encode() + b"\n" for payload in payloads]


def test_only_output_is_a_token() -> None:
    """Role chunks, progress, comments and empty deltas move neither the first token nor a count."""
    progress = {"prompt_progress": {"total": 9, "processed": 4}, **role()}
    reads = [b": ping\n\n", *sse(role(), progress, delta(""), delta("a"), delta("b"), last())]
    reply = read_reply(received(reads))
    assert (reply.first_token_ns, reply.token_ns) == (50, (50, 60))


def test_an_event_has_the_time_of_the_read_that_completed_it() -> None:
    """Half an event is no token yet; two events of one read have one time."""
    first, second, *rest = sse(delta("a"), delta("b"), last())
    reply = read_reply(received([first[:9], first[9:] + second, *rest]))
    assert reply.token_ns == (20, 20)


def test_llama_server_says_its_own_times() -> None:
    """Its counts include cached tokens, and its own API is read as well."""
    timings = {"cache_n": 6, "prompt_n": 2, "predicted_n": 3, "predicted_ms": 1.5, "bad": None}
    reply = read_reply(received(sse(delta("a", timings={"predicted_n": 2}), last(timings=timings))))
    assert (reply.counts.n_prompt, reply.counts.n_cached, reply.counts.n_output) == (8, 6, 3)
    assert reply.events[0].n_tokens_so_far == 2
    assert reply.timings == {k: v for k, v in timings.items() if v is not None}
    stopped = {"content": "", "stop": True, "stop_type": "limit", "truncated": True}
    counted = {"tokens_predicted": 1, "tokens_evaluated": 7}
    own = read_reply(received(sse({"content": "x", "stop": False}, stopped | counted, done=False)))
    assert (own.text, own.finish, own.is_cut, own.faults) == ("x", "length", True, ())
    assert (own.counts.n_prompt, own.counts.n_output) == (7, 1)


def test_ollama_and_lm_studio_are_read() -> None:
    """JSON lines with durations, and typed events with stats, give the same facts."""
    done = {"model": "q", "response": "", "done": True, "done_reason": "length", "eval_count": 2}
    reads = lines({"response": "a"}, {"message": {"content": "b"}}, done | {"eval_duration": 9})
    ollama = read_reply(received(reads, "application/x-ndjson"))
    assert (ollama.text, ollama.finish, ollama.model, ollama.faults) == ("ab", "length", "q", ())
    assert (ollama.counts.n_output, ollama.timings["eval_duration"]) == (2, 9)
    stats = {"total_output_tokens": 2, "time_to_first_token_seconds": 0.5}
    typed = [
        {"type": "prompt_processing.progress", "progress": 0.5},
        {"type": "reasoning.delta", "content": "a"},
        {"type": "message.delta", "content": "b"},
        {"type": "chat.end", "result": {"stats": stats, "output": [{"content": "ab"}]}},
    ]
    studio = read_reply(received(sse(*typed, done=False)))
    assert (studio.text, studio.counts.n_output) == ("ab", 2)
    assert (studio.finish, studio.timings["time_to_first_token_seconds"]) == ("done", 0.5)


def test_reasoning_and_calls_of_tools_are_output() -> None:
    """A model that thinks or calls a tool has given tokens."""
    thinking = {"choices": [{"delta": {"reasoning_content": "hm"}}]}
    calls = {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]}
    completion = {"choices": [{"text": "x"}]}
    assert read_reply(received(sse(thinking, calls, completion, last()))).text == "hm{}x"


def test_a_path_that_has_answered_is_there() -> None:
    """mlx_lm.server replies 404 to all requests after the end of its thread."""
    body = b'{"error": "generation thread died"}'
    failed = replace(received([body], "application/json"), status=404)
    replies = Replies()
    kinds = [fault.kind for fault in replies.read(failed).faults]
    replies.read(received(sse(delta("a"), last())))
    (fault,) = replies.read(failed).faults
    assert (*kinds, fault.kind) == ("not-found", "server-error")
    assert fault.text == "the server failed (HTTP 404): 'generation thread died'"


@settings(max_examples=40)
@given(
    st.lists(st.binary(max_size=60), max_size=6), st.sampled_from(["text/event-stream", "a/json"])
)
def test_no_reply_is_too_broken_to_be_read(reads: list[bytes], kind: str) -> None:
    """Anything that a server sends is a reply or a named fault, and never an exception."""
    prefixed = [b"data: " + data + b"\n\n" for data in reads]
    for body in (reads, prefixed):
        assert read_reply(received(body, kind)).faults


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["choices", "delta", "usage", "timings", "error", "type", "result"])
                | st.sampled_from(
                    ["content", "stats", "tool_calls", "function", "completion_tokens"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_payload_is_too_odd_to_be_read(payload: Any) -> None:
    """Values of the wrong type anywhere in an event are no exception."""
    read_reply(received(sse(payload, last())))
