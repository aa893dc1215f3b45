"""Faults between the client and a server: a scripted one, and llama-server itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.serving_metrics import ServedRequest
from pytest_asperf.worker.server_process import ServerProcess
from pytest_asperf.worker.serving.client import stream_request
from pytest_asperf.worker.serving.events import read_reply, request_facts
from pytest_asperf.worker.serving.load import closed_loop
from pytest_asperf.worker.serving.record import Endpoint, Timeouts
from tests.conftest import Draft
from tests.serving.fake_server import FakeServer, delta, last, serving, sse, streamed
from tests.serving.relay import HARMS, Harm, doubled, through, untouched

N_OUTPUT = 24
ASKED = {
    "prompt": "def area(width, height):", "max_tokens": N_OUTPUT, "stream": True,
    "ignore_eos": True, "stream_options": {"include_usage": True},
}  # fmt: skip
#: For faults that only time shows, and for those that are to be seen however busy the machine is.
SHORT = Timeouts(connect_s=5.0, headers_s=5.0, idle_s=0.3, total_s=1.0)
PATIENT = Timeouts(connect_s=5.0, headers_s=30.0, idle_s=30.0, total_s=60.0)


_REAL = pytest.param("llama-server", marks=pytest.mark.live)


@pytest.fixture(scope="module", params=["scripted", _REAL])
def upstream(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    """A server that streams."""
    if request.param == "scripted":
        server = FakeServer(lambda _: streamed(sse(*[delta("x")] * N_OUTPUT, last(8, N_OUTPUT))))
        yield server.endpoint
        server.close()
        return
    program: Path = request.getfixturevalue("program")("llama-server")
    draft: Draft = request.getfixturevalue("draft")
    options = ("-m", str(draft("Q8_0")), "-t", "1", "--host", "127.0.0.1")
    process = ServerProcess(
        "llama-server",
        lambda port: (program, (*options, "--port", str(port))),
        "/health",
    )
    yield process.endpoint
    process.end()


def load(upstream: Endpoint, *harms: Harm, n: int, timeouts: Timeouts) -> list[ServedRequest]:
    """Requests of one user, the harms done to their replies in turn."""
    with serving(through(upstream, *harms)) as relay:
        records = closed_loop(
            lambda _, now: stream_request(
                relay.endpoint, "/v1/completions", ASKED, intended_ns=now, timeouts=timeouts
            ),
            1, n,
        )  # fmt: skip
    return [ServedRequest(**request_facts(record, read_reply(record))) for record in records]


@pytest.mark.parametrize("name", HARMS)
def test_a_fault_on_the_way_is_named_and_costs_one_request(name: str, upstream: Endpoint) -> None:
    """The reply with the fault has its name, in words; the next request is complete."""
    harm, fault = HARMS[name]
    timeouts = SHORT if fault in {"timeout", "deadline"} else PATIENT
    (harmed,) = load(upstream, harm, n=1, timeouts=timeouts)
    (sound,) = load(upstream, untouched, n=1, timeouts=PATIENT)
    assert harmed.failure.partition(":")[0] == fault
    assert len(harmed.failure) < 600
    assert sound.is_complete
    assert sound.n_output == N_OUTPUT


def test_faults_in_a_series_are_counted(upstream: Endpoint) -> None:
    """Every second request fails: the series is INVALID, with the names of the faults."""
    harms = [HARMS[name][0] for name in ("nothing", "cut", "nothing", "500 in the middle")]
    done = load(upstream, *harms, n=4, timeouts=PATIENT)
    found = guards.failed_requests({r.failure: 1 for r in done if r.failure}, len(done))
    assert found is not None
    assert "2 of 4 requests have no complete reply: truncated" in found.found
    assert "stream-error" in found.found


def test_events_that_come_twice_are_no_tokens(upstream: Endpoint) -> None:
    """The server's own count is the number of tokens."""
    done = load(upstream, doubled, n=1, timeouts=PATIENT)
    found = guards.served_requests(guards.ServedWork(n_users=1, n_output=N_OUTPUT), done)
    assert "tokens-per-chunk" in {one.guard for one in found}
    assert done[0].n_output == N_OUTPUT
