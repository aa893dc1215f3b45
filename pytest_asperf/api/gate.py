"""The `gate` fixture, and `assert_no_regression`: a candidate build against a baseline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from pytest_asperf.analysis.limit_verdict import parse_percent, parse_tolerance
from pytest_asperf.analysis.verdict import Outcome, Verdict
from pytest_asperf.api.latency import Time, time_of
from pytest_asperf.api.measurement_context import (
    FixtureValue,
    MeasurementContext,
    ModelUnderTest,
    NoTruthValue,
    require_kind,
)
from pytest_asperf.api.quantity import LimitText, conclude
from pytest_asperf.api.throughput import Rate, rate
from pytest_asperf.config.settings import MOST_KLD
from pytest_asperf.config.spec import Build, ModelRef, Pairing
from pytest_asperf.config.workload import DEFAULT_WORKLOAD
from pytest_asperf.errors import ConfigError, shown
from pytest_asperf.gate.cells import CellResult, GateCell, GateCheck, parse_gated, shared_by
from pytest_asperf.gate.judge import GateLimits, judge_cells
from pytest_asperf.measure.ab_speed import Budget

_EXAMPLE: Final = 'assert_no_regression(gate("tg128", "pp512"), tolerance="5%")'


@dataclass(frozen=True)
class GatedWorkloads(NoTruthValue):
    """Workloads on which the candidate build is compared with the baseline, for an assertion.

    Nothing runs before the assertion, because its limits decide how long to measure.

    Attributes:
        cells: the checks: models and workloads.
    """

    cells: tuple[GateCell, ...]
    builds: tuple[Build, Build]
    budget: Budget
    measurement: MeasurementContext

    example: ClassVar = _EXAMPLE

    def __repr__(self) -> str:
        cells = ", ".join(f"{cell.name} of {cell.what}" for cell in self.cells)
        return f"<GatedWorkloads {cells}: {_versus(self.builds)}>"

    def judged(
        self, budget: Budget, ppl_below: float, kld_below: float | None
    ) -> Iterator[CellResult]:
        """The result of each check, measured unless an earlier assertion measured it.

        Args:
            budget: the limits for times.
            ppl_below: ΔPPL to stay below, a fraction.
            kld_below: mean KLD to stay below, nats; None for the usual limit.
        """
        limits = GateLimits(budget, ppl_below, kld_below, shared_by(self.cells))
        return judge_cells(self.measurement.runner, self.cells, self.builds, limits)


@dataclass(frozen=True)
class Gate(FixtureValue):
    """The `gate` fixture: call it with workloads, and give the result to `assert_no_regression`."""

    ref: ModelRef
    builds: tuple[Build, Build]
    budget: Budget
    measurement: MeasurementContext
    pairing: Pairing

    example: ClassVar = _EXAMPLE

    def __repr__(self) -> str:
        return f"<Gate on {self.ref.title}: {_versus(self.builds)}>"

    def __call__(self, *names: str) -> GatedWorkloads:
        """Workloads (`tg128`, `pp512`, ...), `ppl`, `kld`, `logits` or `sd`, to be gated.

        The error rates apply to all checks that are named together.

        Raises:
            ConfigError: no such workload.
        """
        gated = dict.fromkeys(
            parse_gated(name, where="gate") for name in names or (DEFAULT_WORKLOAD,)
        )
        cells = tuple(
            GateCell(
                self.ref, workload, self.pairing if workload == GateCheck.SPECULATION else None
            )
            for workload in gated
        )
        made = GatedWorkloads(cells, self.builds, self.budget, self.measurement)
        self.measurement.record.measured(repr(made))
        return made

    @property
    def baseline(self) -> GatedBuild:
        """The baseline by itself, to compare with the candidate."""
        return GatedBuild(ModelUnderTest(self.ref, self.measurement, self.builds[0]))

    @property
    def candidate(self) -> GatedBuild:
        """The candidate by itself, to compare with the baseline."""
        return GatedBuild(ModelUnderTest(self.ref, self.measurement, self.builds[1]))


@dataclass(frozen=True)
class GatedBuild(FixtureValue):
    """One build of a gate, whose quantities are compared with those of the other build."""

    variant: ModelUnderTest

    example: ClassVar = (
        'assert gate.candidate.throughput("tg128") / gate.baseline.throughput("tg128") >= 1.1'
    )

    def __repr__(self) -> str:
        return f"<GatedBuild {self.variant.title}>"

    def throughput(self, workload: str = DEFAULT_WORKLOAD) -> Rate:
        """The rate of a workload, tok/s."""
        return rate(self.variant, workload)

    def latency(self, workload: str = "ttft512") -> Time:
        """The time of a workload, ms."""
        return time_of(self.variant, workload)


def _versus(builds: tuple[Build, Build]) -> str:
    baseline, candidate = builds
    return f"{candidate.name} vs {baseline.name}"


#: From the best to the worst.
_SEVERITY = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.INVALID, Outcome.FAIL)


def assert_no_regression(
    gate: GatedWorkloads,
    *,
    tolerance: LimitText | None = None,
    faster_by: LimitText | None = None,
    ppl_below: LimitText = "1%",
    kld_below: float | None = None,
) -> tuple[Verdict, ...]:
    """Assert that the candidate build is no worse than the baseline, or that it is faster.

    If it is to be faster, the median run pair is judged, and not the total time. Values without a
    time (`ppl`, `kld`, `logits`) have the same limits in both cases.

    Args:
        gate: the workloads, from `gate(...)`.
        tolerance: accepted slowdown, `"5%"` or a fraction; by default that of the session.
        faster_by: smallest gain on every timed workload, `"5%"` or a fraction of the baseline's
            rate, instead of a tolerance.
        ppl_below: accepted ΔPPL of the same file, if `ppl` is gated.
        kld_below: accepted mean KLD of the candidate from the baseline, nats, if `kld` is gated; by
            default 0.01, or twice the drift of the baseline's own logits, up to 0.05.

    Returns:
        The verdict on each workload, all PASS.

    Raises:
        VerdictError: a verdict is not a PASS; all are noted, and the gravest is raised.
        ConfigError: a limit is not usable, or both a tolerance and a gain are given.
        AsperfError: a build died or rejected a request, or the builds make different tokens.
    """
    __tracebackhide__ = True
    require_kind(gate, GatedWorkloads, _EXAMPLE)
    budget, where = gate.budget, "assert_no_regression"
    if tolerance is not None and faster_by is not None:
        raise ConfigError(
            f"{where}: tolerance={shown(tolerance)} and faster_by={shown(faster_by)}",
            why="a candidate that must be faster may not be slower",
            remedy="leave one of them out",
        )
    if tolerance is not None:
        share = parse_tolerance(tolerance, where=f"{where}: tolerance")
        budget = replace(budget, tolerance=share)
    if faster_by is not None:
        budget = budget.faster_by(parse_percent(faster_by, where=f"{where}: faster_by"))
    of_ppl = parse_tolerance(ppl_below, where=f"{where}: ppl_below")
    if kld_below is not None and not _is_above_zero(kld_below):
        raise ConfigError(
            f"{where}: kld_below={shown(kld_below)} is no limit",
            why="a mean KLD is a number of nats above 0",
            remedy=f"write kld_below={MOST_KLD:g}",
        )
    return _settled(gate, gate.judged(budget, of_ppl, kld_below))


def _is_above_zero(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def _settled(gate: GatedWorkloads, results: Iterator[CellResult]) -> tuple[Verdict, ...]:
    """The verdicts, all noted; the gravest is raised unless all are PASS."""
    __tracebackhide__ = True
    verdicts: list[Verdict] = []
    interrupted = False
    for result in results:
        verdicts.append(result.unbroken())
        base, candidate = (build.name for build in gate.builds)
        judged = replace(
            verdicts[-1],
            note=result.note,
            subject_brief=f"gate {result.cell.name} {result.cell.what}",
            elapsed_s=result.elapsed_s,
            builds=(base, candidate),
        )
        gate.measurement.record(judged)
        interrupted |= result.interrupted
    if interrupted:
        raise KeyboardInterrupt
    conclude(
        max(verdicts, key=lambda verdict: _SEVERITY.index(verdict.outcome)), gate.measurement.record
    )
    return tuple(verdicts)
