"""`asperf load`: a server's latency and throughput over users or rates, and the knee."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.commands.console import (
    CommandNotify,
    json_text,
    print_sections,
    print_table,
    stderr_console,
)
from pytest_asperf.commands.options import command, end, number_from, reports, settings, written
from pytest_asperf.commands.project import open_project

if TYPE_CHECKING:
    from pytest_asperf.analysis.serving_metrics import LoadPoint, ServiceLimits
    from pytest_asperf.config.setting_rules import ReportTarget
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.measure.load_sweep import LoadWork, MeasuredLoad, MeasuredSweep
    from pytest_asperf.report.sections import Section

_USERS: Final = "1,2,4,8"
_BAR: Final = 16
_MOST_LOADS: Final = 20
_MOST_TOKENS: Final = 10**6


@command()
@click.argument("url")
@click.option(
    "--users", metavar="N,...", default=_USERS, help=f"Users of a closed loop (default: {_USERS})."
)
@click.option("--rate", metavar="R,...", help="Arrivals per second (Poisson), instead of users.")
@click.option(
    "--model", metavar="NAME", default="", help="Model (default: the first that is served)."
)
@click.option(
    "--workload",
    metavar="NAME",
    default="pp128+tg64",
    help="Tokens of each prompt and of each reply (default: pp128+tg64).",
)
@click.option(
    "--requests",
    type=number_from(1, 10_000),
    metavar="N",
    default=16,
    help="Requests of each load (default: 16).",
)
@click.option("--ttft-ms", type=number_from(0.0), metavar="MS", help="Limit of TTFT for goodput.")
@click.option("--tpot-ms", type=number_from(0.0), metavar="MS", help="Limit of TPOT for goodput.")
@settings()
@reports("json")
def load(
    url: str,
    *,
    users: str,
    rate: str | None,
    model: str,
    workload: str,
    requests: int,
    reports: Sequence[ReportTarget],
    **limits_ms: float | None,
) -> None:
    """Put a running server under load: latency, throughput, knee.

    No timed prompt is sent twice. After the last load, further requests examine one of the replies.
    A key is read from OPENAI_API_KEY, or from the variable that the setting api_key_variable names.

    Exits with 4 if a guard finds a load, or the replies, INVALID.
    """
    from pytest_asperf.analysis.serving_metrics import ServiceLimits
    from pytest_asperf.config.address import URL_RULE
    from pytest_asperf.measure.load_sweep import LoadWork, find_server, sweep
    from pytest_asperf.modelfiles.hub_cache import shipped_corpus

    project = open_project()
    loads = _loads(rate, "--rate") if rate else [float(int(n)) for n in _loads(users, "--users")]
    limits = ServiceLimits(**limits_ms)
    request = _request(workload)
    work = LoadWork(
        is_open=bool(rate),
        n_prompt=request.depth,
        n_output=request.n_tokens,
        n_requests=requests,
        limits=limits,
        text=shipped_corpus().read_text("utf-8")[: 40 * request.depth + 4000],
        seed=project.seed,
    )
    url = URL_RULE.checked(url, "URL")
    with CommandNotify(stderr_console()) as notify:
        notify.progress("finding the model", 0, 0)
        target = find_server(url, model, project.settings.api_key_variable)
        with project.queue(notify.wait).turn():
            measured = sweep(target, loads, work, notify.progress)
    if not written(reports, {"json": lambda: json_text(_as_json(measured, limits))}):
        _print(measured, work)
    if measured.is_invalid:
        end(ExitCode.INVALID)


def _request(name: str) -> Workload:
    """The request of each user; a ConfigError for another workload."""
    from pytest_asperf.config.table import unusable
    from pytest_asperf.config.workload import Workload, parse_workload

    request = parse_workload(name, where="--workload")
    plain = Workload("request", request.n_tokens, request.depth)
    if request != plain or request.depth > _MOST_TOKENS:
        raise unusable("--workload", name, "write a prompt and a reply, such as pp128+tg64")
    return request


def _loads(text: str, option: str) -> list[float]:
    """Loads, ascending; a ConfigError for other texts."""
    from pytest_asperf.errors import ConfigError, shown

    try:
        loads = sorted({float(part) for part in text.split(",")})
    except ValueError:
        loads = []
    least = 1 if option == "--users" else 0.01
    if not loads or len(loads) > _MOST_LOADS or not least <= loads[0] <= loads[-1] <= 1000:
        raise ConfigError(
            f"{option}: {shown(text, 80)} are not loads",
            remedy=f"write {option}={_USERS}: up to {_MOST_LOADS} numbers from {least} to 1000",
        )
    return loads


def _print(measured: MeasuredSweep, work: LoadWork) -> None:
    print_table(_rows(measured.loads, work))
    print_sections(_sections(measured, work), last_line=_knee_text(measured.loads, work))


def _rows(measured: Sequence[MeasuredLoad], work: LoadWork) -> list[list[str]]:
    from pytest_asperf.analysis import serving_metrics as metrics

    best = max((one.point.output_rate for one in measured if one.point), default=1.0)
    head = ["load, output rate", "TTFT p50", "p95 ms", "TPOT ms", "tok/s each", "tok/s", "good/s"]
    rows = [head]
    for one in measured:
        name = work.name(one.load)
        if one.point is None:
            rows.append([name, *["-"] * (len(head) - 1)])
            continue
        bar = "#" * max(1, round(_BAR * one.point.output_rate / best))
        ttfts = [metrics.ttft_percentile(one.requests, p).point for p in (50, 95)]
        figures = [*ttfts, one.point.tpot_ms, one.point.user_rate, one.point.output_rate]
        good = metrics.goodput(one.requests, work.limits)
        texts = [f"{figure:.4g}" if figure else "-" for figure in figures]
        rows.append([f"{name:<9} {bar}", *texts, f"{good:.3g}"])
    return rows


def _sections(measured: MeasuredSweep, work: LoadWork) -> list[Section]:
    from pytest_asperf.report.sections import CheckLine, Section

    of_loads = [
        (f"{work.name(one.load)}: ", finding) for one in measured.loads for finding in one.findings
    ]
    examined = measured.examined
    of_all = [("", finding) for finding in examined.findings] if examined else []
    found = [
        CheckLine(
            finding.guard,
            "invalid" if finding.consequence == "INVALID" else "warning",
            f"{where}{finding.found} (rule: {finding.rule})",
            finding.remedy,
        )
        for where, finding in of_loads + of_all
    ]
    sections = [Section("guards", tuple(found))] if found else []
    if not of_all:
        line = CheckLine("timed work", "ok" if examined else "unknown", _examined(measured))
        sections.append(Section("replies", (line,)))
    return sections


def _examined(measured: MeasuredSweep) -> str:
    return str(measured.examined or "not examined, as no reply was whole")


def _knee_text(measured: Sequence[MeasuredLoad], work: LoadWork) -> str:
    knee = _knee(measured)
    if knee is None:
        return "knee: three loads with replies are needed"
    where = {measured[0].load: "or below, ", measured[-1].load: "or beyond, "}.get(knee.load, "")
    return f"knee: {work.name(knee.load)}, {where}where output rate over latency is highest"


def _knee(measured: Sequence[MeasuredLoad]) -> LoadPoint | None:
    from pytest_asperf.analysis.serving_metrics import knee
    from pytest_asperf.errors import MeasurementError

    try:
        return knee([one.point for one in measured if one.point])
    except MeasurementError:
        return None


def _as_json(measured: MeasuredSweep, limits: ServiceLimits) -> dict[str, Any]:
    from statistics import median

    from pytest_asperf.analysis import serving_metrics as metrics
    from pytest_asperf.records.codec import encode

    points = []
    for one in measured.loads:
        data: dict[str, Any] = {"load": one.load, "n_requests": len(one.requests)}
        data["guards"] = [str(finding) for finding in one.findings]
        done = metrics.complete(one.requests)
        if one.point:
            data |= {
                "ttft_ms": {
                    f"p{p}": encode(metrics.ttft_percentile(one.requests, p)) for p in (50, 95)
                },
                "itl_ms": {"p50": encode(metrics.itl_percentile(one.requests, 50))}
                if any(map(metrics.itl_ns, done))
                else None,  # replies of one token, or that came at once
                "mean_e2e_ms": one.point.mean_e2e_ms,
                "user_rate": one.point.user_rate,
                "whole_request_rate": median(map(metrics.whole_request_rate, done)),
                "mean_concurrency": metrics.mean_concurrency(one.requests),
                "output_rate": one.point.output_rate,
                "requests_per_s": metrics.request_throughput(one.requests),
                "goodput_per_s": metrics.goodput(one.requests, limits),
            }
        points.append(data)
    knee, examined = _knee(measured.loads), measured.examined
    return {
        "schema": 1,
        "loads": points,
        "knee": knee and knee.load,
        "timed_work": _examined(measured),
        "guards": [str(finding) for finding in examined.findings] if examined else [],
    }
