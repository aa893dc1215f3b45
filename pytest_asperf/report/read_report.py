"""Reads a JSON report, whoever wrote it: every number is checked before anything is made of it."""

from __future__ import annotations

import json
import math
from dataclasses import astuple, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from pytest_asperf.analysis.stats.estimate import Estimate, memory_text
from pytest_asperf.errors import ConfigError, printable, shown
from pytest_asperf.report.checked import (
    MALFORMED,
    estimate,
    measurement,
    number,
    positive,
    text,
)
from pytest_asperf.report.json_report import SCHEMA, flat_claims, of_each_machine
from pytest_asperf.report.level_sets import level_sets
from pytest_asperf.report.measurements import table
from pytest_asperf.report.report_data import (
    OUTCOMES,
    Claim,
    JudgedFigure,
    Measurement,
    PairCourse,
    ReportData,
    Series,
    Timed,
)
from pytest_asperf.report.rows import ReportRow, row_from_dict
from pytest_asperf.report.speculation_points import SpeculationPoint, points_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_asperf.analysis.stats.estimate import Estimate

_WHY = "a page shows the figures of a report"
_REMEDY = "name a file that pytest --asperf-report=json:FILE or asperf gate --json FILE wrote"


def read_report_file(path: Path) -> list[ReportData]:
    """The report in a file, as one of each machine.

    Raises:
        ConfigError: it cannot be read, is no report, or one of a later version.
    """
    try:
        # Python's json takes NaN and Infinity, which no report has.
        document = json.loads(path.read_bytes(), parse_constant=_refuse)
    except OSError as error:
        raise _unusable(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise _unusable(f"{path} is not JSON: {printable(error, 200)}") from None
    return read_reports(document, name=path.name, where=str(path))


def read_reports(document: object, *, name: str, where: str = "") -> list[ReportData]:
    """The reports of each machine in a JSON document; of several, each has its machine's name."""
    whole = read_report(document, name=name, where=where)
    parts = of_each_machine(document)
    if len(parts) == 1:
        return [whole]
    names = whole.document["meta"]["machines"]
    return [
        replace(read_report(part, name=one), document=whole.document)
        for one, part in zip(names, parts, strict=True)
    ]


def read_report(document: object, *, name: str, where: str = "") -> ReportData:
    """The report that a JSON document holds.

    Args:
        document: what `json_report.document` made, or `asperf gate --json`.
        name: of the report, for a reader.
        where: for messages; the name by default.

    Raises:
        ConfigError: it is no report, one of a later version, or a row of it is malformed.
    """
    where = where or name
    if not isinstance(document, dict) or "rows" not in document:
        raise _unusable(f"{where} is not a report of pytest-asperf: it has no rows")
    if document.get("schema") != SCHEMA:
        raise ConfigError(
            f"{where} has schema {shown(document.get('schema'), 80)}, and this version reads "
            f"schema {SCHEMA}",
            why="its keys may mean something else",
            remedy="use the version of pytest-asperf that wrote the file",
        )
    try:
        raw_rows, meta = list(document["rows"]), _meta(document)
        facts, headline = tuple(_facts(meta)), tuple(map(text, document["headline"]))
    except MALFORMED as error:
        raise _malformed(where, "its head", error) from None
    rows = [_read(_row, row, where, f"row {n}") for n, row in enumerate(raw_rows, start=1)]
    measurements = [
        _read(_measurement, row, where, f"row {n}")
        for n, row in enumerate(rows, start=1)
        if not row[1].outcome
    ]
    numbered = [(n, row) for n, row in enumerate(rows, start=1) if row[1].outcome]
    claims = [_read(_claim, row, where, f"row {n}") for n, row in numbered]
    # Made of the rows, which are checked, and not read from the file.
    plain = [{"test": test, **row.as_dict()} for test, row in rows]
    records = flat_claims(plain, meta), _read(_records, plain, where, "a measurement")
    only_rows = [row for _, row in rows]
    return ReportData(
        document,
        name,
        str(meta.get("machine", {}).get("hardware") or ""),
        facts,
        headline,
        tuple(
            replace(_with_series(claim, measurements), repeat=record["repeat"])
            for claim, record in zip(claims, records[0], strict=True)
        ),
        tuple(measurements),
        tuple(_read(lambda rows: [*level_sets(rows, estimate)], only_rows, where, "a level")),
        tuple(_read(_points, only_rows, where, "a measurement of speculation")),
        tuple(_read(_timed, records[1], where, "a measurement")),
        records,
    )


def _meta(document: Mapping[str, Any]) -> dict[str, Any]:
    """When, where and how it was run; earlier versions wrote nothing of it."""
    meta = dict(document.get("meta", {}))
    for value in (*meta.get("options", ()), meta.get("command", "")):
        text(value)
    return meta


def _records(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [measurement(record) for record in table(rows)]


def _read(read: Callable[[Any], Any], data: object, where: str, what: str) -> Any:
    try:
        return read(data)
    except MALFORMED as error:
        raise _malformed(where, what, error) from None


def _row(data: Mapping[str, Any]) -> tuple[str, ReportRow]:
    known = {key: value for key, value in data.items() if key in ReportRow.__dataclass_fields__}
    row = row_from_dict(known)
    texts = (row.model, row.subject, row.measured, row.basis, row.threshold, row.outcome)
    about = (row.source, row.note, row.finding, row.statement, row.published, row.machine)
    for value in (*texts, *about):
        text(value)
    if row.outcome not in {"", *OUTCOMES} or not isinstance(row.raw, dict):
        raise ValueError(f"outcome {row.outcome!r}")
    ran = tuple((text(label), text(fact)) for label, fact in row.ran)
    return text(data["test"]), replace(row, ran=ran)


def _claim(noted: tuple[str, ReportRow]) -> Claim:
    test, row = noted
    figures = tuple(map(_figure, row.raw.get("figures", ())))
    compared = row.raw.get("comparison", {})
    return Claim(
        test, row.subject, row.threshold, row.outcome, row.source, row.measured, row.basis,
        row.note, text(row.raw.get("advice", "")),
        tuple(map(text, row.raw.get("details", ()))), row.ran, row.published, row.statement, "",
        figures,
        (_chunks(compared, figures[0].estimate),) if compared.get("delta_nll") else (),
        _pairs(compared) if compared.get("pairs") else None,
    )  # fmt: skip


def _figure(data: Mapping[str, Any]) -> JudgedFigure:
    limits = (data.get("at_least"), data.get("at_most"))
    low, high = (None if limit is None else number(limit) for limit in limits)
    return JudgedFigure(text(data["label"]), estimate(data), low, high)


def _chunks(data: Mapping[str, Any], whole: Estimate) -> Series:
    values = tuple(math.expm1(number(nll)) for nll in data["delta_nll"])
    return Series("ΔPPL by chunk, in the order drawn", "chunk", values, whole)


def _pairs(data: Mapping[str, Any]) -> PairCourse:
    base, candidate = map(text, data["sides"])
    first, second = map(number, data["medians"])
    pairs = data["pairs"]
    return PairCourse(
        (base, candidate),
        text(data["timed"]),
        text(data["unit"]),
        (first, second),
        tuple(positive(pair["ratio"]) for pair in pairs),
        tuple(positive(pair["total_ratio"]) for pair in pairs),
        tuple(bool(pair["candidate_first"]) for pair in pairs),
        tuple(
            (number(pair["evidence_for_fail"]), number(pair["evidence_for_pass"])) for pair in pairs
        ),
    )


def _measurement(noted: tuple[str, ReportRow]) -> Measurement:
    test, row = noted
    texts = (row.model, row.subject, row.measured, row.basis, row.note)
    return Measurement(test, *texts, _series(row))


def _series(row: ReportRow) -> Series | None:
    raw, name = row.raw, f"{row.model} {row.subject}"
    if "runs" in raw:
        of = estimate(raw["estimate"])
        return Series(name, "run", tuple(_run(run, of.unit) for run in raw["runs"]), of)
    if "delta_ppl" in raw:
        return Series(name, "chunk", tuple(map(_delta, raw["chunks"])), estimate(raw["delta_ppl"]))
    if "predicted_gain" in raw:
        return Series(name, "pair", tuple(map(_gain, raw["pairs"])), estimate(raw["gain"]))
    return None


def _run(run: Mapping[str, Any], unit: str) -> float:
    ns = positive(run["elapsed_ns"])
    return ns / 1e6 if unit == "ms" else 1e9 * number(run["n_tokens"]) / ns


def _delta(chunk: Mapping[str, Any]) -> float:
    nll = number(chunk["nll_sum"]) - number(chunk["baseline_nll_sum"])
    return math.expm1(nll / positive(chunk["n_tokens"]))


def _gain(pair: Sequence[Mapping[str, Any]]) -> float:
    alone = sum(positive(run["alone_ns"]) for run in pair)
    return alone / sum(positive(run["speculative"]["elapsed_ns"]) for run in pair) - 1


def _with_series(claim: Claim, measurements: Sequence[Measurement]) -> Claim:
    """The claim with the series that its figures were made of; if none is, all of its test's."""
    if claim.series or claim.pairs:
        return claim
    own = [m.series for m in measurements if m.test == claim.test and m.series]
    judged = {_bounds(figure.estimate) for figure in claim.figures}
    exact = [series for series in own if _bounds(series.estimate) in judged]
    return replace(claim, series=tuple(exact or own))


def _bounds(of: Estimate) -> tuple[float, float, float]:
    return of.point, of.low, of.high


def _timed(records: Sequence[Mapping[str, Any]]) -> list[Timed]:
    return [
        Timed(record["model"], record["engine"], record["workload"], _whole(record))
        for record in records
        if record["unit"] in {"tok/s", "ms"} and not record["side"] and record["n"]
    ]


def _whole(record: Mapping[str, Any]) -> Estimate:
    """The estimate of a record, whose row says how it was made."""
    known = {key: record[key] for key in ("low", "high", "n", "unit", "counted")}
    return estimate({"point": record["value"], "method": "", "confidence": 0.9, **known})


def _points(rows: Sequence[ReportRow]) -> list[SpeculationPoint]:
    points = points_of(rows)
    for point in points:
        spans = (astuple(span) for span in (point.gain, point.ratio, point.predicted))
        costs = (point.emitted, point.acceptance, point.drafting, point.verifying, *point.best_k)
        for value in (*chain.from_iterable(spans), *costs):
            number(value)
        positive(point.ratio.point)
        if point.break_even != math.inf:
            number(point.break_even)
    return points


def _facts(meta: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Label and text of what is known of the session."""
    machine = meta.get("machine", {})
    cores, memory = machine.get("logical_cores"), machine.get("memory_bytes")
    hardware = (
        machine.get("cpu") or machine.get("hardware"),
        cores and f"{cores} logical cores",
        memory and memory_text(number(memory)),
        *(gpu["name"] for gpu in machine.get("gpus", ())),
        machine.get("os"),
    )
    seconds = meta.get("duration_s")
    facts = {
        "time": str(meta.get("time", "")).replace("T", " ").replace("+00:00", " UTC"),
        "duration": "" if seconds is None else _duration(number(seconds)),
        "host": meta.get("host"),
        "machine": ", ".join(str(fact) for fact in hardware if fact),
        "seed": meta.get("seed"),
        "version": f"pytest-asperf {meta['version']}, Python {meta['python']}" if meta else "",
        "command": meta.get("command"),
    }
    yield from ((label, str(fact)) for label, fact in facts.items() if fact not in {None, ""})


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _malformed(where: str, what: str, error: Exception) -> ConfigError:
    missing = isinstance(error, KeyError)
    reason = f"{error} is missing" if missing else printable(error, 200)
    return _unusable(f"{where}: {what} is not as pytest-asperf writes it: {reason}")


def _unusable(what: str) -> ConfigError:
    return ConfigError(what, why=_WHY, remedy=_REMEDY)
