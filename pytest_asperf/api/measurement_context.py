"""The context in which every fixture value measures, and that writes into a test's record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Protocol, TypeVar

from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.config.spec import Build, ModelRef
from pytest_asperf.config.workload import DEFAULT_WORKLOAD, Workload
from pytest_asperf.errors import ConfigError, listing, no_truth_value, shown, suggest
from pytest_asperf.measure.ab_speed import Budget
from pytest_asperf.measure.results import ThroughputResult
from pytest_asperf.measure.runner import ComparedSide, MeasurementRunner
from pytest_asperf.measure.validity import BandwidthBounds, require_valid, throughput_trips
from pytest_asperf.records.kinds import AnyRecord
from pytest_asperf.records.taken import throughput_record
from pytest_asperf.report.verdict_text import VerdictError

Measured = TypeVar("Measured")


class Record(Protocol):
    """The record of one test's measurements and assertions."""

    def __call__(self, row: AnyRecord, *, instead_of: AnyRecord | None = None) -> None:
        """Note a measurement, or a verdict, which may replace one that was noted."""

    def measured(self, what: str) -> None:
        """Note that something was measured, of which an assertion is expected."""

    def used(self) -> None:
        """Note that the test has read a number, which its own code may judge."""

    def compared(self, verdict: Verdict) -> None:
        """Note a comparison's verdict, which the test is expected to assert."""

    def asserted(self, verdict: Verdict) -> None:
        """Note that the test has asserted a verdict, or read its outcome."""

    def raised(self, error: VerdictError) -> None:
        """Note a verdict that is raised, which must end the test or be read."""

    def keeps(self, undecided: Verdict) -> bool:
        """True if the test goes on, and its end raises the verdict."""


class FindVariant(Protocol):
    """Finds another variant of a test's model, or another model."""

    def __call__(
        self, *, model: str | None, engine: str | None, quant: str | None
    ) -> ModelUnderTest:
        """The variant; unnamed parts are as in the test's markers.

        Raises:
            ConfigError: no such model, engine or quantization, or none that matches.
        """


def _no_other(*, model: str | None, engine: str | None, quant: str | None) -> NoReturn:
    raise RuntimeError(f"no test looks up {model} on {engine} at {quant}")


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """The context that every fixture value needs to measure, and to note its results."""

    runner: MeasurementRunner
    record: Record
    bounds: BandwidthBounds
    max_cv: float  #: the accepted coefficient of variation of a measurement's runs
    budget: Budget
    skip: Callable[[str], NoReturn]  #: skips the test for a reason
    find: FindVariant = _no_other  #: finds another variant, for comparisons
    #: skips the test if the session measures nothing
    require_live: Callable[[], object] = lambda: None
    #: has something called when the test is over
    at_end: Callable[[Callable[[], object]], object] = lambda _: None

    def noted(self, result: ThroughputResult) -> tuple[GuardFinding, ...]:
        """Note a measurement; gives the guards' findings, or raises one that breaks it."""
        what = f"{result.workload.name} {result.ran.model}"
        guard_findings = throughput_trips(result, self.bounds.peak(result), self.max_cv)
        require_valid(what, guard_findings, result.watched)
        self.record(throughput_record(result, guard_findings))
        return guard_findings


@dataclass(frozen=True)
class ModelUnderTest:
    """A model as it is measured: its quantization, settings and engine, and in gates its build."""

    ref: ModelRef
    measurement: MeasurementContext = field(compare=False)  #: the function that measures it
    build: Build | None = None  #: the build, None for the installed one
    #: whether its quantization was chosen as the nearest to another engine's
    is_matched: bool = False

    @property
    def title(self) -> str:
        """The model, and the build if it is not the installed one."""
        return f"{self.ref.title} in {self.build.name}" if self.build else self.ref.title

    @property
    def engine(self) -> str:
        """The engine that it runs on."""
        return self.measurement.runner.build.engine

    def side(self, workload: Workload | None = None) -> ComparedSide:
        """The value as one variant of a comparison."""
        return ComparedSide(self.measurement.runner, (self.ref,), self.build, workload)

    def other(
        self, model: str | None = None, engine: str | None = None, quant: str | None = None
    ) -> ModelUnderTest:
        """The variant with the named differences; itself without any."""
        if model is engine is quant is None:
            return self
        return self.measurement.find(model=model, engine=engine, quant=quant)


