"""Many requests at once, on real sockets."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_asperf.worker.engine import RefusalError
from pytest_asperf.worker.serving.client import stream_request
from pytest_asperf.worker.serving.events import read_reply
from pytest_asperf.worker.serving.load import (
    Ask,
    closed_loop,
    measure_client_cost,
    open_loop,
    poisson_arrivals,
    quiet_median,
)
from pytest_asperf.worker.serving.record import StreamRecord
from tests.serving.fake_server import FakeServer, Step, delta, last, serving, sse, streamed


def asking(server: FakeServer) -> Ask:
    """How requests are sent to a server, each with its number."""

    def ask(number: int, intended_ns: int) -> StreamRecord:
        return stream_request(server.endpoint, "/", {"n": number}, intended_ns=intended_ns)

    return ask


class Meeting:
    """Replies only when N requests are under way at once, with each one's number."""

    def __init__(self, n: int) -> None:
        self._all_here = threading.Barrier(n, timeout=60.0)

    def __call__(self, request: dict[str, Any]) -> Iterator[Step]:
        """The reply to one of them."""
        self._all_here.wait()
        yield from streamed(sse(delta(str(request["n"])), last()))


def test_users_of_a_closed_loop_ask_at_once() -> None:
    """Three users have three requests under way, never fewer, and the replies are in order."""
    with serving(Meeting(3)) as server:
        records = closed_loop(asking(server), 3, 9)
    assert [read_reply(record).text for record in records] == [str(n) for n in range(9)]
    assert len(server.requests) == 9


def test_a_user_alone_asks_one_after_the_other() -> None:
    """With one user a request is sent when the last one has ended."""
    with serving(streamed(sse(delta("a"), last()))) as server:
        records = closed_loop(asking(server), 1, 3)
    sent, closed = [r.sent_ns or 0 for r in records], [r.closed_ns for r in records]
    assert all(after > before for after, before in zip(sent[1:], closed, strict=False))


def test_arrivals_of_an_open_loop_do_not_wait_for_replies() -> None:
    """All of an open loop's requests are under way at once where none has been answered."""
    with serving(Meeting(4)) as server:
        records = open_loop(asking(server), [0, 1_000_000, 2_000_000, 3_000_000])
    intended = [record.intended_ns for record in records]
    assert [time - intended[0] for time in intended] == [0, 1_000_000, 2_000_000, 3_000_000]
    assert all((record.sent_ns or 0) >= record.intended_ns for record in records)


def test_a_request_that_had_to_wait_counts_from_its_time() -> None:
    """With one place for requests, the second one's latency has the first one's reply in it."""
    with serving([0.05, *streamed(sse(delta("a"), last()))]) as server:
        first, second = open_loop(asking(server), [0, 0], max_open=1)
    assert second.intended_ns == first.intended_ns
    assert (second.sent_ns or 0) > first.closed_ns
    assert second.closed_ns - second.intended_ns >= 100_000_000


def test_a_failed_request_leaves_the_others() -> None:
    """A server that fails one request of three costs that one, by its name."""
    replies = {1: [None]}
    sound = streamed(sse(delta("a"), last()))
    with serving(lambda request: replies.get(request["n"], sound)) as server:
        records = closed_loop(asking(server), 2, 3)
    kinds = [[fault.kind for fault in read_reply(record).faults] for record in records]
    assert kinds == [[], ["lost"], []]


def test_an_error_of_ours_ends_the_load() -> None:
    """An error that is no server's fault is raised, from any thread."""

    def ask(number: int, intended_ns: int) -> StreamRecord:
        raise ValueError(number + intended_ns)

    with pytest.raises(ValueError, match=r"\d"):
        closed_loop(ask, 4, 8)


def test_poisson_arrivals_are_of_their_rate_and_seed() -> None:
    """Gaps are exponential of the rate, and equal for equal seeds."""
    times = poisson_arrivals(100.0, 4000, seed=1)
    gaps = [after - before for before, after in zip([0, *times], times, strict=False)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(1e7, rel=0.06)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert spread == pytest.approx(mean, rel=0.08)
    assert times == poisson_arrivals(100.0, 4000, seed=1) != poisson_arrivals(100.0, 4000, seed=2)
    with pytest.raises(ValueError, match="not a rate"):
        poisson_arrivals(0.0, 1, seed=1)


def test_the_clients_own_cost_is_measured() -> None:
    """A server of known pace shows this client's lag and its cost."""
    cost = measure_client_cost(2, n_chunks=5, pace_us=2000)
    assert (cost.n_streams, cost.n_chunks) == (2, 5)
    assert 0 < cost.lag_p50_ns <= cost.lag_p95_ns
    assert cost.cpu_ns_per_chunk > 0


def test_a_cost_that_cannot_be_measured_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that does not start the server raises, and leaves no process."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(RefusalError, match="it did not start"):
        measure_client_cost(1)


def test_other_work_on_the_machine_is_no_cost_of_the_client() -> None:
    """The lag is that of the quietest fifth of the time, over all streams."""
    disturbed = [9000] * 4
    streams = [[*disturbed, 10, *disturbed, 9000], [*disturbed, 30, *disturbed, 9000]]
    assert quiet_median([stream[4:9] for stream in streams]) == 20
    assert quiet_median([[5, 7, 6, 8, 9]]) == 5
