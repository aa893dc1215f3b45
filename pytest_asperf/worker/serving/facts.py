"""One request and its reply as plain data for the pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .events import Reply
    from .record import StreamRecord


def request_facts(
    record: StreamRecord, reply: Reply, *, from_intended: bool = False, lag_ns: int = 0
) -> dict[str, Any]:
    """The fields of `analysis.serving_metrics.ServedRequest`.

    Latency counts from the intended time in an open loop, else from sending.
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
    }
