"""The `gate` fixture and `assert_no_regression`: two builds of an engine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_asperf.analysis.limit_verdict import parse_percent
from pytest_asperf.analysis.stats.ppl_sequential import parse_ppl_limit
from pytest_asperf.analysis.verdict import Outcome, Verdict, VerdictError
from pytest_asperf.api.throughput import _DEFAULT_WORKLOAD
from pytest_asperf.gate.cells import GateCell, GateCheck, parse_gated, shared_by
from pytest_asperf.gate.judge import GateLimits, judge_cells
from pytest_asperf.report.rows import verdict_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.api.measurement_context import MeasurementContext
    from pytest_asperf.config.spec import Build, ModelRef, Pairing
    from pytest_asperf.gate.cells import CellResult
    from pytest_asperf.measure.ab_speed import Budget


@dataclass(frozen=True)
class GatedWorkloads:
    """Workloads to compare the candidate build with the baseline on, for `assert_no_regression`.

    Nothing runs before the claim, because its limits decide how long to measure.

    Attributes:
        cells: what is decided.
    """

    cells: tuple[GateCell, ...]
    builds: tuple[Build, Build] = field(repr=False)
    budget: Budget = field(repr=False)
    measurement: MeasurementContext = field(repr=False)

    def judged(self, tolerance: float | None, ppl_below: float) -> Iterator[CellResult]:
        """Measure, or give what the same claim gave before.

        Args:
            tolerance: slowdown that is accepted, a fraction; None for the session's.
            ppl_below: ΔPPL to stay below, a fraction.

        Yields:
            Each result.
        """
        budget = self.budget if tolerance is None else replace(self.budget, tolerance=tolerance)
        limits = GateLimits(budget, ppl_below, shared_by(self.cells))
        return judge_cells(self.measurement.runner, self.cells, self.builds, limits)


@dataclass(frozen=True)
class Gate:
    """The `gate` fixture: call it with workloads, and give the result to `assert_no_regression`."""

    ref: ModelRef = field(repr=False)
    builds: tuple[Build, Build] = field(repr=False)
    budget: Budget = field(repr=False)
    measurement: MeasurementContext = field(repr=False)
    pairing: Pairing = field(repr=False)

    def __call__(self, *names: str) -> GatedWorkloads:
        """Name what is gated: workloads (`tg128`, `pp512`, `ttft512`, ...), `ppl`, `logits`, `sd`.

        All that is named together shares the error.

        Raises:
            ConfigError: no such workload.
        """
        gated = dict.fromkeys(
            parse_gated(name, where="gate") for name in names or (_DEFAULT_WORKLOAD,)
        )
        cells = tuple(
            GateCell(
                self.ref, workload, self.pairing if workload is GateCheck.SPECULATION else None
            )
            for workload in gated
        )
        return GatedWorkloads(cells, self.builds, self.budget, self.measurement)


#: From the best to the worst.
_SEVERITY = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.INVALID, Outcome.FAIL)


def assert_no_regression(
    gate: GatedWorkloads, *, tolerance: str | float | None = None, ppl_below: str | float = "1%"
) -> tuple[Verdict, ...]:
    """Claim that the candidate build is no worse than the baseline.

    Args:
        gate: what is gated.
        tolerance: slowdown that is accepted, `"5%"` or a fraction; `--asperf-tolerance` by default.
        ppl_below: ΔPPL of the same file that is accepted, where the gate has `ppl`.

    Returns:
        The verdict on each workload, all PASS.

    Raises:
        VerdictError: a verdict is not a PASS; the gravest is raised, all are noted.
        AsperfError: an arm died or refused, or the builds make different tokens.
    """
    __tracebackhide__ = True
    share = None
    if tolerance is not None:
        share = parse_percent(tolerance, where="assert_no_regression: tolerance")
    limit = parse_ppl_limit(ppl_below, where="assert_no_regression: ppl_below")
    verdicts: list[Verdict] = []
    interrupted = False
    for result in gate.judged(share, limit):
        verdicts.append(result.unbroken())
        gate.measurement.record(verdict_row(verdicts[-1], result.note))
        interrupted |= result.interrupted
    if interrupted:
        raise KeyboardInterrupt
    gravest = max(verdicts, key=lambda verdict: _SEVERITY.index(verdict.outcome))
    if gravest.outcome is not Outcome.PASS:
        raise VerdictError(gravest)
    return tuple(verdicts)
