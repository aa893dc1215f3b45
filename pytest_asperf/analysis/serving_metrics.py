"""Latency and throughput of requests to a server.

Tools use one name for different quantities (docs/audit.md, section "Load generators"). Here each
function states its definition, and tokens are the server's own count, never the number of chunks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median
from typing import Final

from pytest_asperf.analysis.stats.estimate import DECISION_CONFIDENCE, Estimate, nothing_measured
from pytest_asperf.errors import MeasurementError

_NS_PER_MS: Final = 1e6


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One request and its reply, in ns of one clock."""

    start_ns: int  #: start of the latency: when it was sent; in an open loop its intended time
    event_ns: tuple[int, ...]  #: times of the chunks with output
    closed_ns: int  #: when the reply had ended
    n_output: int | None  #: output tokens by the server's count; None if it has none
    #: tokens of the prompt by the server's count, with those from its cache
    n_prompt: int | None = None
    n_cached: int | None = None  #: tokens of these that came from the server's cache
    failure: str = ""  #: the fault, its name first; empty for a complete reply
    is_cut: bool = False  #: True if the server reports that it cut the context
    model: str = ""  #: the model that the reply names
    cpu_ns: int = 0  #: CPU time of the client
    lag_ns: int = 0  #: median lag of the client's stamps with as many streams; 0 if not measured
    #: the server's own times and counts, by its own names
    timings: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def is_complete(self) -> bool:
        """True if it has an output that ended as it should."""
        return not self.failure and bool(self.event_ns)


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits of a service level objective, in ms; None is no limit."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One load of a sweep: users of a closed loop, or requests per second of an open one."""

    load: float
    output_rate: float
    mean_e2e_ms: float
    tpot_ms: float | None  #: median; None if the replies have one token

    @property
    def user_rate(self) -> float | None:
        """Generation as a user sees it, in tok/s; None if most replies came at once."""
        return 1e3 / self.tpot_ms if self.tpot_ms else None

    @property
    def power(self) -> float:
        """Throughput over latency (Kleinrock, *ICC* 1979): highest at the knee."""
        return self.output_rate / self.mean_e2e_ms


def ttft_ns(request: ServedRequest) -> int:
    """Time to first token: from the start to the first chunk with output.

    A role chunk, progress or a comment is no output; vLLM's client and server-bench.py count them.
    """
    return _times(request)[0] - request.start_ns


def e2e_ns(request: ServedRequest) -> int:
    """End-to-end latency: from the start to the last chunk with output, as in vLLM.

    llm-grill counts to the end of the stream.
    """
    return _times(request)[-1] - request.start_ns


def itl_ns(request: ServedRequest) -> list[int]:
    """Inter-token latency: the gaps between chunks with output, if each has one token.

    vLLM pools the same gaps. GuideLLM and AIPerf call TPOT so; llmperf's has TTFT in it.
    """
    return [after - before for before, after in pairwise(_times(request))]


def tpot_ns(request: ServedRequest) -> float:
    """Time per output token: (last - first chunk) / (n - 1), as in vLLM.

    GuideLLM's has TTFT in it. A MeasurementError for a reply of one token, which has none.
    """
    n, times = output_tokens(request), _times(request)
    if n < 2:
        raise MeasurementError(
            f"a reply of {n} token has no time per token after the first",
            why="vLLM's client counts it as 0 ms, which meets every limit",
            remedy="request two tokens or more, or judge TTFT",
        )
    return (times[-1] - times[0]) / (n - 1)


def user_rate(request: ServedRequest) -> float:
    """Generation as its user sees it, in tok/s: 1 / TPOT.

    A MeasurementError if all tokens came at once.
    """
    if not (each_ns := tpot_ns(request)):
        raise MeasurementError(
            f"all {output_tokens(request)} tokens of a reply came at once, so they have no rate",
            remedy="have the server send each token, or request a longer answer",
        )
    return 1e9 / each_ns


def whole_request_rate(request: ServedRequest) -> float:
    """Output tokens over the end-to-end latency, in tok/s; the prompt's time lowers it."""
    return output_tokens(request) * 1e9 / e2e_ns(request)


def output_tokens(request: ServedRequest) -> int:
    """Output tokens by the server's count; a MeasurementError where it gives none."""
    if request.n_output is None:
        raise MeasurementError(
            "the server does not report how many tokens it generated",
            why="a chunk may have several tokens or none, so that chunks do not count them",
            remedy="use a server that sends usage with stream_options.include_usage",
        )
    return request.n_output


