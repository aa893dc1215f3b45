"""Each fault of a server over real sockets, and the guard that finds it."""

import threading
from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.serving_metrics import ServedRequest, itl_ns, ttft_ns
from pytest_asperf.worker.serving.client import stream_request
from pytest_asperf.worker.serving.events import read_reply, request_facts
from pytest_asperf.worker.serving.load import closed_loop, open_loop
from tests.serving.fake_server import FakeServer, Step, delta, last, role, serving, sse, streamed

N_PROMPT, N_OUTPUT = 64, 20
ASKED = guards.ServedWork(n_users=1, n_prompt=N_PROMPT, n_output=N_OUTPUT, model="m")


def reply(
    n: int = N_OUTPUT, *, chunks: int | None = None, before: Iterable[Any] = (), **more: Any
) -> list[Step]:
    """A reply of n tokens; options change the last event."""
    events = [delta("x") for _ in range(n if chunks is None else chunks)]
    end = last(**{"n_prompt": N_PROMPT, "n_output": n, "model": "m", **more})
    parts: list[Step] = []
    for event in sse(*before, *events, end):
        parts += [event, 0.001]
    return streamed(parts)


def load(server: FakeServer, n: int, n_users: int = 1) -> list[ServedRequest]:
    """Requests of a closed loop, as they come out of the worker."""
    records = closed_loop(
        lambda _, now: stream_request(server.endpoint, "/", {}, intended_ns=now), n_users, n
    )
    return [ServedRequest(**request_facts(record, read_reply(record))) for record in records]


