"""The `gate` fixture and `assert_no_regression`: two builds of an engine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.ppl_sequential import parse_ppl_limit
from pytest_asperf.analysis.verdict import (
    Outcome,
    Verdict,
    VerdictError,
    parse_percent,
)
from pytest_asperf.api.throughput import _DEFAULT_WORKLOAD
from pytest_asperf.gate.cells import GateCell, judge_workloads, require_workload, shared_by
from pytest_asperf.report.rows import verdict_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.api.measurement_context import MeasurementContext
    from pytest_asperf.config.spec import Build, ModelRef, Pairing
    from pytest_asperf.gate.cells import JudgedCell
    from pytest_asperf.measure.ab_speed import Budget


@dataclass(frozen=True)
class GatedWorkloads:
    """Workloads to compare the candidate build with the baseline on, for `assert_no_regression`.

    Nothing runs before the claim, because its limits decide how long to measure.

    Attributes:
        workloads: names of what is decided.
    """

    ref: ModelRef = field(repr=False)
    workloads: tuple[str, ...]
    builds: tuple[Build, Build] = field(repr=False)
    budget: Budget = field(repr=False)
    measurement: MeasurementContext = field(repr=False)
    pairing: Pairing = field(repr=False)

    def judged(self, tolerance: float | None, ppl_below: float) -> Iterator[JudgedCell]:
        """Measure, or give what the same claim gave before.

        Args:
            tolerance: slowdown that is accepted, a fraction; None for the session's.
            ppl_below: ΔPPL to stay below, a fraction.

        Yields:
            Each verdict.
        """
        budget = self.budget if tolerance is None else replace(self.budget, tolerance=tolerance)
        return judge_workloads(
            self.measurement.runner,
            self.ref,
            self.workloads,
            self.builds,
            budget=budget,
            max_ppl_delta=ppl_below,
            comparisons=shared_by(GateCell(self.ref, name) for name in self.workloads),
            pairing=self.pairing,
        )


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
        chosen = dict.fromkeys(names or (_DEFAULT_WORKLOAD,))
        workloads = tuple(require_workload(name, where="gate") for name in chosen)
        return GatedWorkloads(
            self.ref, workloads, self.builds, self.budget, self.measurement, self.pairing
        )


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
    for judged in gate.judged(share, limit):
        verdicts.append(judged.verdict)
        gate.measurement.record(verdict_row(judged.verdict, judged.note))
        interrupted |= judged.interrupted
    if interrupted:
        raise KeyboardInterrupt
    gravest = max(verdicts, key=lambda verdict: _SEVERITY.index(verdict.outcome))
    if gravest.outcome is not Outcome.PASS:
        raise VerdictError(gravest)
    return tuple(verdicts)
