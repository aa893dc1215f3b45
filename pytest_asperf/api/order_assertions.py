"""`assert_monotonic` and `assert_pareto_optimal`: claims about the order of levels or readings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from pytest_asperf.analysis import metrics
from pytest_asperf.analysis.order_verdict import judge_monotonic, judge_pareto
from pytest_asperf.analysis.stats.chunk_intervals import chunk_difference_interval, delta_ppl
from pytest_asperf.analysis.stats.estimate import DECISION_CONFIDENCE, Estimate
from pytest_asperf.analysis.stats.intervals import (
    neighbour_estimates,
    paired_change_interval,
    unpaired_change_interval,
)
from pytest_asperf.analysis.stats.quantiles import shared_confidence
from pytest_asperf.analysis.verdict import Subject, Verdict, guarded
from pytest_asperf.api.ladder import Ladder, metric_of
from pytest_asperf.api.measurement_context import (
    NoTruthValue,
    Reading,
    require_kind,
    settle,
    unknown_word,
)
from pytest_asperf.errors import ConfigError
from pytest_asperf.measure.validity import twin_trips
from pytest_asperf.verdicts.readings import vetted_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.analysis.guards import GuardFinding

_READINGS: Final = 'assert_monotonic([throughput("tg64"), throughput("tg64@d1024")])'
Direction = Literal["rising", "falling"]


def assert_monotonic(
    series: Ladder | Sequence[Reading],
    quantity: str | None = None,
    *,
    direction: Direction = "rising",
) -> Verdict:
    """Claim that a quantity rises, or falls, from each level or reading to the next.

    Args:
        series: a ladder in its marker's order, or readings in the claimed order.
        quantity: of a ladder, `ppl`, `kld`, `size` or a workload such as `tg128`.
        direction: `rising` or `falling` along the order.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no such quantity, or fewer than two to compare.
        AsperfError: a level could not be measured.
    """
    __tracebackhide__ = True
    if direction not in {"rising", "falling"}:
        raise unknown_word("direction", str(direction), ("rising", "falling"))
    details: tuple[str, ...] = ()
    readings: list[Reading] = []
    guard_findings: tuple[GuardFinding, ...] = ()
    if isinstance(series, Ladder):
        labels, measurement = list(series.levels), series.measurement
        _require_two(labels)
        quantity = quantity or "kld"
        differences = _ladder_differences(series, quantity)
        subject = series.subject(quantity, [quantity])
        guard_findings = _scored_trips(series, [quantity])
    else:
        is_one = isinstance(series, NoTruthValue)  # which has no members
        readings = [series] if is_one else list(series)  # type: ignore[list-item]  # refused below
        for reading in readings:
            require_kind(reading, Reading, _READINGS)
        labels = [f"{r.workload} {r.result.ran.model}" for r in readings]
        details = tuple(
            f"{label} from {reading.rate.basis}"
            for label, reading in zip(labels, readings, strict=True)
        )
        _require_two(labels)
        measurement = readings[0].measurement
        rates = [reading.result.rates for reading in readings]
        differences = neighbour_estimates(rates, unpaired_change_interval)
        subject = Subject("rate", "live", readings[0].result.ran.rows())
    verdict = judge_monotonic(labels, differences, subject, direction=direction)
    verdict = guarded(replace(verdict, details=details), guard_findings)
    return settle(vetted_order(verdict, [reading.runs for reading in readings]), measurement.record)


def assert_pareto_optimal(
    ladder: Ladder,
    level: str,
    objectives: Sequence[str] = ("size", "tg128", "ppl"),
) -> Verdict:
    """Claim that a level is on the Pareto front: none is as good in all objectives, better in one.

    Args:
        ladder: the levels.
        level: the one the claim is about.
        objectives: of `ppl`, `kld`, `size` and workloads such as `tg128`.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no such level or objective, or nothing to compare with.
        AsperfError: a level could not be measured.
    """
    __tracebackhide__ = True
    require_kind(ladder, Ladder, 'assert_pareto_optimal(ladder, "Q4_K_M")')
    ladder.require(level)
    _require_two(ladder.levels)
    if not objectives:
        raise ConfigError(
            "no objective to compare levels by",
            why="with none, every level is as good as any other",
            remedy="name some of ppl, kld, size and workloads such as tg128",
        )
    others = [other for other in ladder.levels if other != level]
    confidence = shared_confidence(DECISION_CONFIDENCE, len(others) * len(objectives))
    differences = {
        other: [_difference(ladder, o, level, other, confidence) for o in objectives]
        for other in others
    }
    chosen = [metric_of(objective) for objective in objectives]
    subject = ladder.subject(f"{level} of", objectives)
    verdict = judge_pareto(differences, chosen, subject)
    guard_findings = _scored_trips(ladder, objectives)
    return settle(guarded(verdict, guard_findings), ladder.measurement.record)


def _require_two(labels: Sequence[str]) -> None:
    if len(labels) < 2:
        raise ConfigError(
            f"nothing to compare: {len(labels)} of at least two",
            why="an order needs two members",
            remedy="name more levels in the marker, or give more readings",
        )


def _scored_trips(ladder: Ladder, quantities: Sequence[str]) -> tuple[GuardFinding, ...]:
    """What guards found in the levels, if they are compared by their scores."""
    if not {metric_of(quantity) for quantity in quantities} & {metrics.PPL, metrics.KLD}:
        return ()
    levels = [ladder[name] for name in ladder.levels]
    own = (guard_finding for level in levels for guard_finding in level.guard_findings)
    return (*own, *twin_trips([level.result for level in levels]))


def _ladder_differences(ladder: Ladder, quantity: str) -> tuple[Estimate, ...]:
    confidence = shared_confidence(DECISION_CONFIDENCE, len(ladder.levels) - 1)
    neighbours = zip(ladder.levels, ladder.levels[1:], strict=False)
    return tuple(_difference(ladder, quantity, a, b, confidence) for a, b in neighbours)


def _difference(
    ladder: Ladder, quantity: str, level: str, other: str, confidence: float
) -> Estimate:
    """By how much `other` exceeds `level` in a quantity, from paired observations."""
    metric = metric_of(quantity)
    if metric is metrics.SIZE:
        sizes = [ladder.located(name).size_bytes for name in (level, other)]
        return Estimate.exact((sizes[1] - sizes[0]) / 1e6, metrics.SIZE.unit)
    if metric in {metrics.TG, metrics.PP}:
        readings = ladder.readings(quantity)
        rates = [readings[name].result.rates for name in (level, other)]
        return paired_change_interval(rates[0], rates[1], confidence)
    a, b = (ladder[name].result.chunks for name in (level, other))
    if metric is metrics.PPL:
        return delta_ppl([c.nll for c in a], [c.nll for c in b], confidence)
    return chunk_difference_interval(
        [c.kld for c in a], [c.kld for c in b], confidence, unit=metrics.KLD.unit
    )
