"""Latency and throughput by their definitions."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_asperf.analysis import serving_metrics as metrics
from pytest_asperf.analysis.serving_metrics import LoadPoint, ServedRequest, ServiceLimits
from pytest_asperf.errors import MeasurementError

MS = 1_000_000
#: Sent at 100 ms; tokens at 300, 310 and 330 ms; closed at 340 ms.
REPLY = ServedRequest(100 * MS, (300 * MS, 310 * MS, 330 * MS), 340 * MS, n_output=3)


def later(by_ms: int, reply: ServedRequest = REPLY) -> ServedRequest:
    """The same request, later."""
    by = by_ms * MS
    events = tuple(time + by for time in reply.event_ns)
    return replace(
        reply, start_ns=reply.start_ns + by, event_ns=events, closed_ns=reply.closed_ns + by
    )


def test_each_figure_of_a_reply_has_its_definition() -> None:
    """TTFT, E2E, gaps, TPOT and both rates of one reply, worked by hand."""
    assert metrics.ttft_ns(REPLY) == 200 * MS
    assert metrics.e2e_ns(REPLY) == 230 * MS
    assert metrics.itl_ns(REPLY) == [10 * MS, 20 * MS]
    assert metrics.tpot_ns(REPLY) == 15 * MS
    assert metrics.user_rate(REPLY) == pytest.approx(1000 / 15)
    assert metrics.whole_request_rate(REPLY) == pytest.approx(3 / 0.230)


def test_tokens_are_the_servers_count() -> None:
    """Three chunks of six tokens make a TPOT of five gaps; without a count there is none."""
    assert metrics.tpot_ns(replace(REPLY, n_output=6)) == 6 * MS
    with pytest.raises(MeasurementError, match="how many tokens"):
        metrics.tpot_ns(replace(REPLY, n_output=None))


def test_one_token_has_no_time_per_token() -> None:
    """A limit on TPOT is not met by a reply that has none."""
    one = replace(REPLY, event_ns=REPLY.event_ns[:1], n_output=1)
    assert metrics.meets(one, ServiceLimits(ttft_ms=200))
    with pytest.raises(MeasurementError, match="no time per token"):
        metrics.meets(one, ServiceLimits(tpot_ms=1000))


def test_tokens_that_come_at_once_have_no_rate() -> None:
    """A server may keep its text until the answer's end."""
    with pytest.raises(MeasurementError, match="all 3 tokens of a reply came at once"):
        metrics.user_rate(replace(REPLY, event_ns=REPLY.event_ns[:1]))


def test_a_load_counts_complete_replies_over_the_whole_time() -> None:
    """Two replies and a failure in 0.5 s: rates are of the two, over the time of all three."""
    failed = replace(later(260), failure="lost", event_ns=())
    load = [REPLY, later(100), failed]
    assert metrics.duration_s(load) == pytest.approx(0.5)
    assert metrics.output_rate(load) == pytest.approx(12)
    assert metrics.request_throughput(load) == pytest.approx(4)
    assert metrics.goodput(load, ServiceLimits(ttft_ms=200, e2e_ms=230)) == pytest.approx(4)
    assert metrics.goodput(load, ServiceLimits(tpot_ms=14)) == 0
    assert metrics.mean_concurrency(load) == pytest.approx(3 * 0.24 / 0.5)


@pytest.mark.parametrize(("offset_ms", "at_once"), [(0, 2), (9, 2), (10, 1), (200, 1)])
def test_replies_overlap_while_they_are_generated(offset_ms: int, at_once: int) -> None:
    """A reply that begins about when another's last token comes does not overlap with it."""
    assert metrics.served_at_once([REPLY, later(offset_ms)]) == at_once


def test_percentiles_have_intervals_by_requests() -> None:
    """TTFT has one value for each request, and gaps of one request are no independent samples."""
    load = [later(n, replace(REPLY, start_ns=(100 - n) * MS)) for n in range(60)]
    ttft = metrics.ttft_percentile(load, 50)
    assert (ttft.n, ttft.unit) == (60, "ms")
    assert ttft.point == pytest.approx(229.5)
    assert ttft.low < ttft.point < ttft.high
    gaps = metrics.itl_percentile(load, 50)
    assert gaps.n == 120
    assert gaps.point == pytest.approx(15)
    assert not metrics.itl_percentile(load[:1], 50).has_interval


def test_nothing_measured_is_an_error() -> None:
    """A load without requests or without a complete reply has no figure."""
    empty = replace(REPLY, event_ns=())
    for broken in (
        lambda: metrics.duration_s([]),
        lambda: metrics.ttft_ns(empty),
        lambda: metrics.load_point(1, [empty]),
    ):
        with pytest.raises(MeasurementError):
            broken()


def test_the_knee_is_where_more_load_brings_more_latency_than_rate() -> None:
    """Rate saturates at 4 users, after which latency grows alone; two loads have no knee."""
    rates = {1: 100.0, 2: 190.0, 4: 340.0, 8: 360.0, 16: 362.0}
    points = [LoadPoint(n, rate, 1000 * n * 64 / rate, tpot_ms=None) for n, rate in rates.items()]
    assert metrics.knee(points).load == 4
    with pytest.raises(MeasurementError, match="no knee"):
        metrics.knee(points[:2])


def test_a_sweeps_point_is_made_of_its_requests() -> None:
    """Rate and mean latency of one load, and the median TPOT of replies that have one."""
    point = metrics.load_point(2, [REPLY, later(100)])
    assert point.output_rate == pytest.approx(6 / 0.34)
    assert point.mean_e2e_ms == pytest.approx(230)
    assert point.tpot_ms == 15
    assert point.user_rate == pytest.approx(1000 / 15)
    one_token = replace(REPLY, event_ns=REPLY.event_ns[:1], n_output=1)
    assert metrics.load_point(2, [REPLY, one_token]).tpot_ms == 15
    assert metrics.load_point(2, [one_token]).user_rate is None


@settings(max_examples=40)
@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=20), st.integers(0, 10**9))
def test_times_add_up(gaps: list[int], wait: int) -> None:
    """TTFT and all gaps make E2E, and TPOT is their mean where chunks are tokens."""
    times = [wait]
    for gap in gaps:
        times.append(times[-1] + gap)
    reply = ServedRequest(0, tuple(times), times[-1] + 1, n_output=len(times))
    assert metrics.ttft_ns(reply) + sum(metrics.itl_ns(reply)) == metrics.e2e_ns(reply)
    assert metrics.tpot_ns(reply) == pytest.approx(sum(gaps) / len(gaps))
