"""A report for pages, read from JSON: lines, series to draw, measurements side by side."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from pytest_asperf.analysis.facts import Ran
from pytest_asperf.analysis.outcome import NOT_RUN
from pytest_asperf.analysis.stats.estimate import Estimate, memory_text
from pytest_asperf.records.kinds import (
    AnyRecord,
    Noted,
    QuantRecord,
    SpeculationRecord,
    ThroughputRecord,
)
from pytest_asperf.records.report import Meta, Report, of_each_machine, part, read, read_json
from pytest_asperf.report.json_report import Assertion, assertions, named_as_run, repeat
from pytest_asperf.report.lines import Line, Series, lines_of, positive, series_of
from pytest_asperf.report.measurements import Entry, speculation_of, table

#: From the worst to the best.
OUTCOMES: Final = ("FAIL", "INVALID", NOT_RUN, "INCONCLUSIVE", "PASS")


@dataclass(frozen=True, slots=True)
class Level:
    """One quantization of a model: its rate and its ΔPPL, each None if it was not measured."""

    name: str
    rate: Estimate | None
    delta_ppl: Estimate | None


@dataclass(frozen=True, slots=True)
class LevelSet:
    """The quantizations of one model."""

    model: str  #: its name
    workload: str  #: the workload of their rates; empty if there is none
    baseline: str  #: the baseline of ΔPPL
    #: the quantizations from the largest file to the smallest, as far as sizes are known
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Timed:
    """One workload on one model, as a session measured it by itself."""

    model: str
    address: str
    engine: str
    workload: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class SideBySide:
    """One workload on several machines or engines."""

    workload: str  #: its name
    unit: str  #: of the estimates
    names: tuple[str, ...]  #: of the machines or engines, in the order of the reports
    #: by model, the result of each; not every one measured every model
    models: Mapping[str, Mapping[str, Estimate]]


@dataclass(frozen=True, slots=True)
class ReportData:
    """One report for a reader."""

    whole: Report  #: the report that it is, or is a part of
    name: str  #: of its file, or its machine
    machine: str  #: the hardware of its figures; empty if unknown
    facts: tuple[tuple[str, str], ...]  #: when, where and how it was run, as label and text
    headline: tuple[str, ...]  #: the session's measuring conditions
    claims: tuple[Line, ...]  #: in the order of the session
    measurements: tuple[Line, ...]  #: in the order of the session
    level_sets: tuple[LevelSet, ...]  #: of models with several measured quantizations
    speculation: tuple[SpeculationRecord, ...]  #: measurements of speculation
    timed: tuple[Timed, ...]  #: times and rates that were not measured in pairs
    assertion_table: Sequence[Assertion]  #: its assertions as a table
    measured_table: Sequence[Entry]  #: its measurements as a table
    history: tuple[Series, ...] = ()  #: of a report that was stored, the series that it adds to


def read_report_file(path: Path) -> list[ReportData]:
    """The report in a file, as one of each machine.

    Raises:
        ConfigError: it cannot be read, is no report, or has another schema.
    """
    (document,) = read_json(path)
    return shown_reports(read(document, str(path)), name=path.name, where=str(path))


def shown_reports(report: Report, *, name: str, where: str = "") -> list[ReportData]:
    """The report of each machine; of several, each has its machine's name."""
    parts = of_each_machine(report)
    if len(parts) == 1:
        return [shown_report(report, name=name, where=where)]
    return [
        replace(shown_report(one, name=own, where=where), whole=report)
        for own, one in zip(report.meta.machines, parts, strict=True)
    ]


def shown_report(report: Report, *, name: str, where: str = "") -> ReportData:
    """A report of one machine, with its name for a reader and, if it is another, for messages."""
    with named_as_run(report.meta):
        return _shown(report, name, where or name)


def _shown(report: Report, name: str, where: str) -> ReportData:
    records = [noted.record for noted in report.rows]
    lines = [
        line
        for n, noted in enumerate(report.rows, start=1)
        for line in part(partial(_lines, noted, report.meta), where, f"row {n}")
    ]
    measurements = [line for line in lines if not line.outcome]
    timed = [
        Timed(of.model, of.spec, of.release, record.workload, record.estimate)
        for record in records
        if isinstance(record, ThroughputRecord)
        for of in (record.ran,)
    ]
    return ReportData(
        report,
        name,
        report.meta.machine.hardware,
        tuple(_facts(report.meta)),
        report.headline,
        tuple(_with_series(line, measurements) for line in lines if line.outcome),
        tuple(measurements),
        tuple(level_sets(records)),
        tuple(part(lambda: _speculation(report.rows), where, "a measurement of speculation")),
        tuple(timed),
        assertions(report.rows, report.meta),
        table(report.rows),
    )


