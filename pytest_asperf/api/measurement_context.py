"""What every fixture value measures with, and how a claim is settled."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Protocol

from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, VerdictError
from pytest_asperf.errors import ConfigError, listing, no_truth_value, shown, suggest
from pytest_asperf.measure.validity import require_valid, throughput_trips
from pytest_asperf.report.rows import throughput_row, verdict_row
from pytest_asperf.verdicts.readings import GuardedRates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_asperf.analysis.guards import GuardFinding
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.bandwidth_bounds import BandwidthBounds
    from pytest_asperf.measure.results import ThroughputResult
    from pytest_asperf.measure.runner import MeasurementRunner
    from pytest_asperf.published.findings import Findings
    from pytest_asperf.report.rows import ReportRow

#: Rows of claims that took no fixture, until the running test takes them.
_UNTAKEN: Final = ContextVar[tuple["ReportRow", ...]]("untaken", default=())


class Record(Protocol):
    """Takes what one test measures and asserts."""

    def __call__(self, row: ReportRow) -> None:
        """Note a measurement, or a verdict."""

    def measured(self, what: str) -> None:
        """Note that something was measured, of which an assertion is expected."""

    def used(self) -> None:
        """Note that the test has read a number, which its own code may judge."""

    def keeps(self, undecided: VerdictError) -> bool:
        """Whether the test goes on, and its end raises the error."""


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """What every fixture value needs to measure, and to note what it measured.

    Attributes:
        max_cv: the accepted coefficient of variation of a reading's runs.
        findings: the session's recorded figures and findings, loaded when they are asked for.
        skip: skips the test for a reason.
    """

    runner: MeasurementRunner
    record: Record
    bounds: BandwidthBounds
    max_cv: float
    budget: Budget
    findings: Callable[[], Findings]
    skip: Callable[[str], NoReturn]

    def reading(self, result: ThroughputResult) -> Reading:
        """A measurement that was noted and that no guard found broken."""
        what = f"{result.workload.name} {result.ran.model}"
        guard_findings = throughput_trips(result, self.bounds.peak(result), self.max_cv)
        require_valid(what, guard_findings, result.watched)
        note = "\n".join(f"{what}: {guard_finding}" for guard_finding in guard_findings)
        self.record(throughput_row(result, note))
        return Reading(result, self, guard_findings)


class NoTruthValue:
    """A fixture or a measurement: `assert throughput("tg128")` is an error.

    Attributes:
        example: an assertion on it.
    """

    example: ClassVar[str]

    def __bool__(self) -> NoReturn:
        raise no_truth_value(shown(self, 80), self.example)


class FixtureValue(NoTruthValue):
    """The value of a fixture, which Hypothesis shows by its repr and not by its fields."""

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001  # its protocol
        printer.text(repr(self))


@dataclass(frozen=True)
class Model(FixtureValue):
    """The `model` fixture: the model that a test's markers name."""

    ref: ModelRef
    measurement: MeasurementContext

    example: ClassVar = 'assert_fits(model, "m2ultra")'

    def __repr__(self) -> str:
        return f"<Model {self.label}>"

    @property
    def name(self) -> str:
        """Its name, without the level."""
        return self.ref.spec.name

    @property
    def level(self) -> str | None:
        """Its level; None if the file is measured as it is."""
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
class Reading(NoTruthValue):
    """One workload measured on one model.

    Attributes:
        measured: raw runs and estimates, for what only shows or combines them.
        guard_findings: what guards found in it, none of it INVALID but a busy host.
    """

    measured: ThroughputResult
    measurement: MeasurementContext
    guard_findings: tuple[GuardFinding, ...] = ()

    example: ClassVar = 'assert_throughput(throughput("tg128"), at_least="40 tok/s")'

    def __repr__(self) -> str:
        result = self.measured
        return f"<Reading {self.workload} of {result.ran.model}: {result.rate.text()}>"

    @property
    def result(self) -> ThroughputResult:
        """Raw runs and estimates."""
        self.measurement.record.used()
        return self.measured

    @property
    def runs(self) -> GuardedRates:
        """The runs with what guards found in them."""
        lost = self.result.watched.lost_share
        return GuardedRates(self.result.rates, self.guard_findings, lost)

    @property
    def rate(self) -> Estimate:
        """Median rate with its interval, tok/s."""
        return self.result.rate

    @property
    def workload(self) -> str:
        """The workload's name."""
        return self.measured.workload.name

    def subject(self, what: str = "") -> Subject:
        """The subject of a claim about this reading."""
        name = f"{what or self.workload} {self.measured.ran.model}"
        return Subject(name, "live", self.measured.rows())


def settle(
    verdict: Verdict,
    record: Record,
    *,
    note: str = "",
    interrupted: bool = False,
) -> Verdict:
    """Note a verdict, and raise VerdictError unless it is a PASS.

    If Ctrl-C interrupted the measurement, the session ends too.
    """
    __tracebackhide__ = True
    record(verdict_row(verdict, note))
    if interrupted:
        raise KeyboardInterrupt
    conclude(verdict, record)
    return verdict


def conclude(verdict: Verdict, record: Record) -> None:
    """Raise VerdictError unless a verdict is a PASS, or is undecided and waits for the test's end.

    What a test asserts after an undecided assertion may be a FAIL, which must be seen.
    """
    __tracebackhide__ = True
    if verdict.outcome is Outcome.PASS:
        return
    error = VerdictError(verdict)
    if verdict.outcome is not Outcome.INCONCLUSIVE or not record.keeps(error):
        raise error


class NoRecord:
    """Keeps nothing: what measures outside a test has none."""

    def __call__(self, row: ReportRow) -> None:
        """Drop a row."""

    def measured(self, what: str) -> None:
        """Expect no assertion."""

    def used(self) -> None:
        """Expect none either."""

    def keeps(self, undecided: VerdictError) -> bool:  # noqa: ARG002  # as a record of a test takes
        """Whether the error waits: it does not."""
        return False


class RunningTest(NoRecord):
    """Keeps the rows of assertions that took no fixture for the test that runs."""

    def __call__(self, row: ReportRow) -> None:
        """Keep a row."""
        _UNTAKEN.set((*_UNTAKEN.get(), row))


def take_for_test() -> tuple[ReportRow, ...]:
    """The rows that were kept since the last call."""
    rows = _UNTAKEN.get()
    _UNTAKEN.set(())
    return rows


def require_kind(given: object, kinds: type | tuple[type, ...], example: str) -> None:
    """Refuse what an assertion cannot judge, such as a fixture that was not called.

    Args:
        given: what it was given.
        kinds: what it can judge.
        example: how it is written.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(given, kinds):
        return
    is_fixture = isinstance(given, FixtureValue) and callable(given)
    lack = "was not called" if is_fixture else "is not what it judges"
    raise ConfigError(
        f"{example.partition('(')[0]}: {shown(given, 80)} {lack}",
        why="an assertion is about one measurement",
        remedy=f"write {example}",
    )


def unknown_word(what: str, word: str, valid: Sequence[str]) -> ConfigError:
    """The error for an argument that is not one of the valid words."""
    return ConfigError(
        f"unknown {what} {shown(word, 80)}{suggest(word, valid)}",
        why="the claim is about it",
        remedy=f"use one of {listing(valid)}",
    )