FAULTS: dict[str, tuple[str | None, list[list[Step]]]] = {
    "sound": (None, [reply()]),
    "sound, a role first": (None, [reply(before=[role()])]),
    "sound, the end of text has no chunk": (None, [reply(chunks=N_OUTPUT - 1)]),
    "sound, a template in the cache": (None, [reply(timings={"cache_n": 8})]),
    "prompt from the cache": ("cached-prompt", [reply(timings={"cache_n": 60})]),
    "cached, by usage": (
        "cached-prompt",
        [reply(usage={"prompt_tokens": N_PROMPT, "completion_tokens": N_OUTPUT,
                      "prompt_tokens_details": {"cached_tokens": 48}})],
    ),
    "several tokens in a chunk": ("tokens-per-chunk", [reply(chunks=N_OUTPUT // 2)]),
    "chunks that are no tokens": ("tokens-per-chunk", [reply(chunks=N_OUTPUT + 2)]),
    "stream cut off": ("failed-requests", [reply(), reply()[:-9]]),
    "refused": ("failed-requests", [reply(), [b"HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n"]]),
    "fewer tokens": ("other-length", [reply(), reply(5, reason="stop")]),
    "another model": ("path-mismatch", [reply(model="n")]),
    "context cut": ("context-cut", [reply(n_prompt=40)]),
    "context cut, as it says": ("context-cut", [reply(truncated=True)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_by_its_guard(name: str) -> None:
    """A fault in some replies makes the series INVALID by one guard, and a sound one by none."""
    guard, replies = FAULTS[name]
    scripts = cycle(replies)
    with serving(lambda _: next(scripts)) as server:
        done = load(server, len(replies))
    found = guards.served_requests(ASKED, done)
    assert [finding.guard for finding in found] == ([guard] if guard else [])
    assert all(finding.consequence is guards.Consequence.INVALID for finding in found)


def test_a_role_chunk_is_no_first_token() -> None:
    """Time between role and first token belongs to TTFT, and not to the first gap."""
    late = streamed([*sse(role(), done=False), 0.05, *sse(delta("a"), delta("b"), last())])
    with serving(late) as server:
        (done,) = load(server, 1)
    assert ttft_ns(done) >= 50_000_000
    counted_wrongly = [(1e6, [50e6, 1e6, 1e6, 1e6])] * 3
    found = guards.first_chunk_early(counted_wrongly)
    assert found is not None
    assert found.guard == "role-chunk"
    assert guards.first_chunk_early([(50e6, [1e6, 1e6, 1e6, 1e6])]) is None
    assert guards.first_chunk_early([(1e6, [50e6, 0.0, 0.0, 0.0])]) is None  # read at once


@pytest.mark.parametrize(("n_slots", "consequence"), [(None, "WARNING"), (1, "INVALID"), (2, None)])
def test_a_server_that_serves_one_at_a_time_is_found(
    n_slots: int | None, consequence: str | None
) -> None:
    """With fewer slots than users some wait; replies that never overlap are a hint of it."""
    slot = threading.Lock()

    def one_at_a_time(_: dict[str, Any]) -> Iterable[Step]:
        with slot:
            yield from reply()

    with serving(one_at_a_time) as server:
        done = load(server, 4, n_users=2)
    found = guards.queueing(done, 2, n_slots)
    assert (found and str(found.consequence)) == consequence
    if consequence == "INVALID":
        compared = guards.queueing([], 2, n_slots, is_compared=True)
        assert compared is not None
        assert compared.consequence is guards.Consequence.WARNING


def test_a_server_that_serves_all_at_once_is_not_suspected() -> None:
    """Replies of two users that overlap are no queue."""
    both_began = threading.Barrier(2, timeout=60.0)

    def together(_: dict[str, Any]) -> Iterable[Step]:
        begin, *rest = reply()
        yield from [begin, *rest[:4], 0.02]
        both_began.wait()
        yield from [0.02, *rest[4:]]

    with serving(together) as server:
        done = load(server, 2, n_users=2)
    assert guards.queueing(done, 2) is None


def test_an_open_loop_counts_what_a_slow_server_makes_others_wait() -> None:
    """Latency from the intended time has the wait in it that a closed loop leaves out."""
    with serving([0.05, *reply()]) as server:
        records = open_loop(
            lambda _, now: stream_request(server.endpoint, "/", {}, intended_ns=now),
            [0, 0], max_open=1,
        )  # fmt: skip
    second = records[1]
    waited, own = (
        ttft_ns(ServedRequest(**request_facts(second, read_reply(second), from_intended=kind)))
        for kind in (True, False)
    )
    assert waited >= own + 50_000_000


def test_a_server_that_restarted_is_found() -> None:
    """Another start, another build, or a counter that went back; an unknown fact is no change."""
    before = {"pid": 7, "build": "b1", "prompt_tokens_total": 90, "slots": None}
    assert guards.restarted(before, {**before, "prompt_tokens_total": 99, "slots": 4}) is None
    for after in ({"pid": 8}, {"build": "b2"}, {"prompt_tokens_total": 3}):
        found = guards.restarted(before, after)
        assert found is not None
        assert found.guard == "server-restarted"


def test_a_cached_prompt_shows_in_its_time() -> None:
    """If a server does not report its cache, one prompt in a third of the time is a hint."""
    times = [30, 31, 10, 29, 32, 30]
    done = [ServedRequest(0, (1_000_000 * t,), 1_000_000 * t, 1) for t in times]
    found = guards.short_ttft(done)
    assert found is not None
    assert found.consequence is guards.Consequence.WARNING
    assert guards.short_ttft([*done[:2], *done[3:]]) is None
    assert guards.short_ttft([replace(one, n_cached=0) for one in done]) is None


def test_chunks_that_were_read_at_once_show_no_gaps() -> None:
    """A reply whose chunks mostly came in one read has no inter-token times."""
    apart = ServedRequest(0, (10, 20, 30, 40, 40), 50, 5)
    assert guards.joined_stamps([apart]) is None
    found = guards.joined_stamps([replace(apart, event_ns=(10, 40, 40, 40, 40))])
    assert found is not None
    assert "5 chunks in 2 reads" in found.found


@pytest.mark.parametrize(
    ("cpu_us", "lag_us", "is_bound"), [(100, 20, False), (600, 20, True), (100, 150, True)]
)
def test_a_client_that_cannot_follow_is_found(cpu_us: int, lag_us: int, *, is_bound: bool) -> None:
    """A busy client, or stamps that lag by much of a gap of 500 us, measure the client."""
    times = tuple(500_000 * n for n in range(1, 5))
    done = ServedRequest(0, times, 2_000_000, 4, cpu_ns=cpu_us * 1000, lag_ns=lag_us * 1000)
    assert (guards.client_bound([done]) is not None) is is_bound
    assert guards.client_bound([replace(done, event_ns=times[:1], cpu_ns=0)]) is None
    # TTFT of 5 ms is not late by the lag that a gap of 0.5 ms is.
    assert (guards.client_bound([done], 5_000_000) is not None) is (cpu_us > 500)


def test_gaps_are_those_of_the_chunks() -> None:
    """The gaps of a reply are one fewer than its chunks."""
    with serving(reply()) as server:
        (done,) = load(server, 1)
    assert len(itl_ns(done)) == N_OUTPUT - 1
