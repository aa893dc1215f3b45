"""Reads a JSON report, whoever wrote it: every number is checked before anything is made of it."""

from __future__ import annotations

import json
import math
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any

from pytest_asperf.analysis.stats.estimate import Estimate, memory_text
from pytest_asperf.errors import ConfigError, printable, shown
from pytest_asperf.report.json_report import SCHEMA
from pytest_asperf.report.level_sets import level_sets
from pytest_asperf.report.report_data import (
    NOT_RUN,
    OUTCOMES,
    Claim,
    JudgedFigure,
    Measurement,
    PairCourse,
    ReportData,
    Series,
)
from pytest_asperf.report.rows import ReportRow, row_from_dict
from pytest_asperf.report.speculation_points import SpeculationPoint, points_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

#: What a value of another type than expected raises where it is used.
_MALFORMED = (
    *(KeyError, TypeError, ValueError, AttributeError, IndexError),
    *(ZeroDivisionError, OverflowError),
)
#: Evidence grows as a power of the number of pairs, and stays below this by far.
_LARGEST = 1e100
_WHY = "a page shows the figures of a report"
_REMEDY = "name a file that pytest --asperf-report=json:FILE or asperf gate --json FILE wrote"


def read_report_file(path: Path) -> ReportData:
    """The report in a file.

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
    return read_report(document, name=path.name, where=str(path))


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
    if not isinstance(document, dict) or not {"rows", "cells"} & document.keys():
        raise _unusable(f"{where} is not a report of pytest-asperf: it has no rows")
    if document.get("schema") != SCHEMA:
        raise ConfigError(
            f"{where} has schema {shown(document.get('schema'), 80)}, and this version reads "
            f"schema {SCHEMA}",
            why="its keys may mean something else",
            remedy="make the page with the version of pytest-asperf that wrote the file",
        )
    try:
        raw_rows = list(document["rows"] if "rows" in document else _cells(document))
        facts, headline = tuple(_facts(document)), tuple(map(_text, _headline(document)))
        repeats = {claim["row"]: _text(claim["repeat"]) for claim in document.get("claims", ())}
    except _MALFORMED as error:
        raise _malformed(where, "its head", error) from None
    rows = [_read(_row, row, where, f"row {n}") for n, row in enumerate(raw_rows, start=1)]
    measurements = [
        _read(_measurement, row, where, f"row {n}")
        for n, row in enumerate(rows, start=1)
        if not row[1].outcome
    ]
    claims = [
        replace(_read(_claim, row, where, f"row {n + 1}"), repeat=repeats.get(n, ""))
        for n, row in enumerate(rows)
        if row[1].outcome
    ]
    only_rows = [row for _, row in rows]
    return ReportData(
        name,
        facts,
        headline,
        tuple(_with_series(claim, measurements) for claim in claims),
        tuple(measurements),
        tuple(_read(lambda rows: [*level_sets(rows, estimate)], only_rows, where, "a level")),
        tuple(_read(_points, only_rows, where, "a measurement of speculation")),
    )


def estimate(data: Mapping[str, Any]) -> Estimate:
    """An estimate from the data that `estimate_data` made of it."""
    low, high = data["low"], data["high"]
    return Estimate(
        _number(data["point"]),
        -math.inf if low is None else _number(low),
        math.inf if high is None else _number(high),
        int(_number(data["n"])),
        method=_text(data["method"]),
        unit=_text(data["unit"]),
        counted=_text(data.get("counted", "samples")),
        confidence=_number(data["confidence"]),
    )


def _read(read: Callable[[Any], Any], data: object, where: str, what: str) -> Any:
    try:
        return read(data)
    except _MALFORMED as error:
        raise _malformed(where, what, error) from None


def _row(data: Mapping[str, Any]) -> tuple[str, ReportRow]:
    known = {key: value for key, value in data.items() if key in ReportRow.__dataclass_fields__}
    row = row_from_dict(known)
    texts = (row.model, row.subject, row.measured, row.basis, row.threshold, row.outcome)
    for text in (*texts, row.source, row.note, row.finding, row.statement, row.published):
        _text(text)
    if row.outcome not in {"", *OUTCOMES} or not isinstance(row.raw, dict):
        raise ValueError(f"outcome {row.outcome!r}")
    ran = tuple((_text(label), _text(text)) for label, text in row.ran)
    return _text(data["test"]), replace(row, ran=ran)


def _claim(noted: tuple[str, ReportRow]) -> Claim:
    test, row = noted
    figures = tuple(map(_figure, row.raw.get("figures", ())))
    compared = row.raw.get("comparison", {})
    return Claim(
        test, row.subject, row.threshold, row.outcome, row.source, row.measured, row.basis,
        row.note, _text(row.raw.get("advice", "")),
        tuple(map(_text, row.raw.get("details", ()))), row.ran, row.published, row.statement, "",
        figures,
        (_chunks(compared, figures[0].estimate),) if compared.get("delta_nll") else (),
        _pairs(compared) if compared.get("pairs") else None,
    )  # fmt: skip


def _figure(data: Mapping[str, Any]) -> JudgedFigure:
    limits = (data.get("at_least"), data.get("at_most"))
    low, high = (None if limit is None else _number(limit) for limit in limits)
    return JudgedFigure(_text(data["label"]), estimate(data), low, high)


def _chunks(data: Mapping[str, Any], whole: Estimate) -> Series:
    values = tuple(math.expm1(_number(nll)) for nll in data["delta_nll"])
    return Series("ΔPPL by chunk, in the order drawn", "chunk", values, whole)


def _pairs(data: Mapping[str, Any]) -> PairCourse:
    base, candidate = map(_text, data["sides"])
    first, second = map(_number, data["medians"])
    pairs = data["pairs"]
    return PairCourse(
        (base, candidate),
        _text(data["timed"]),
        _text(data["unit"]),
        (first, second),
        tuple(_positive(pair["ratio"]) for pair in pairs),
        tuple(_positive(pair["total_ratio"]) for pair in pairs),
        tuple(bool(pair["candidate_first"]) for pair in pairs),
        tuple(
            (_number(pair["evidence_for_fail"]), _number(pair["evidence_for_pass"]))
            for pair in pairs
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
    ns = _positive(run["elapsed_ns"])
    return ns / 1e6 if unit == "ms" else 1e9 * _number(run["n_tokens"]) / ns


def _delta(chunk: Mapping[str, Any]) -> float:
    nll = _number(chunk["nll_sum"]) - _number(chunk["baseline_nll_sum"])
    return math.expm1(nll / _positive(chunk["n_tokens"]))


def _gain(pair: Sequence[Mapping[str, Any]]) -> float:
    alone = sum(_positive(run["alone_ns"]) for run in pair)
    return alone / sum(_positive(run["speculative"]["elapsed_ns"]) for run in pair) - 1


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


def _points(rows: Sequence[ReportRow]) -> list[SpeculationPoint]:
    points = points_of(rows)
    for point in points:
        spans = (astuple(span) for span in (point.gain, point.ratio, point.predicted))
        for number in (*(n for span in spans for n in span), point.emitted, point.acceptance):
            _number(number)
        _positive(point.ratio.point)
    return points


def _cells(gate: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of what `asperf gate --json` wrote."""
    for cell in gate["cells"]:
        what = f"{cell['workload']} {cell['model']}"
        row = cell["verdict"] or ReportRow("", what, cell["measured"], "", "", NOT_RUN).as_dict()
        yield {"test": what, **row}


