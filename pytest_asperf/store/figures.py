"""The figures of a report that series are made of, and the content of a store."""

import datetime as dt
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from pytest_asperf.analysis.facts import Compared, ComparedPairs, ComparedVariants, Ran
from pytest_asperf.analysis.stats.estimate import CHANGE, Estimate
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.errors import printable
from pytest_asperf.records.codec import encode
from pytest_asperf.records.kinds import (
    AnyRecord,
    EnergyRecord,
    MemoryRecord,
    QuantRecord,
    SpeculationRecord,
    ThroughputRecord,
)
from pytest_asperf.records.report import Meta, Report, part

#: Unit of the natural logarithm of candidate / baseline, in time: above 0 is slower.
LOG_RATIO: Final = "log ratio"
_INVALID: Final = "INVALID"
_LONGEST_FACT: Final = 64


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """The common part of figures that may be drawn as one line."""

    machine: str  #: its fingerprint
    #: the engine's name, or both builds' names; the build may change within a series, and is
    #: provenance
    engine: str
    model: str  #: the model spec; a name for readers
    model_sha256: str  #: hashes of the model's file, or of all files
    settings: str  #: the requested settings, as JSON with sorted keys
    metric: str  #: such as `tg128`, or `tg128 ratio`
    unit: str  #: of the values
    anchor: str = ""  #: the fixed baseline of a ratio; empty for others

    @property
    def title(self) -> str:
        """Metric and model, for a reader."""
        return f"{self.metric} {self.model}"

    @property
    def id(self) -> str:
        """Ten digits that identify it; a model may have several names."""
        parts = [self.machine, self.engine, self.model_sha256, self.settings]
        text = json.dumps([*parts, self.metric, self.unit, self.anchor])
        return hashlib.sha256(text.encode()).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a series."""

    value: float
    low: float | None  #: lower bound of its interval, None if it has none
    high: float | None  #: upper bound of the interval
    n: int
    outcome: str  #: its verdict; for a measurement, INVALID if an assertion of its test is
    test: str
    #: label and text of facts that may change within a series, such as the build
    provenance: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SeriesValue(Value):
    """A value from a record of a report."""

    key: SeriesKey  #: of its series
    row: int  #: place of the record in the report


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a document: machine, host, hardware's name, and the writing version."""

    machine: str
    host: str
    hardware: str
    version: str


@dataclass(frozen=True, slots=True)
class _Row:
    """A record, with the facts that it needs of its report."""

    number: int
    test: str
    outcome: str
    record: AnyRecord
    machine: str
    around: tuple[tuple[str, str], ...]


def origin_of(report: Report) -> Origin:
    """The origin of a report."""
    meta = report.meta
    own = meta.machine.id or _digest([meta.host, encode(meta.machine)])[:12]
    texts = (own, meta.host, meta.machine.hardware, meta.version)
    return Origin(*(printable(text, _LONGEST_FACT) for text in texts))


def time_of(report: Report, where: str) -> float:
    """When a report's session began, seconds since the epoch."""
    began = report.meta.time
    time: float = part(lambda: dt.datetime.fromisoformat(began).timestamp(), where, "its time")
    return time


def figures_of(report: Report, where: str) -> list[SeriesValue]:
    """The figures in a report's records; ConfigError names a record that is malformed."""
    machine = origin_of(report).machine
    broken = {noted.test for noted in report.rows if noted.record.outcome == _INVALID}
    around = tuple(_around(report.meta))
    found: dict[tuple[object, ...], SeriesValue] = {}
    for number, noted in enumerate(report.rows):
        test, outcome = printable(noted.test), str(noted.record.outcome)
        outcome = outcome or (_INVALID if noted.test in broken else "")
        row = _Row(number, test, outcome, noted.record, machine, around)
        for figure in part(partial(_listed, row), where, f"row {number + 1}"):
            # Tests that share a measurement note it each.
            found.setdefault((figure.key.id, *astuple(figure)[:4]), figure)
    return list(found.values())


def document_digest(document: Mapping[str, object]) -> str:
    """The digest of a document: an equal one is not stored twice."""
    return _digest(document)[:32]


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _around(meta: Meta) -> Iterator[tuple[str, str]]:
    """The facts of a session that may change within a series."""
    machine = meta.machine
    yield "os", printable(f"{machine.os} {machine.os_version}".strip())
    if drivers := [printable(gpu.driver) for gpu in machine.gpus if gpu.driver]:
        yield "driver", ", ".join(drivers)
    yield "pytest-asperf", printable(meta.version)


def _listed(row: _Row) -> list[SeriesValue]:
    return list(_figures(row))


def _figures(row: _Row) -> Iterator[SeriesValue]:
    """A verdict's pairs, or a measurement's result."""
    match row.record:
        case SpeculationRecord() as of:
            how = {"k": of.k, "temperature": of.temperature, "n_tokens": of.n_tokens}
            ran = (of.ran, *([of.draft_ran] if of.draft_ran else []))
            yield _measured(row, ran, "sd gain", of.gain, how)
        case Verdict(compared=compared, figures=figures, source=source):
            if compared and figures and source != "recorded":
                yield from _compared(row, compared, figures[0].estimate)
        case ThroughputRecord() as of:
            yield _measured(row, [of.ran], of.workload, of.estimate)
        case EnergyRecord() as of:
            yield _measured(row, [of.ran], of.workload, of.joules_per_token)
        case QuantRecord() as of:
            scored = {"n_ctx": of.text.n_ctx, "text": of.text.sha256} if of.text else {}
            ppl = _alone(of.ppl, of.delta_ppl.n, "PPL")
            yield _measured(row, [of.ran], "ppl", ppl, scored)
            yield _measured(row, [of.baseline, of.ran], "ppl change", of.delta_ppl, scored)
        case MemoryRecord() as of:
            total = Estimate.exact(float(of.total_bytes), "bytes")
            yield _measured(row, [of.ran], f"memory@{of.n_ctx}", total)


