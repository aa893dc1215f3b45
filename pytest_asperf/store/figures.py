"""The figures of a report that series are made of: functions of a JSON document."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
from dataclasses import astuple, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.errors import ConfigError, printable, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_asperf.engine_process import EngineFacts

#: What a value of another type than expected raises where it is used.
_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
#: Unit of the natural logarithm of candidate / baseline, in time: above 0 is slower.
LOG_RATIO: Final = "log ratio"
_INVALID: Final = "INVALID"
_LONGEST_FACT: Final = 64
_LONGEST_WORD: Final = 16
_NUMBERS: Final = (int, float)


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """What figures have in common that may be drawn as one line.

    Attributes:
        machine: its fingerprint.
        engine: the engine's name, of two sides both; the build may change within a series, and is
            provenance.
        model: the address it was measured by; a name for readers.
        model_sha256: hashes of the model's file, or of all files.
        settings: what was asked for, as JSON with sorted keys.
        metric: such as `tg128`, or `tg128 ratio`.
        unit: of the values.
        anchor: the build that a ratio is against; empty for others.
    """

    machine: str
    engine: str
    model: str
    model_sha256: str
    settings: str
    metric: str
    unit: str
    anchor: str = ""

    @property
    def title(self) -> str:
        """Metric and model, for a reader."""
        return f"{self.metric} {self.model}"

    @property
    def id(self) -> str:
        """Ten digits that stand for it; a model may have several names."""
        parts = [self.machine, self.engine, self.model_sha256, self.settings]
        text = json.dumps([*parts, self.metric, self.unit, self.anchor])
        return hashlib.sha256(text.encode()).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a series.

    Attributes:
        low: lower bound of its interval, None where it has none.
        high: likewise.
        outcome: the verdict on it; of a measurement, INVALID if a claim of its test is.
        provenance: label and text of what may change within a series, such as the build.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    outcome: str
    test: str
    provenance: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SeriesValue(Value):
    """A value from a row of a document.

    Attributes:
        key: of its series.
        row: its place in the document.
    """

    key: SeriesKey
    row: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document comes from: machine, host, hardware's name, and the writing version."""

    machine: str
    host: str
    hardware: str
    version: str


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a document, with what it needs of the document around it."""

    number: int
    test: str
    outcome: str
    raw: Mapping[str, Any]
    machine: str
    around: tuple[tuple[str, str], ...]


def origin_of(document: Mapping[str, Any], where: str) -> Origin:
    """Where a document comes from; ConfigError names the place if it does not say."""
    try:
        meta = document["meta"]
        machine = meta["machine"]
        own = machine.get("id") or _digest([meta["host"], machine])[:12]
        texts = (own, meta["host"], machine["hardware"], meta["version"])
        return Origin(*(printable(_text(text), _LONGEST_FACT) for text in texts))
    except _MALFORMED as error:
        raise malformed(where, "its meta", error) from None


def time_of(document: Mapping[str, Any], where: str) -> float:
    """When a document's session began, seconds since the epoch."""
    try:
        return dt.datetime.fromisoformat(document["meta"]["time"]).timestamp()
    except _MALFORMED as error:
        raise malformed(where, "its time", error) from None


def figures_of(document: Mapping[str, Any], where: str) -> list[SeriesValue]:
    """The figures in a report's rows."""
    machine = origin_of(document, where).machine
    try:
        rows = list(document["rows"])
        broken = {_text(row["test"]) for row in rows if row["outcome"] == _INVALID}
        around = tuple(_around(document["meta"]))
    except _MALFORMED as error:
        raise malformed(where, "its head", error) from None
    found: dict[tuple[object, ...], SeriesValue] = {}
    for number, row in enumerate(rows):
        try:
            test, outcome = _text(row["test"]), _text(row["outcome"])
            outcome = printable(outcome, _LONGEST_WORD) or (_INVALID if test in broken else "")
            one = _Row(number, test, outcome, row["raw"], machine, around)
            figures = list(_figures(one)) if row["source"] != "recorded" else []
        except _MALFORMED as error:
            raise malformed(where, f"row {number + 1}", error) from None
        for figure in figures:  # tests that share a measurement note it each
            found.setdefault((figure.key.id, *astuple(figure)[:4]), figure)
    return list(found.values())


