"""One row for each thing measured or judged, as plain data that xdist can carry."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_asperf.analysis.stats.estimate import (
    Estimate,
    counted_text,
    memory_text,
    number_text,
    percent_text,
)
from pytest_asperf.analysis.verdict import OVERSUBSCRIBED
from pytest_asperf.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.engine_process import RawRun
    from pytest_asperf.errors import AsperfError
    from pytest_asperf.measure.engine_memory import MemoryResult
    from pytest_asperf.measure.results import LevelResult, Provenance, ThroughputResult
    from pytest_asperf.published.findings import Finding
    from pytest_asperf.published.findings.evidence import Evidence


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A line of the summary, with the raw figures behind it.

    Attributes:
        model: what was measured; of a verdict, empty.
        subject: the metric, or what the claim is about.
        measured: the figure with its interval.
        basis: what the interval rests on.
        threshold: the claim's other half; empty for a measurement that nothing judged.
        outcome: the verdict; empty likewise.
        ran: proof of path, label and text.
        note: what is to be known of how it was measured, one remark a line.
        what: the subject in a table, where it is another.
        brief: what was measured in a table, likewise.
        bound: the threshold in a table, likewise.
        why: why it is not decided, in a few words.
        elapsed_s: time that it took.
        raw: counts, nanoseconds and scores, for the JSON report.
        finding: id of the published finding that it is a verdict on; empty where there is none.
        machine: name of the machine that it is of, where a report has several.
        recorded: the verdict on that finding's recorded figures.
    """

    model: str
    subject: str
    measured: str
    basis: str
    threshold: str = ""
    outcome: str = ""
    source: str = "live"
    ran: tuple[tuple[str, str], ...] = ()
    note: str = ""
    raw: dict[str, Any] = field(default_factory=dict)
    finding: str = ""
    statement: str = ""
    published: str = ""
    recorded: str = ""
    what: str = ""
    brief: str = ""
    bound: str = ""
    why: str = ""
    elapsed_s: float | None = None
    machine: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def row_from_dict(data: dict[str, Any]) -> ReportRow:
    """The row that `as_dict` gave."""
    return ReportRow(**{**data, "ran": tuple((k, v) for k, v in data["ran"])})


def noted_rows(
    reports: Sequence[Any], machines: Mapping[str, str] = MappingProxyType({})
) -> list[tuple[str, ReportRow]]:
    """Test and row for all that test reports carry, in the order they were noted.

    `machines` names the machine of each xdist worker, where there are several.
    """
    in_order = sorted(reports, key=lambda report: report.start)
    return [
        (r.nodeid, replace(_remarked(row_from_dict(data)), machine=machines.get(worker_of(r), "")))
        for r in in_order
        for data in r.asperf_rows
    ]


def _remarked(row: ReportRow) -> ReportRow:
    """A row whose note has what a reader must know of how it ran."""
    remarks = [text for label, text in row.ran if label.endswith(OVERSUBSCRIBED)]
    return replace(row, note="\n".join(filter(None, dict.fromkeys((row.note, *remarks)))))


def worker_of(report: Any) -> str:
    """The xdist worker that a test report came from; empty without xdist."""
    return str(getattr(report, "worker_id", ""))


def verdict_row(verdict: Verdict, note: str = "") -> ReportRow:
    """A verdict's row, with remarks on how it was measured."""
    limits = verdict.accepted
    if len(limits) != len(verdict.figures):
        limits = ((None, None),) * len(verdict.figures)
    figures = [
        {"label": label, **estimate_data(estimate), "at_least": low, "at_most": high}
        for (label, estimate), (low, high) in zip(verdict.figures, limits, strict=True)
    ]
    bases = [estimate.basis for _, estimate in verdict.figures if estimate.basis]
    return ReportRow(
        "",
        verdict.subject.name,
        verdict.measured,
        verdict.basis or next(iter(bases), ""),
        verdict.threshold,
        str(verdict.outcome),
        verdict.subject.source,
        verdict.subject.ran,
        note,
        raw={
            "figures": figures,
            "advice": verdict.advice,
            "details": list(verdict.details),
            **verdict.raw,
        },
        what=verdict.subject.brief,
        brief=verdict.brief,
        bound=verdict.bound,
        why=verdict.why,
    )


def about_finding(
    row: ReportRow, finding: Finding, evidence: Evidence, elsewhere: str = ""
) -> ReportRow:
    """A verdict's row with the published finding that it is on.

    `elsewhere` says what the finding is about, if that is not what was measured.
    """
    # numpy comes with it, and its interrupted import cannot be repeated at the session's end.
    from pytest_asperf.published.findings.judge import published_text  # noqa: PLC0415

    if elsewhere:
        note = f"{finding.id}: elsewhere: the finding is about {elsewhere}"
        row = replace(row, source="elsewhere", note="\n".join(filter(None, (row.note, note))))
    return replace(
        row,
        finding=finding.id,
        statement=finding.statement,
        published=published_text(finding, evidence),
        recorded=str(finding.expected),
    )


def finding_row(finding: Finding, evidence: Evidence, verdict: Verdict) -> ReportRow:
    """The row of a verdict on a published finding."""
    return about_finding(verdict_row(verdict), finding, evidence)


def broken_row(what: str, error: AsperfError) -> ReportRow:
    """The row of a measurement that broke."""
    details = [error.why, *(error.detail or "").splitlines()]
    raw: dict[str, object] = {"figures": [], "advice": error.remedy, "details": details}
    machine = error.machine if isinstance(error, MeasurementError) else None
    raw |= {"machine": machine} if machine else {}
    return ReportRow("", what, error.what, "", outcome="INVALID", raw=raw)


