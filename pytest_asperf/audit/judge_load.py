"""Guards on a load generator's runs, and comparisons of those whose definitions are equal."""

from collections.abc import Sequence
from typing import Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.guards import Guard, GuardFinding
from pytest_asperf.analysis.serving_metrics import complete, itl_ns, itl_percentile, ttft_percentile
from pytest_asperf.audit.known import CACHE_BYTES, Known, Options
from pytest_asperf.audit.load_generators import Definition, LoadFigure, LoadRun
from pytest_asperf.audit.read import FileReading
from pytest_asperf.audit.result import FileFindings
from pytest_asperf.audit.titles import prefixes

#: Latency from the schedule may exceed that from sending by so much before it is another quantity.
_LATE: Final = 0.10
#: Rates of a whole run.
_RATES: Final = ("output rate", "request throughput")
#: Mean ITL over mean TPOT, from which chunks have several tokens.
_TOKENS_PER_GAP: Final = 1.25


def judge_loads(runs: Sequence[LoadRun], known: Known, findings: FileFindings) -> None:
    """Show the figures of all runs by asperf's names, differing definitions, and the guards."""
    for prefix, run in zip(prefixes(len(runs), [run.title for run in runs]), runs, strict=True):
        _judge_run(run, prefix, known, findings)
    defined = {figure.definition: None for run in runs for figure in run.figures}
    findings.notes += [
        f"{definition.quantity} here: {definition.text}; {definition.differs}"
        for definition in defined
        if definition.differs
    ]


def _judge_run(run: LoadRun, prefix: str, known: Known, findings: FileFindings) -> None:
    title = [run.title] * (bool(run.title) and not prefix.startswith(run.title))
    if load := ", ".join([*title, *(f"{name} {value}" for name, value in run.work.items())]):
        findings.ran.append((f"{prefix}load", load))
    for figure in run.figures:
        own = f"{figure.value:.4g} {figure.unit} ({figure.field})"
        findings.measured(prefix + figure.name, text=own)
    findings.add(
        f"{prefix}requests", guards.failed_requests({"failed": run.n_failed}, run.n_requests)
    )
    findings.add(f"{prefix}load", _omitted(run))
    findings.add(f"{prefix}latencies", _not_timed(run))
    _judge_acceptance(run, prefix, findings)
    _judge_requests(run, known, findings)
    _judge_roofline(run, known, findings)


def _judge_requests(run: LoadRun, known: Known, findings: FileFindings) -> None:
    done = complete(run.requests)
    if not done:
        return
    confidence = known.options.confidence
    for percentile in (50, 95):
        ttft = ttft_percentile(done, percentile, confidence)
        findings.measured(f"TTFT p{percentile}, recomputed", ttft)
    if gapped := list(filter(itl_ns, done)):
        findings.measured("ITL p50, recomputed", itl_percentile(gapped, 50, confidence))
    users = run.work.get("users")
    n_users = int(users) if isinstance(users, int | float) else None
    asked = guards.ServedWork(n_users=n_users, is_ours=False)
    found = [*guards.served_requests(asked, done), guards.joined_stamps(done)]
    if n_users and not isinstance(run.work.get("requests/s"), int | float):
        found.append(guards.queueing(done, n_users))
    for finding in found:
        findings.add("requests", finding)


def _judge_roofline(run: LoadRun, known: Known, findings: FileFindings) -> None:
    tpot_ms, bandwidth_gbs = run.value("TPOT", "median"), known.bandwidth_gbs([])
    least = known.least_step_bytes(str(run.work.get("model", "")))
    if tpot_ms and bandwidth_gbs and least:
        high = guards.roofline_high(1e3 / tpot_ms, least, bandwidth_gbs, cache_bytes=CACHE_BYTES)
        findings.add("TPOT, a step for each token", high)


def _not_timed(run: LoadRun) -> GuardFinding | None:
    """Trip if requests were served and their latency is 0."""
    n_served, output = run.n_requests - run.n_failed, run.work.get("output tokens")
    one_token = isinstance(output, int | float) and n_served and output <= n_served
    names = {"TTFT", "E2E", *_RATES} | ({"ITL", "TPOT"} if not one_token else set())
    zero = [f for f in run.figures if f.definition.quantity in names and not f.value > 0]
    typical = [f.name for f in zero if f.statistic in {"mean", "median", ""}]
    if not typical or (run.n_requests and not n_served):
        return None
    served = f" of {n_served} replies" if n_served else ""
    return Guard.NOT_TIMED.finding(
        f"{', '.join(typical)}{served} is {zero[0].value:g} {zero[0].unit}",
        "a reply takes longer than 0 ms, and a rate is above 0",
    )


