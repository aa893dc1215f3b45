"""`assert_ratio`: by how much two levels, models, workloads or builds differ in speed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from pytest_asperf.analysis.limit_verdict import judge_within
from pytest_asperf.analysis.stats.estimate import RATIO, Estimate
from pytest_asperf.analysis.verdict import Subject
from pytest_asperf.api.measurement_context import settle
from pytest_asperf.errors import ConfigError, shown
from pytest_asperf.measure.ab_speed import SpeedExperiment
from pytest_asperf.measure.paired_runner import most_parts
from pytest_asperf.verdicts.ratio import RatioClaim, ratio_verdict

if TYPE_CHECKING:
    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.api.measurement_context import MeasurementContext
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.measure.ab_speed import ABResult
    from pytest_asperf.measure.runner import ComparedSide

#: A larger factor between two speeds, or a smaller one than its inverse, is a slip of the pen.
_LARGEST: Final = 1e4


class Comparable(Protocol):
    """A fixture whose members can be compared by their names.

    `ladder`: rungs and the baseline; `throughput`: workloads; `gate`: the two builds.
    """

    @property
    def measurement(self) -> MeasurementContext:
        """What it measures with."""

    @property
    def title(self) -> str:
        """What all members have in common."""

    def side(self, name: str, on: str | None) -> ComparedSide:
        """The member of that name, with the workload that it runs.

        Raises:
            ConfigError: there is none.
        """


def assert_ratio(
    measured: Comparable,
    first: str,
    second: str,
    on: str | None = None,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Verdict:
    """Claim a ratio of two speeds, or of two files' sizes: "Q4_K_M is 1.5 times as fast as F16".

    Both sides run in pairs until the claim is decided, each in a process of its own, as the builds
    of a gate do. The ratio is one of rates (tok/s) for PP and TG, and one of times for TTFT.

    Args:
        measured: the fixture that has both: `ladder` for levels, KV types and models as the test's
            marker names them, `throughput` for workloads of one model, `gate` for `"candidate"`
            and `"baseline"`.
        first: the side above the line.
        second: the side below it.
        on: the workload of both sides, tg128 by default, or `"size"`; none with `throughput`.
        at_least: lower limit of first / second, a factor such as 1.5.
        at_most: upper limit, likewise.

    Raises:
        VerdictError: the verdict is not a PASS; INVALID where both are the same file, run alike.
        ConfigError: no such side or workload, one side twice, or no usable limit.
        AsperfError: a side could not be measured.
    """
    __tracebackhide__ = True
    if not callable(getattr(measured, "side", None)):
        raise ConfigError(
            f"assert_ratio: {shown(measured, 80)} has no two sides to compare",
            why="the fixture says what the names stand for",
            remedy='let the test take ladder, throughput or gate, and write assert_ratio(ladder, "'
            'Q4_K_M", "F16", "tg128", at_least=1.5)',
        )
    _require_limits(at_least, at_most)
    if on == "size":
        return _ratio_of_sizes(measured, (first, second), at_least, at_most)
    sides = measured.side(second, on), measured.side(first, on)
    works = [side.workload for side in sides if side.workload is not None]
    _require_comparable(sides, works, (first, second))
    claim = RatioClaim(
        (first, second),
        f"{works[0].name} of {measured.title}" if works[0] == works[1] else measured.title,
        at_least,
        at_most,
        works[0].is_rate,
    )
    result = compare_sides(sides, measured.measurement, claim.costs)
    verdict = ratio_verdict(result, claim, _twins(result, sides))
    return settle(verdict, measured.measurement.record, interrupted=result.interrupted)


def _ratio_of_sizes(
    measured: Comparable, names: tuple[str, str], at_least: float | None, at_most: float | None
) -> Verdict:
    __tracebackhide__ = True
    sides = [measured.side(name, None) for name in names]
    first, second = (side.runner.locate(side.refs[0]) for side in sides)
    if first == second:
        raise _compared_with_itself(names[0])
    ran = tuple(("file", f"{m.ref.title}, sha256 {m.sha256[:12]}") for m in (first, second))
    subject = Subject(f"{' / '.join(names)} in size of {measured.title}", "live", ran)
    ratio = Estimate.exact(first.size_bytes / second.size_bytes, RATIO)
    verdict = judge_within(ratio, subject, at_least=at_least, at_most=at_most)
    return settle(verdict, measured.measurement.record)


def compare_sides(
    sides: tuple[ComparedSide, ComparedSide],
    measurement: MeasurementContext,
    costs: tuple[float, float],
) -> ABResult:
    """Time two sides in pairs until their ratio of costs is within limits, or shown not to be.

    Args:
        sides: baseline and candidate.
        measurement: what they are measured with.
        costs: the limits.
    """
    # A pair is divided into parts that both sides have.
    workload = min((side.workload for side in sides if side.workload), key=most_parts)
    experiment = SpeedExperiment((workload,), replace(measurement.budget, claim=costs))
    return measurement.runner.compare(sides, experiment)


def _require_limits(at_least: object, at_most: object) -> None:
    given = {"at_least": at_least, "at_most": at_most}
    for name, limit in given.items():
        is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if limit is not None and not (is_number and 1 / _LARGEST <= limit <= _LARGEST):  # type: ignore[operator]  # a number
            raise ConfigError(
                f"assert_ratio: {name}: {shown(limit)} is not a usable ratio",
                why="a ratio of two speeds is a factor, such as 1.68",
                remedy="write a number such as 1.5; 92 % slower is at_most=0.08",
            )
    low = at_least if isinstance(at_least, int | float) else 0.0
    high = at_most if isinstance(at_most, int | float) else math.inf
    if not (low or high < math.inf) or low >= high:
        raise ConfigError(
            f"assert_ratio: at_least={at_least}, at_most={at_most} is not a range",
            why="such a claim would always or never hold",
            remedy="give at_least, at_most, or both with at_least < at_most",
        )


def _require_comparable(
    sides: tuple[ComparedSide, ComparedSide], works: list[Workload], names: tuple[str, str]
) -> None:
    if sides[0] == sides[1]:
        raise _compared_with_itself(names[0])
    if works[0].is_rate != works[1].is_rate:
        raise ConfigError(
            f"assert_ratio: {names[0]} and {names[1]} are a rate and a time",
            why="they have no ratio",
            remedy="compare two rates (tg128, pp512) or two times (ttft512, ttft4096)",
        )


def _compared_with_itself(name: str) -> ConfigError:
    return ConfigError(
        f"assert_ratio: {name} is compared with itself",
        why="that shows nothing",
        remedy="name two sides",
    )


def _twins(result: ABResult, sides: tuple[ComparedSide, ComparedSide]) -> str:
    """How two sides are shown to be one, empty where they are not."""
    (base, candidate), (one, other) = result.ran, sides
    is_one_file = base.sha256 == candidate.sha256 and base.requested == candidate.requested
    if one.workload != other.workload or one.build != other.build or not is_one_file:
        return ""
    return f"both are the file sha256 {base.sha256[:12]}, with the same settings"