def _headline(document: Mapping[str, Any]) -> Sequence[object]:
    if "rows" in document:
        return list(document["headline"])
    return [document["answer"], document["limits"]]


def _facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Label and text of what is known of the session; earlier versions wrote nothing of it."""
    meta = document.get("meta", {})
    machine = meta.get("machine", {})
    cores, memory = machine.get("logical_cores"), machine.get("memory_bytes")
    hardware = (
        machine.get("cpu") or machine.get("hardware"),
        cores and f"{cores} logical cores",
        memory and memory_text(_number(memory)),
        *(gpu["name"] for gpu in machine.get("gpus", ())),
        machine.get("os"),
    )
    seconds = meta.get("duration_s")
    facts = {
        "time": str(meta.get("time", "")).replace("T", " ").replace("+00:00", " UTC"),
        "duration": "" if seconds is None else _duration(_number(seconds)),
        "host": meta.get("host"),
        "machine": ", ".join(str(fact) for fact in hardware if fact),
        "seed": meta.get("seed"),
        "version": f"pytest-asperf {meta['version']}, Python {meta['python']}" if meta else "",
        "command": meta.get("command"),
    }
    yield from ((label, str(text)) for label, text in facts.items() if text not in {None, ""})


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
        raise ValueError(f"{shown(value, 60)} is not a number that can be drawn")
    return float(value)


def _positive(value: object) -> float:
    number = _number(value)
    if number <= 0:
        raise ValueError(f"{number:g} is not above zero")
    return number


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{shown(value, 60)} is not a text")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _malformed(where: str, what: str, error: Exception) -> ConfigError:
    missing = isinstance(error, KeyError)
    reason = f"{error} is missing" if missing else printable(error, 200)
    return _unusable(f"{where}: {what} is not as pytest-asperf writes it: {reason}")


def _unusable(what: str) -> ConfigError:
    return ConfigError(what, why=_WHY, remedy=_REMEDY)