def _lines(noted: Noted, meta: Meta) -> list[Line]:
    lines = [replace(line, series=series_of(line)) for line in lines_of(noted)]
    for line in lines:
        for pair in line.pairs.pairs if line.pairs else ():
            positive(min(pair.ratio, pair.total_ratio))
    return [replace(one, repeat=repeat(noted.test, meta)) for one in lines]


def _with_series(claim: Line, measurements: Sequence[Line]) -> Line:
    """The assertion with the series behind its figures; if there is none, all of its test's."""
    if claim.series or claim.pairs:
        return claim
    own = [one for m in measurements if m.test == claim.test for one in m.series]
    judged = {_bounds(figure.estimate) for figure in claim.figures}
    exact = [series for series in own if _bounds(series.estimate) in judged]
    return replace(claim, series=tuple(exact or own))


def _bounds(of: Estimate) -> tuple[float, float, float]:
    return of.point, of.low, of.high


def _speculation(rows: Sequence[Noted]) -> list[SpeculationRecord]:
    found = speculation_of(noted.record for noted in rows)
    for measured in found:
        positive(measured.ratio.point)
    return found


def _facts(meta: Meta) -> Iterator[tuple[str, str]]:
    """Label and text of the session's known facts."""
    machine = meta.machine
    cores, memory = machine.logical_cores, machine.memory_bytes
    cards = Counter(gpu.name for gpu in machine.gpus)
    hardware = (
        machine.cpu or machine.hardware,
        cores and f"{cores} logical cores",
        memory and memory_text(memory),
        *(f"{n} x {name}" if n > 1 else name for name, n in cards.items()),
        machine.os,
    )
    facts = {
        "time": meta.time.replace("T", " ").replace("+00:00", " UTC"),
        "duration": "" if meta.duration_s is None else _duration(meta.duration_s),
        "host": meta.host,
        "machine": ", ".join(str(fact) for fact in hardware if fact),
        "seed": meta.seed,
        "version": f"pytest-asperf {meta.version}, Python {meta.python}",
        "command": meta.command,
    }
    yield from ((label, str(fact)) for label, fact in facts.items() if fact not in {None, ""})


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def level_sets(records: Iterable[AnyRecord]) -> Iterator[LevelSet]:
    """The models with two or more scored quantizations, one set for each TG workload."""
    rates: dict[str, dict[str, Estimate]] = {}
    ladders: dict[str, list[QuantRecord]] = {}
    for record in records:
        if isinstance(record, QuantRecord):
            ladders.setdefault(record.baseline.model, []).append(record)
        elif isinstance(record, ThroughputRecord) and record.workload.startswith("tg"):
            rates.setdefault(record.workload, {})[record.ran.model] = record.estimate
    for of in ladders.values():
        scored = {record.ran.model: record for record in of}
        by_size = sorted(scored.values(), key=lambda record: -record.size_bytes)
        every = {ran.model: ran for ran in (of[0].baseline, *(record.ran for record in by_size))}
        timed = [workload for workload, by_model in rates.items() if by_model.keys() & every]
        weights = {ran.quant for ran in every.values()}
        for workload in timed or [""] if len(scored) > 1 else ():
            by_model = rates.get(workload, {})
            levels = (
                Level(
                    _level(ran, weights),
                    by_model.get(model),
                    scored[model].delta_ppl if model in scored else None,
                )
                for model, ran in every.items()
            )
            title = of[0].ran.name if len(weights) > 1 else _weights(of[0].ran)
            baseline = _level(of[0].baseline, weights)
            yield LevelSet(title, workload, baseline, tuple(levels))


def _weights(ran: Ran) -> str:
    return f"{ran.name}:{ran.quant}" if ran.quant else ran.name


def _level(ran: Ran, weights: set[str]) -> str:
    """The differing part of quantizations' names: of weights, or of KV caches."""
    level = ran.quant if len(weights) > 1 else ""
    return " ".join(filter(None, (level, ran.kv and f"KV {ran.kv}"))) or "as it is"
