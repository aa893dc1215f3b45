"""The common values of several reports, and those that may not be compared, with the reason."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_asperf.analysis.metrics import bandwidth_utilisation
from pytest_asperf.analysis.stats.estimate import CHANGE, Estimate
from pytest_asperf.hardware.profiles import Profile, load_profiles
from pytest_asperf.records.kinds import AnyRecord, ThroughputRecord
from pytest_asperf.records.report import Report
from pytest_asperf.report.history import estimate_of
from pytest_asperf.store.figures import (
    LOG_RATIO,
    Origin,
    SeriesKey,
    SeriesValue,
    figures_of,
    origin_of,
)

#: For the quotient of two values in intervals of 90 %, with any distributions.
UNPAIRED_CONFIDENCE: Final = 0.80
_DIFFERING: Final = {
    "engine": "another engine",
    "model_sha256": "another model file",
    "settings": "other settings",
    "anchor": "another baseline build",
}


@dataclass(frozen=True, slots=True)
class ComparedReport:
    """One report with its figures."""

    name: str  #: how the user named it
    origin: Origin
    profile: Profile | None  #: of the measured hardware; None if it is unknown
    #: by the id of the series; of several in one series, the last
    values: Mapping[str, SeriesValue]
    #: by series, bytes that a step of TG reads of the profile's memory
    step_bytes: Mapping[str, int]

    def anywhere(self) -> dict[str, SeriesValue]:
        """The values by their series without its machine; ratios depend on theirs."""
        return {
            replace(one.key, machine="").id: one
            for one in self.values.values()
            if one.key.unit != LOG_RATIO
        }


def read_compared(name: str, report: Report) -> ComparedReport:
    """A report for a comparison; ConfigError names a record that is malformed."""
    origin, figures = origin_of(report), figures_of(report, name)
    profile = load_profiles().get(str(report.meta.machine.profile))
    sizes = {
        one.key.id: size
        for one in figures
        if profile and (size := _step_bytes(report.rows[one.row].record, one.key, profile))
    }
    return ComparedReport(name, origin, profile, {one.key.id: one for one in figures}, sizes)


def _step_bytes(record: AnyRecord, key: SeriesKey, profile: Profile) -> int:
    if not isinstance(record, ThroughputRecord):
        return 0
    is_tg = key.metric.startswith("tg") and key.unit == "tok/s"
    known = is_tg and (record.ran.layers_offloaded > 0 or profile.vendor == "apple")
    return max(0, record.bytes_per_token or 0) if known else 0


@dataclass(frozen=True, slots=True)
class Change:
    """Two values of one series, and the relative change with an unpaired interval."""

    before: SeriesValue
    after: SeriesValue
    change: Estimate


def changes(one: ComparedReport, other: ComparedReport) -> list[Change]:
    """The changes of the series that two sessions of one machine share."""
    both = [(value, other.values[id_]) for id_, value in one.values.items() if id_ in other.values]
    return [_change(before, after) for before, after in both]


def _change(before: SeriesValue, after: SeriesValue) -> Change:
    a, b = _logs(before), _logs(after)
    low, high = b[1] - a[2], b[2] - a[1]
    confidence = 1.0 if low == high else UNPAIRED_CONFIDENCE
    n = max(1, min(before.n, after.n))
    logs = Estimate(b[0] - a[0], low, high, n, method="", unit="", confidence=confidence)
    return Change(before, after, logs.change_of_log())


def _logs(value: SeriesValue) -> tuple[float, float, float]:
    """Point and bounds on the log scale; an unknown bound is infinite."""
    whole = estimate_of(value, value.key.unit)
    point, low, high = whole.point, whole.low, whole.high
    if value.key.unit == LOG_RATIO:
        return point, low, high
    one = 1.0 if value.key.unit == CHANGE else 0.0
    return _log(one + point), _log(one + low), _log(one + high)


def _log(value: float) -> float:
    if value == math.inf:
        return math.inf
    return math.log(value) if value > 0 else -math.inf


@dataclass(frozen=True, slots=True)
class OnMachine:
    """A value on one machine."""

    report: ComparedReport
    value: SeriesValue
    energy: SeriesValue | None  #: of the same workload, in J/token, if it was metered
    gbs: float | None = None  #: the bandwidth that it used
    share: Estimate | None = None  #: of the published bandwidth


def by_machine(reports: Sequence[ComparedReport]) -> list[list[OnMachine]]:
    """The measurements that at least two machines share, each with its value on all of them."""
    found: dict[str, list[OnMachine]] = {}
    for report in reports:
        for alike, value in report.anywhere().items():
            found.setdefault(alike, []).append(on_machine(report, value))
    return [every for every in found.values() if len({m.report.origin.machine for m in every}) > 1]


def on_machine(report: ComparedReport, value: SeriesValue) -> OnMachine:
    """A value with the bandwidth that it used, if that is known."""
    size, profile = report.step_bytes.get(value.key.id), report.profile
    metered = replace(value.key, metric=f"j{value.key.metric}", unit="J/token")
    energy = report.values.get(metered.id)
    if not (size and profile):
        return OnMachine(report, value, energy)
    share = bandwidth_utilisation(estimate_of(value, value.key.unit), size, profile.bandwidth_gbs)
    return OnMachine(report, value, energy, value.value * size / 1e9, share)


def ran_otherwise(one: ComparedReport, other: ComparedReport) -> list[tuple[str, str, str]]:
    """The differences of run records, if both measured: label and both texts, each once."""
    found: dict[tuple[str, str, str], None] = {}
    others = {**other.anywhere(), **other.values}
    for id_, value in {**one.anywhere(), **one.values}.items():
        theirs = dict(others[id_].provenance) if id_ in others else {}
        for label, text in value.provenance:
            if label in theirs and theirs[label] != text:
                found[label, text, theirs[label]] = None
    return list(found)


def left_out(one: ComparedReport, other: ComparedReport) -> Iterator[tuple[str, str]]:
    """The measurements that only one of two reports has, with the reason."""
    one_machine = one.origin.machine == other.origin.machine
    of_one, of_other = (r.values if one_machine else r.anywhere() for r in (one, other))
    for report, own, theirs in ((one, of_one, of_other), (other, of_other, of_one)):
        for id_, value in own.items():
            if id_ not in theirs:
                yield value.key.title, _reason(value.key, theirs.values(), report.name)


def _reason(key: SeriesKey, others: Iterable[SeriesValue], name: str) -> str:
    alike = [o.key for o in others if (o.key.metric, o.key.model) == (key.metric, key.model)]
    reasons = [
        [word for part, word in _DIFFERING.items() if getattr(one, part) != getattr(key, part)]
        for one in alike
    ]
    nearest = sorted(reasons, key=len)[:1]
    return " and ".join(nearest[0]) if nearest else f"only in {name}"