def told_apart(one: ModelUnderTest, other: ModelUnderTest) -> tuple[tuple[str, str], str]:
    """The names of two variants by their differences, and their common part."""
    if one.build and other.build and one.ref == other.ref:
        return (one.build.name, other.build.name), f" of {one.ref.title}"
    if one.engine != other.engine:
        return (one.engine, other.engine), f" of {one.ref.title} / {other.ref.title}"
    if one.ref.spec.name == other.ref.spec.name:
        if one.ref.level != other.ref.level:
            return (str(one.ref.level), str(other.ref.level)), f" of {one.ref.spec.name}"
        kv = (one.ref.spec.settings.kv_name or "f16", other.ref.spec.settings.kv_name or "f16")
        if kv[0] != kv[1]:
            return kv, f" of {one.ref.label}"
        if names := _differing_settings(one.ref, other.ref):
            return names, f" of {one.title}"
    return (one.title, other.title), ""


def _differing_settings(one: ModelRef, other: ModelRef) -> tuple[str, str] | None:
    """The settings in which two models differ, of each; None if there is none."""
    first, second = (ref.spec.settings.as_texts() for ref in (one, other))
    keys = [key for key in first | second if first.get(key) != second.get(key)]

    def text(settings: dict[str, str]) -> str:
        return ", ".join(
            f"{key}={settings[key]}" if key in settings else f"default {key}" for key in keys
        )

    return (text(first), text(second)) if keys else None


class NoTruthValue:
    """A fixture or a measurement: `assert throughput("tg128")` is an error."""

    example: ClassVar[str]  #: an assertion on it
    needs_use: ClassVar = True  #: whether a test that has it and measures nothing is an error

    def __bool__(self) -> NoReturn:
        raise no_truth_value(shown(self, 80), self.example)

    if not TYPE_CHECKING:  # a type checker finds this slip by itself

        def _refuse(self, other: object) -> NoReturn:
            verb = "was not called" if callable(self) else "is no quantity"
            raise ConfigError(
                f"{shown(self, 80)} {verb}: it cannot be compared with {shown(other, 80)}",
                why="only a measured quantity has a value to compare",
                remedy=f"compare one of its quantities, as in {self.example}",
            )

        __lt__ = __le__ = __gt__ = __ge__ = __truediv__ = __sub__ = _refuse


class FixtureValue(NoTruthValue):
    """The value of a fixture, which Hypothesis shows by its repr and not by its fields."""

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001  # its protocol
        printer.text(repr(self))


@dataclass(frozen=True)
class OfWorkload(FixtureValue, ABC, Generic[Measured]):
    """A fixture that is called with a workload's name, and gives one quantity of it."""

    variant: ModelUnderTest

    default: ClassVar[str] = DEFAULT_WORKLOAD  #: the workload, if none is named

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.variant.title}>"

    def __call__(
        self,
        workload: str | None = None,
        *,
        model: str | None = None,
        engine: str | None = None,
        quant: str | None = None,
    ) -> Measured:
        """The quantity of a workload.

        Args:
            workload: its name.
            model: another model than the test's, by its spec.
            engine: another engine; the quantization is the nearest that it has.
            quant: another quantization.

        Raises:
            ConfigError: no such workload, or none of this fixture; no such model, engine or
                quantization.
        """
        name = self.default if workload is None else workload
        return self._quantity(self.variant.other(model, engine, quant), name)

    @abstractmethod
    def _quantity(self, variant: ModelUnderTest, workload: str) -> Measured:
        """The quantity of a variant."""


class NoRecord:
    """Keeps nothing: measurements outside of a test have no record."""

    def __call__(self, *_: Any, **__: Any) -> None:
        """Drop it, and expect nothing of it."""

    measured = used = compared = asserted = raised = __call__

    def keeps(self, undecided: Verdict) -> bool:  # noqa: ARG002  # as for a test's record
        """True if the verdict waits: it does not."""
        return False


def require_kind(given: object, kinds: type | tuple[type, ...], example: str) -> None:
    """Reject a value that an assertion cannot judge, such as a fixture that was not called."""
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
        remedy=f"use one of {listing(valid)}",
    )