def _compared(row: _Row, compared: Compared, figure: Estimate) -> Iterator[SeriesValue]:
    """The log ratio of the pairs, unless a difference was judged; each variant's rate or time."""
    if isinstance(compared, ComparedVariants):
        return
    ran, timed, sign = compared.ran, "ppl", 1
    is_ratio = True
    if isinstance(compared, ComparedPairs):
        timed, sign = compared.timed, -1 if compared.of_rates else 1
        is_ratio = figure.unit != compared.unit
    if is_ratio:
        one = 1.0 if figure.unit == CHANGE else 0.0
        bounds = (figure.point, figure.low, figure.high)
        point, low, high = (_log(of, sign, plus=one) for of in bounds)
        low, high = (low, high)[::sign]
        log_ratio = replace(figure, point=point, low=low, high=high, unit=LOG_RATIO)
        alike = (ran[0].sha256, ran[0].requested) == (ran[1].sha256, ran[1].requested)
        anchor = ran[0].libraries if alike else ""
        yield _measured(row, ran, f"{timed} ratio", log_ratio, anchor=anchor)
    if isinstance(compared, ComparedPairs):
        n = max(1, len(compared.pairs))
        for side, own, middle in zip(compared.variants, ran, compared.medians, strict=True):
            value = _alone(middle, n, compared.unit)
            yield _measured(row, [own], f"{timed} {printable(side)}", value)


def _alone(value: float, n: int, unit: str) -> Estimate:
    """A value without an interval."""
    return Estimate(value, -math.inf, math.inf, n, method="", unit=unit)


def _log(ratio: float, sign: int, *, plus: float) -> float:
    """The log of a ratio, or of one and a change; an unknown bound stays infinite."""
    if not math.isfinite(ratio):
        return sign * ratio
    return sign * math.log(ratio + plus) if ratio + plus > 0 else -sign * math.inf


def _measured(
    row: _Row,
    ran: Sequence[Ran],
    metric: str,
    estimate: Estimate,
    settings: Mapping[str, object] = MappingProxyType({}),
    *,
    anchor: str = "",
) -> SeriesValue:
    """A fact of the run record; the last record is that of the measured variant."""
    asked = [{**proof.requested, **settings} for proof in ran]
    texts = dict.fromkeys(json.dumps(one, sort_keys=True) for one in asked)
    hashes = dict.fromkeys(printable(proof.sha256) for proof in ran)
    models = dict.fromkeys(printable(proof.spec) for proof in ran)
    key = SeriesKey(
        row.machine,
        " / ".join(dict.fromkeys(proof.engine for proof in ran)),
        " / ".join(models),
        "/".join(hashes),
        " / ".join(texts),
        printable(metric),
        printable(estimate.unit),
        anchor,
    )
    low, high = (bound if math.isfinite(bound) else None for bound in (estimate.low, estimate.high))
    provenance = (("build", ran[-1].libraries), *row.around)
    point, n = estimate.point, estimate.n
    return SeriesValue(point, low, high, n, row.outcome, row.test, provenance, key, row.number)


#: The kind of a report that grows while its session runs.
UNFINISHED: Final = "unfinished"
#: The parts of a key, for a reader.
_WORDS: Final = {
    "machine": "machine",
    "engine": "engine",
    "model_sha256": "model file",
    "settings": "settings",
    "metric": "metric",
    "unit": "unit",
    "anchor": "baseline build",
}


@dataclass(frozen=True, slots=True)
class StoredPoint(Value):
    """A value that was stored."""

    time: float  #: when its session began, seconds since the epoch
    session: str  #: the session's id


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """A series, with how many points it has and the times of the first and the last."""

    id: str
    key: SeriesKey
    n: int
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session, without its document."""

    id: str
    kind: str
    time: float  #: when it began, seconds since the epoch; after sessions before it on its machine
    clock_back_s: float  #: seconds that were added to its time, because its clock had been set back
    machine: str
    host: str
    hardware: str
    version: str


@dataclass(frozen=True, slots=True)
class NewSeries:
    """A series that began with a session."""

    key: SeriesKey
    after: str = ""  #: id of the most similar series before it; empty if there is none
    changed: tuple[str, ...] = ()  #: the parts of the key that differ from that one's


@dataclass(frozen=True, slots=True)
class Recorded:
    """The effect of storing a document."""

    session: str  #: the session's id
    is_new: bool  #: whether it was not in the store before
    n_figures: int = 0  #: how many it added to series
    began: tuple[NewSeries, ...] = ()  #: the series that it began
    clock_back_s: float = 0.0  #: as `StoredSession` has it

    def notes(self) -> Iterator[str]:
        """The remarks on it."""
        for new in self.began:
            if new.after:
                what = " and ".join(_WORDS[name] for name in new.changed)
                yield f"new series {new.key.id}, {new.key.title}: not the {what} of {new.after}"
        if self.clock_back_s:
            yield (
                f"the clock of this machine was set back by {self.clock_back_s:.0f} s: the session "
                "is put after those before it"
            )