def throughput_row(result: ThroughputResult, note: str = "") -> ReportRow:
    """A throughput measurement's row, with every run's count and time, and remarks."""
    name = result.workload.name
    shown = result.rate if result.workload.is_rate else result.time
    raw = {
        "workload": result.workload.name,
        "settings": result.ran.requested.as_dict(),
        "loads": len(result.loads),
        "warm_ups": [
            _run(load.warm_up, index) for index, load in enumerate(result.loads) if load.warm_up
        ],
        "runs": [_run(r, index) for index, load in enumerate(result.loads) for r in load.runs],
        "bytes_per_token": result.bytes_per_token,
        "peak_rss_bytes": max(run.peak_rss_bytes for run in result.runs),
        "machine": result.watched.as_dict(),
        "estimate": estimate_data(shown),
        **proof(result.ran),
    }
    basis, measured = shown.basis, shown.text()
    if result.workload.kind == "request":
        share, rate = percent_text(result.prefill_share.point), number_text(result.rate.point)
        measured += f", {share} of it prefill, {rate} tok/s in effect"
    elif result.workload.users > 1 and result.workload.generates:
        measured += f" in all, {number_text(result.user_rate.point)} a user"
    return ReportRow(
        result.ran.model, name, measured, basis, ran=result.ran.rows(), note=note, raw=raw,
        brief=shown.brief(),
    )  # fmt: skip


def level_row(result: LevelResult, baseline: str, note: str) -> ReportRow:
    """A level's row, with each chunk's sums."""
    comparison = result.comparison
    delta = comparison.delta_ppl
    kld = comparison.kld
    chunks = [
        {
            "n_tokens": len(chunk.nll),
            "nll_sum": sum(chunk.nll),
            "baseline_nll_sum": sum(base.nll),
            "kld_sum": sum(chunk.kld),
        }
        for chunk, base in zip(result.chunks, result.baseline_chunks, strict=True)
    ]
    ppl, tail = number_text(comparison.ppl.value, 4), ""
    if kld is not None:
        tail = f", KLD {number_text(kld.mean.point, 2)}"
    raw = {
        "n_ctx": result.text.n_ctx,
        "text": asdict(result.text),
        "ppl": comparison.ppl.value,
        "ppl_baseline": comparison.ppl_base.value,
        "delta_ppl": estimate_data(delta),
        "kld_mean": estimate_data(kld.mean) if kld else None,
        "same_top": None if comparison.same_top is None else estimate_data(comparison.same_top),
        "size_bytes": result.size_bytes,
        "peak_rss_bytes": result.peak_rss_bytes,
        "chunks": chunks,
        "baseline": proof(result.baseline_ran),
        **proof(result.ran),
    }
    what, measured = f"PPL vs {baseline}", f"{ppl}, Δ {delta.text()}{tail}"
    brief = f"{ppl}, {delta.brief()}{tail}"
    return ReportRow(
        result.ran.model, what, measured, delta.basis, ran=result.rows(), note=note, raw=raw,
        brief=brief,
    )  # fmt: skip


def memory_row(result: MemoryResult) -> ReportRow:
    """The row of what a model takes with its context filled."""
    measured = f"{result.memory}; peak RSS {memory_text(result.peak_rss_bytes)}"
    raw = {
        "n_ctx": result.n_ctx,
        "memory_bytes": asdict(result.memory),
        "estimate": estimate_data(Estimate.exact(result.memory.total / 2**30, "GiB")),
        "peak_rss_bytes": result.peak_rss_bytes,
        **proof(result.ran),
    }
    what = f"memory at {counted_text(result.n_ctx, 'tokens')}"
    brief = memory_text(result.memory.total)
    return ReportRow(
        result.ran.model, what, measured, "1 run", ran=result.ran.rows(), raw=raw, brief=brief
    )


def _run(run: RawRun, load: int) -> dict[str, Any]:
    """A run as plain data; of a server's users each request, timed from its start."""
    requests = [
        {
            "event_ns": [ns - request.start_ns for ns in request.event_ns],
            "n_prompt": request.n_prompt,
            "n_cached": request.n_cached,
            "n_output": request.n_output,
        }
        for request in run.requests
    ]
    counted = {"n_tokens": run.n_tokens, "elapsed_ns": run.elapsed_ns, "load": load}
    return {**counted, "requests": requests} if requests else counted


def estimate_data(estimate: Estimate) -> dict[str, Any]:
    """An estimate as plain data; a bound that is not known is None."""
    low, high = (b if math.isfinite(b) else None for b in (estimate.low, estimate.high))
    return {
        "point": estimate.point,
        "low": low,
        "high": high,
        "n": estimate.n,
        "counted": estimate.counted,
        "unit": estimate.unit,
        "method": estimate.method,
        "confidence": estimate.confidence,
    }


def proof(ran: Provenance) -> dict[str, Any]:
    """A proof of path as plain data."""
    return {
        "model": ran.model,
        "title": ran.title,
        "path": str(ran.path),
        "sha256": ran.sha256,
        "engine": dict(ran.engine.verbatim),
        "loaded": dict(ran.loaded.verbatim),
        "context": dict(ran.context.verbatim) if ran.context else {},
        "requested": ran.requested.as_dict(),
    }
