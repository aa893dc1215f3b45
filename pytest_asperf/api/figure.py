"""`Figure` and `assert_figure`: a limit for any quantity that was measured with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pytest_asperf.analysis.limit_verdict import judge_within, parse_percent
from pytest_asperf.analysis.stats.estimate import CHANGE, SHARE
from pytest_asperf.analysis.verdict import Verdict, guarded
from pytest_asperf.api.measurement_context import NoTruthValue, require_kind, settle
from pytest_asperf.config.table import number

if TYPE_CHECKING:
    from pytest_asperf.analysis.guards import GuardFinding
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.analysis.verdict import Subject
    from pytest_asperf.api.measurement_context import Record


@dataclass(frozen=True)
class Figure(NoTruthValue):
    """A measured quantity of which a limit can be claimed, with `assert_figure`.

    Attributes:
        subject: what it is of, and what ran.
        measured: the quantity with its interval, for what only shows it.
        record: takes the verdict.
        guard_findings: what guards found in the measurement.
    """

    subject: Subject
    measured: Estimate
    record: Record
    guard_findings: tuple[GuardFinding, ...] = ()

    example: ClassVar = "assert_figure(speculation.accepted(), at_least=0.4)"

    def __post_init__(self) -> None:
        self.record.measured(self.subject.name)

    def __str__(self) -> str:
        return self.measured.text()

    @property
    def estimate(self) -> Estimate:
        """The quantity with its interval."""
        self.record.used()
        return self.measured

    def __repr__(self) -> str:
        return f"<Figure {self.subject.name}: {self}>"


def assert_figure(
    figure: Figure,
    *,
    at_least: str | float | None = None,
    at_most: str | float | None = None,
) -> Verdict:
    """Claim that a measured quantity lies within limits.

    Args:
        figure: such as `speculation.accepted()`, `latency("pp512+tg128").prefill_share` or
            `ladder.efficiency("Q8_0")`.
        at_least: lower limit in the figure's own unit; of a share `"58%"` or a fraction.
        at_most: upper limit, likewise.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no figure, no limit, or one that is no number.
    """
    __tracebackhide__ = True
    require_kind(figure, Figure, Figure.example)
    unit = figure.estimate.unit
    low, high = _limit(at_least, unit, "at_least"), _limit(at_most, unit, "at_most")
    verdict = judge_within(figure.estimate, figure.subject, at_least=low, at_most=high)
    return settle(guarded(verdict, figure.guard_findings), figure.record)


def _limit(limit: object, unit: str, name: str) -> float | None:
    if limit is None:
        return None
    where = f"assert_figure: {name}"
    if unit in {CHANGE, SHARE}:
        return parse_percent(limit, where=where, negative=True)
    return number(f"a number{f' of {unit}' if unit else ''}").checked(limit, where)
