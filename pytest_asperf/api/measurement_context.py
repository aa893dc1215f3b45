"""What every fixture value measures with, and how a claim is settled."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import (
    Outcome,
    Subject,
    Verdict,
    VerdictError,
)
from pytest_asperf.errors import ConfigError, listing, shown, suggest
from pytest_asperf.measure.validity import require_valid, throughput_trips
from pytest_asperf.report.rows import throughput_row, verdict_row
from pytest_asperf.verdicts.readings import GuardedRates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.analysis.guards import GuardFinding


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_asperf.analysis.guards import GuardFinding
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.ceiling import BandwidthBounds
    from pytest_asperf.measure.results import (
        ThroughputResult,
    )
    from pytest_asperf.measure.runner import MeasurementRunner
    from pytest_asperf.report.rows import ReportRow


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """What every handle needs: where to measure, where to note it, what bounds it.

    Attributes:
        runner: measures.
        record: takes a row for the summary.
        bounds: which memory bandwidth bounds TG.
        max_cv: coefficient of variation of a reading's runs that is accepted.
        budget: what pairs may cost.
    """

    runner: MeasurementRunner
    record: Callable[[ReportRow], None]
    bounds: BandwidthBounds
    max_cv: float
    budget: Budget

    def reading(self, result: ThroughputResult) -> Reading:
        """Note a measurement, and return it unless guards find it broken.

        Raises:
            MeasurementError: it is.
        """
        what = f"{result.workload.name} {result.ran.model}"
        guard_findings = throughput_trips(result, self.bounds.peak(result), self.max_cv)
        require_valid(what, guard_findings)
        self.record(
            throughput_row(
                result, "\n".join(f"{what}: {guard_finding}" for guard_finding in guard_findings)
            )
        )
        return Reading(result, self, guard_findings)


@dataclass(frozen=True)
class Model:
    """The `model` fixture: the model that a test's markers name.

    Attributes:
        ref: its address.
    """

    ref: ModelRef = field(repr=False)
    measurement: MeasurementContext = field(repr=False)

    @property
    def name(self) -> str:
        """Its name, without the level."""
        return self.ref.spec.name

    @property
    def level(self) -> str | None:
        """Its level; None where it is the file's own."""
        return self.ref.level

    @property
    def label(self) -> str:
        """Its address."""
        return self.ref.label

    @cached_property
    def path(self) -> Path:
        """Its file, made now if it is not in the cache yet."""
        return self.measurement.runner.locate(self.ref).path


@dataclass(frozen=True)
class Reading:
    """One workload measured on one model.

    Attributes:
        result: raw runs and estimates.
        measurement: where it was measured.
        guard_findings: what guards say of it, none of it INVALID.
    """

    result: ThroughputResult = field(repr=False)
    measurement: MeasurementContext = field(repr=False)
    guard_findings: tuple[GuardFinding, ...] = ()

    @property
    def runs(self) -> GuardedRates:
        """The runs with what guards found in them."""
        return GuardedRates(self.result.rates, self.guard_findings)

    @property
    def rate(self) -> Estimate:
        """Median rate with its interval, tok/s."""
        return self.result.rate

    @property
    def workload(self) -> str:
        """The workload's name."""
        return self.result.workload.name

    def subject(self, what: str = "") -> Subject:
        """Return what a claim about this reading is about."""
        name = f"{what or self.workload} {self.result.ran.model}"
        return Subject(name, "live", self.result.ran.rows())


def settle(verdict: Verdict, measurement: MeasurementContext) -> Verdict:
    """Note a verdict, and raise unless it is a PASS."""
    __tracebackhide__ = True
    measurement.record(verdict_row(verdict))
    if verdict.outcome is not Outcome.PASS:
        raise VerdictError(verdict)
    return verdict


def unknown_word(what: str, word: str, valid: Sequence[str]) -> ConfigError:
    """Return the error for an argument that is none of the words it may be."""
    return ConfigError(
        f"unknown {what} {shown(word, 80)}{suggest(word, valid)}",
        why="the claim is about it",
        remedy=f"use one of {listing(valid)}",
    )