def duration_s(requests: Sequence[ServedRequest]) -> float:
    """From the first request's start to the end of the last reply."""
    if not requests:
        raise nothing_measured("requests")
    first, last = min(r.start_ns for r in requests), max(r.closed_ns for r in requests)
    return (last - first) / 1e9


def output_rate(requests: Sequence[ServedRequest]) -> float:
    """Total rate in tok/s: output tokens of complete replies over the duration, as in vLLM."""
    return sum(map(output_tokens, complete(requests))) / duration_s(requests)


def request_throughput(requests: Sequence[ServedRequest]) -> float:
    """Complete replies per second of the duration, as in vLLM and AIPerf."""
    return len(complete(requests)) / duration_s(requests)


def goodput(requests: Sequence[ServedRequest], limits: ServiceLimits) -> float:
    """Replies per second that meet every limit (DistServe, OSDI 2024; as in vLLM and AIPerf)."""
    return sum(meets(r, limits) for r in complete(requests)) / duration_s(requests)


def meets(request: ServedRequest, limits: ServiceLimits) -> bool:
    """True if a complete reply meets every limit; one of a single token has no TPOT to judge."""
    figures = ((limits.ttft_ms, ttft_ns), (limits.tpot_ms, tpot_ns), (limits.e2e_ms, e2e_ns))
    return all(limit is None or of(request) <= limit * _NS_PER_MS for limit, of in figures)


def mean_concurrency(requests: Sequence[ServedRequest]) -> float:
    """Requests under way at a time, on average: the sum of their times over the duration."""
    total_ns = sum(request.closed_ns - request.start_ns for request in requests)
    return total_ns / 1e9 / duration_s(requests)


def served_at_once(requests: Sequence[ServedRequest]) -> int:
    """The most replies that were generated at one time.

    Each counts from its first token to the last but one, as the last one's stamp may lag until the
    next reply has begun.
    """
    steps = [
        step
        for request in complete(requests)
        for step in ((request.event_ns[0], 1), (request.event_ns[-2:][0], -1))
    ]
    now = most = 0
    for _, step in sorted(steps):  # an end sorts before a beginning of the same time
        now += step
        most = max(most, now)
    return most


def ttft_percentile(
    requests: Sequence[ServedRequest], percentile: float, confidence: float = DECISION_CONFIDENCE
) -> Estimate:
    """A percentile of TTFT in ms over complete replies, with the interval of order statistics."""
    from pytest_asperf.analysis.stats.percentiles import percentile_interval  # noqa: PLC0415  # numpy

    values = [[ttft_ns(request) / _NS_PER_MS] for request in complete(requests)]
    return percentile_interval(values, percentile, confidence, unit="ms", counted="requests")


def itl_percentile(
    requests: Sequence[ServedRequest], percentile: float, confidence: float = DECISION_CONFIDENCE
) -> Estimate:
    """A percentile of the gaps in ms of complete replies, where those of one are dependent."""
    from pytest_asperf.analysis.stats.percentiles import percentile_interval  # noqa: PLC0415  # numpy

    values = [[gap / _NS_PER_MS for gap in itl_ns(request)] for request in complete(requests)]
    return percentile_interval(values, percentile, confidence, unit="ms", counted="gaps")


def complete(requests: Sequence[ServedRequest]) -> list[ServedRequest]:
    """The requests with a complete reply."""
    return [request for request in requests if request.is_complete]


def load_point(load: float, requests: Sequence[ServedRequest]) -> LoadPoint:
    """The results of a server at one load of a sweep."""
    done = complete(requests)
    if not done:
        raise nothing_measured("complete replies")
    tpots_ns = [tpot_ns(request) for request in done if output_tokens(request) > 1]
    return LoadPoint(
        load,
        output_rate(requests),
        mean_e2e_ms=fmean(map(e2e_ns, done)) / _NS_PER_MS,
        tpot_ms=median(tpots_ns) / _NS_PER_MS if tpots_ns else None,
    )


def knee(points: Sequence[LoadPoint]) -> LoadPoint:
    """The load of highest power: more load brings more latency than throughput (Kleinrock 1979).

    If it is the last load of the sweep, the knee may lie beyond.
    """
    if len({point.load for point in points}) < 3:
        raise MeasurementError(
            f"{len(points)} loads have no knee",
            why="it lies between a lighter and a heavier load",
            remedy="sweep three loads or more, such as 1, 2, 4 and 8 users",
        )
    return max(points, key=lambda point: point.power)


def _times(request: ServedRequest) -> tuple[int, ...]:
    if not request.event_ns:
        raise nothing_measured("output in the reply")
    return request.event_ns