def document_digest(document: Mapping[str, Any]) -> str:
    """What a document is known by: the same one again is not stored twice."""
    return _digest(document)[:32]


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _around(meta: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What of a session may change within a series."""
    machine = meta["machine"]
    yield "os", f"{machine['os']} {machine.get('os_version', '')}".strip()
    if drivers := [_text(gpu["driver"]) for gpu in machine.get("gpus", ()) if gpu.get("driver")]:
        yield "driver", ", ".join(drivers)
    yield "pytest-asperf", _text(meta["version"])


def _figures(row: _Row) -> Iterator[SeriesValue]:
    """A verdict's pairs, or what a measurement came to."""
    raw = row.raw
    if "predicted_gain" in raw:
        how = {key: raw[key] for key in ("k", "temperature", "n_tokens")}
        yield _measured(row, raw["ran"], "sd gain", raw["gain"], how)
    elif comparison := raw.get("comparison"):
        if "ran" in comparison and raw["figures"]:
            yield from _compared(row, comparison, raw["figures"][0])
    elif "workload" in raw and "estimate" in raw:
        yield _measured(row, [raw], raw["workload"], raw["estimate"])
    elif "joules_per_token" in raw:
        yield _measured(row, [raw], raw["metered"], raw["joules_per_token"])
    elif "delta_ppl" in raw:
        scored = {"n_ctx": raw["n_ctx"], "text": raw["text"]["sha256"]}
        n = raw["delta_ppl"]["n"]
        ppl = {"point": raw["ppl"], "low": None, "high": None, "n": n, "unit": "PPL"}
        yield _measured(row, [raw], "ppl", ppl, scored)
        yield _measured(row, [raw["baseline"], raw], "ppl change", raw["delta_ppl"], scored)
    elif "memory_bytes" in raw:
        total = sum(raw["memory_bytes"].values())
        figure = {"point": total, "low": total, "high": total, "n": 1, "unit": "bytes"}
        yield _measured(row, [raw], f"memory@{raw['n_ctx']}", figure)


def _compared(
    row: _Row, comparison: Mapping[str, Any], figure: Mapping[str, Any]
) -> Iterator[SeriesValue]:
    """The log ratio of the pairs, unless a difference was judged; the rate or time of each side."""
    ran = comparison["ran"]
    timed = comparison.get("timed", "ppl")
    if figure["unit"] != comparison.get("unit"):
        sign = -1 if comparison.get("of_rates") else 1
        one = 1.0 if figure["unit"] == "change" else 0.0
        logs = [_log(figure[key], sign, plus=one) for key in ("point", "low", "high")]
        low, high = logs[1:][::sign]
        ratio = {"point": logs[0], "low": low, "high": high, "n": figure["n"], "unit": LOG_RATIO}
        alike = _asked(ran[0]) == _asked(ran[1])
        anchor = _engine(ran[0]).build if alike else ""
        yield _measured(row, ran, f"{timed} ratio", ratio, anchor=anchor)
    for side, proof, middle in zip(
        comparison["sides"], ran, comparison.get("medians", ()), strict=False
    ):
        n = len(comparison["pairs"])
        value = {"point": middle, "low": None, "high": None, "n": n, "unit": comparison["unit"]}
        yield _measured(row, [proof], f"{timed} {_text(side)}", value)


def _log(ratio: float | None, sign: int, *, plus: float) -> float | None:
    """The log of a ratio, or of one and a change; None where it is not known, or not positive."""
    return None if ratio is None or ratio + plus <= 0 else sign * math.log(ratio + plus)


def _engine(proof: Mapping[str, Any]) -> EngineFacts:
    from pytest_asperf.engine_process import EngineFacts  # noqa: PLC0415  # numpy comes with it

    return EngineFacts.parse(proof["engine"])


def _asked(proof: Mapping[str, Any]) -> tuple[object, object]:
    return proof["sha256"], proof["requested"]


def _measured(
    row: _Row,
    ran: Sequence[Mapping[str, Any]],
    metric: str,
    estimate: Mapping[str, Any],
    settings: Mapping[str, Any] = MappingProxyType({}),
    *,
    anchor: str = "",
) -> SeriesValue:
    """A figure of what ran; the last proof of path is that of what is measured."""
    asked = [{**proof["requested"], **settings} for proof in ran]
    texts = dict.fromkeys(json.dumps(one, sort_keys=True) for one in asked)
    hashes = dict.fromkeys(_text(proof["sha256"]) for proof in ran)
    models = dict.fromkeys(_text(proof["model"]).partition(" in ")[0] for proof in ran)
    engines = [_engine(proof) for proof in ran]
    key = SeriesKey(
        row.machine,
        " / ".join(dict.fromkeys(facts.engine for facts in engines)),
        " / ".join(models),
        "/".join(hashes),
        " / ".join(texts),
        _text(metric),
        _text(estimate["unit"]),
        anchor,
    )
    value, n = _number(estimate["point"]), int(_number(estimate["n"]))
    low, high = (
        None if bound is None else _number(bound) for bound in map(estimate.get, ("low", "high"))
    )
    provenance = (("build", engines[-1].build), *row.around)
    return SeriesValue(value, low, high, n, row.outcome, row.test, provenance, key, row.number)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, _NUMBERS) or not math.isfinite(value):
        raise ValueError(f"{shown(value, 60)} is not a number")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{shown(value, 60)} is not a text")
    return printable(value)


def malformed(where: str, what: str, error: Exception) -> ConfigError:
    """The error for a document that is not as this program writes it."""
    missing = isinstance(error, KeyError)
    reason = f"{error} is missing" if missing else printable(error, 200)
    return ConfigError(
        f"{where}: {what} is not as pytest-asperf writes it: {reason}",
        why="its figures would be left out of their series",
        remedy="name a file that pytest --asperf-report=json:FILE or asperf gate --json FILE wrote",
    )
