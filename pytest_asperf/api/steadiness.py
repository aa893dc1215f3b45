"""`assert_steady` and `assert_steadier`: how much runs vary, as a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.analysis.guards import Voids
from pytest_asperf.analysis.limit_verdict import judge_below, parse_percent
from pytest_asperf.analysis.stats.spread import cv_interval, cv_ratio_interval
from pytest_asperf.analysis.verdict import Outcome, Subject, guarded
from pytest_asperf.api.latency import LatencyReading
from pytest_asperf.api.measurement_context import Reading, require_kind, settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.analysis.verdict import Verdict


def assert_steady(reading: Reading | LatencyReading, *, cv_below: str | float) -> Verdict:
    """Claim that the runs of a reading vary little.

    Judged is the coefficient of variation, standard deviation over mean, of independent runs: of
    fresh loads where loading is cheap. `--asperf-max-cv` does not matter to it.

    Args:
        reading: such as `throughput("tg128")` or `latency("ttft512")`.
        cv_below: the limit, `"1%"` or a fraction.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no reading, or a limit that is no percentage.
        MeasurementError: one run, or all of one time.
    """
    __tracebackhide__ = True
    limit = parse_percent(cv_below, where="assert_steady: cv_below")
    measured = _reading(reading, "assert_steady")
    estimate = cv_interval(measured.result.rates, counted=measured.result.counted)
    return _settled(
        judge_below(estimate, limit, measured.subject(f"CV of {measured.workload}")), [measured]
    )


def assert_steadier(
    reading: Reading | LatencyReading, *, than: Reading | LatencyReading
) -> Verdict:
    """Claim that the runs of one reading vary less than those of another.

    Args:
        reading: the one that varies less.
        than: the one that varies more.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no reading.
        MeasurementError: one run, or all of one time.
    """
    __tracebackhide__ = True
    first, second = (_reading(given, "assert_steadier") for given in (reading, than))
    estimate = cv_ratio_interval(first.result.rates, second.result.rates)
    subject = Subject(
        f"CV of {first.workload} {first.result.ran.model} / {second.workload} "
        f"{second.result.ran.model}",
        "live",
        tuple(dict.fromkeys((*first.result.ran.rows(), *second.result.ran.rows()))),
    )
    return _settled(judge_below(estimate, 1.0, subject), [first, second])


def _reading(given: Reading | LatencyReading, where: str) -> Reading:
    limit = 'cv_below="1%"' if where == "assert_steady" else 'than=throughput("pp512")'
    require_kind(given, (Reading, LatencyReading), f'{where}(throughput("tg128"), {limit})')
    return given.reading if isinstance(given, LatencyReading) else given


def _settled(verdict: Verdict, readings: Sequence[Reading]) -> Verdict:
    """The verdict with what guards found; the spread of the runs is what it judges."""
    __tracebackhide__ = True
    # A busy host only adds to what varies: steady runs are steady all the same.
    spared = {Voids.SPREAD_SENSITIVE}
    if verdict.outcome is Outcome.PASS:
        spared.add(Voids.LOAD_SENSITIVE)
    findings = [finding for reading in readings for finding in reading.guard_findings]
    verdict = guarded(verdict, findings, spared=spared)
    return settle(verdict, readings[0].measurement.record)