def _judge_acceptance(run: LoadRun, prefix: str, findings: FileFindings) -> None:
    """Show the acceptance, and warn if gaps are those of several tokens."""
    shown = [
        *([f"{run.acceptance:.2%} of drafted tokens"] if run.acceptance is not None else []),
        *([f"{run.accepted_length:.4g} tokens in each step"] if run.accepted_length else []),
    ]
    if shown:
        findings.measured(f"{prefix}acceptance", text=", ".join(shown))
    itl, tpot = run.value("ITL"), run.value("TPOT")
    ratio = itl / tpot if itl and tpot else 0.0
    if run.requests or max(ratio, run.accepted_length or 0.0) <= _TOKENS_PER_GAP:
        return
    found = (
        f"{run.accepted_length or ratio:.3g} tokens arrive together: ITL is the gap between chunks"
    )
    rule = f"at most {_TOKENS_PER_GAP} tokens in a chunk, or TPOT is what is compared"
    findings.add(
        f"{prefix}ITL", Guard.TOKENS_PER_CHUNK.finding(found, rule, guards.Consequence.WARNING)
    )


def _omitted(run: LoadRun) -> GuardFinding | None:
    """Trip if requests of an open loop waited in the client, and their latency leaves that out."""
    queued, sent = run.value("E2E from schedule"), run.value("E2E")
    if queued and sent and queued > (1 + _LATE) * sent:
        found = f"E2E is {queued:.4g} ms from the schedule, and {sent:.4g} ms is given"
    elif isinstance(run.work.get("requests/s"), int | float) and run.work.get("users"):
        found = "requests have a rate and a limit on those under way; latency begins after the wait"
    else:
        return None
    return Guard.COORDINATED_OMISSION.finding(
        found, f"latency counts from the intended time (within {_LATE:.0%})"
    )


def compare_loads(
    readings: Sequence[FileReading], options: Options, findings: FileFindings
) -> None:
    """Compare every run with the baseline: `--baseline`, otherwise the first run of all files."""
    runs = [(r.path, run) for r in readings if r.log for run in r.log.load]
    named = [one for one in runs if one[0] == options.baseline]
    if options.baseline and not named:
        return
    for path, base in (named or runs)[:1]:
        for other_path, other in runs:
            if other_path != path:
                name = f"{other_path.name} vs {path.name}"
                _compare(name, base, other, findings, is_asked=bool(named))


def _compare(
    name: str, base: LoadRun, other: LoadRun, findings: FileFindings, *, is_asked: bool
) -> None:
    unequal = guards.unequal_work(other.work, base.work)
    if unequal is not None:
        findings.add(name, unequal if is_asked else None)
        return
    against = {figure.name: figure for figure in base.figures}
    shared = [(against[f.name], f) for f in other.figures if f.name in against]
    unequal_definitions = {}
    for ours, theirs in shared:
        if ours.definition == theirs.definition:
            _compare_figure(name, ours, theirs, findings)
        else:
            unequal_definitions[theirs.definition] = ours.definition
    for definition, base_definition in unequal_definitions.items():
        if is_asked:
            findings.add(name, _unequal_definitions(base_definition, definition))
        else:
            findings.notes.append(f"{name}: {definition.quantity} has two definitions, left out")


def _compare_figure(name: str, base: LoadFigure, other: LoadFigure, findings: FileFindings) -> None:
    if base.value > 0 and other.value > 0:
        ratio = other.value / base.value
        text = f"{ratio:.4g} x ({other.value:.4g} and {base.value:.4g} {other.unit}, no interval)"
        findings.measured(f"{other.name}: {name}", text=text)


def _unequal_definitions(base: Definition, other: Definition) -> GuardFinding:
    return Guard.UNEQUAL_DEFINITION.finding(
        f"{other.quantity} is {other.text}, and {base.text} in the baseline",
        "figures that are compared have one definition",
    )
