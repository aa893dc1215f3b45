"""`assert_monotonic` and `assert_pareto_optimal`: the order of quantizations, or of rates."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from pytest_asperf.analysis import metrics
from pytest_asperf.analysis.combined_verdict import judge_monotonic, judge_pareto
from pytest_asperf.analysis.stats.chunk_intervals import chunk_difference_interval, delta_ppl
from pytest_asperf.analysis.stats.estimate import DECISION_CONFIDENCE, Estimate
from pytest_asperf.analysis.stats.intervals import (
    neighbour_estimates,
    paired_change_interval,
    unpaired_change_interval,
)
from pytest_asperf.analysis.stats.quantiles import shared_confidence
from pytest_asperf.analysis.verdict import Subject, Verdict, guarded
from pytest_asperf.api.ladder import Ladder
from pytest_asperf.api.measurement_context import NoTruthValue, require_kind, unknown_word
from pytest_asperf.api.quantity import settle
from pytest_asperf.api.throughput import Rate
from pytest_asperf.errors import ConfigError
from pytest_asperf.measure.validity import twin_trips
from pytest_asperf.verdicts.readings import vetted_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.analysis.guards import GuardFinding

_RATES: Final = 'assert_monotonic([throughput("tg64"), throughput("tg64@d1024")])'
#: Quantities of a ladder by name; any workload's name stands for its rate.
_SCORES: Final = {"ppl": metrics.PPL, "kld": metrics.KLD, "size": metrics.SIZE}
Direction = Literal["rising", "falling"]


def assert_monotonic(
    series: Ladder | Sequence[Rate],
    quantity: str | None = None,
    *,
    direction: Direction = "rising",
) -> Verdict:
    """Assert that a quantity rises, or falls, from each quantization or rate to the next.

    Args:
        series: a ladder in its marker's order, or rates in the asserted order.
        quantity: of a ladder, `ppl`, `kld`, `size` or a workload such as `tg128`.
        direction: `rising` or `falling` along the order.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no such quantity, or fewer than two to compare.
        AsperfError: a quantization could not be measured.
    """
    __tracebackhide__ = True
    if direction not in {"rising", "falling"}:
        raise unknown_word("direction", str(direction), ("rising", "falling"))
    if isinstance(series, Ladder):
        labels, quantity = list(series.quants), quantity or "kld"
        _require_two(labels)
        differences = _ladder_differences(series, quantity)
        subject = _subject(series, quantity, [quantity])
        verdict = judge_monotonic(labels, differences, subject, direction=direction)
        findings = _scored_trips(series, [quantity])
        return settle(guarded(verdict, findings), series.measurement.record)
    given: object = series
    if isinstance(given, NoTruthValue):  # which has no members
        require_kind(given, Ladder, _RATES)
    rates = list(series)
    for rate in rates:
        require_kind(rate, Rate, _RATES)
    labels = [rate.name for rate in rates]
    _require_two(labels)
    found = [rate.find() for rate in rates]
    runs = [one.runs for one in found if one.runs]
    differences = neighbour_estimates([one.rates for one in runs], unpaired_change_interval)
    subject = Subject("rate", "live", found[0].subject.ran)
    verdict = judge_monotonic(labels, differences, subject, direction=direction)
    details = tuple(
        f"{label} from {one.estimate.basis}" for label, one in zip(labels, found, strict=True)
    )
    return settle(vetted_order(replace(verdict, details=details), runs), rates[0].record)


def assert_pareto_optimal(
    ladder: Ladder,
    level: str,
    objectives: Sequence[str] = ("size", "tg128", "ppl"),
) -> Verdict:
    """Assert that a quantization is on the Pareto front: no other is as good and in one better.

    Args:
        ladder: the quantizations.
        level: the one that the assertion is about.
        objectives: of `ppl`, `kld`, `size` and workloads such as `tg128`.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no such quantization or objective, or nothing to compare with.
        AsperfError: a quantization could not be measured.
    """
    __tracebackhide__ = True
    require_kind(ladder, Ladder, 'assert_pareto_optimal(ladder, "Q4_K_M")')
    ladder[level]  # an error if there is none
    _require_two(ladder.quants)
    if not objectives:
        raise ConfigError(
            "no objective to compare levels by",
            why="with none, every quantization is as good as any other",
            remedy="name some of ppl, kld, size and workloads such as tg128",
        )
    others = [other for other in ladder.quants if other != level]
    confidence = shared_confidence(DECISION_CONFIDENCE, len(others) * len(objectives))
    differences = {
        other: [_difference(ladder, o, level, other, confidence) for o in objectives]
        for other in others
    }
    chosen = [metric_of(objective) for objective in objectives]
    subject = _subject(ladder, f"{level} of", objectives)
    verdict = judge_pareto(differences, chosen, subject)
    guard_findings = _scored_trips(ladder, objectives)
    return settle(guarded(verdict, guard_findings), ladder.measurement.record)


def _require_two(labels: Sequence[str]) -> None:
    if len(labels) < 2:
        raise ConfigError(
            f"nothing to compare: {len(labels)} of at least two",
            why="an order needs two members",
            remedy="name more quantizations in the marker, or give more rates",
        )


def metric_of(quantity: str) -> metrics.Metric:
    """The metric of a ladder's quantity: `ppl`, `kld`, `size` or a workload."""
    if quantity in _SCORES:
        return _SCORES[quantity]
    if quantity[:2] in {"tg", "pp"}:
        return metrics.TG if quantity.startswith("tg") else metrics.PP
    raise unknown_word("quantity", quantity, (*_SCORES, "tg128", "pp512"))


def _is_scored(quantity: str) -> bool:
    return metric_of(quantity) in {metrics.PPL, metrics.KLD}


def _subject(ladder: Ladder, what: str, quantities: Sequence[str]) -> Subject:
    """The subject of an assertion about the whole ladder, with what ran for these quantities."""
    first = ladder.quants[0]
    timed = [name for name in quantities if name not in _SCORES]
    if any(map(_is_scored, quantities)):
        ran = ladder[first].scored.result().rows()
    elif timed:
        ran = ladder.timed(timed[0])[ladder.rungs[first]].ran.rows()
    else:
        found = [ladder[name].size.find() for name in ladder.quants]
        ran = tuple(row for one in found for row in one.subject.ran)
    return Subject(f"{what} {ladder.title}", "live", ran)


def _scored_trips(ladder: Ladder, quantities: Sequence[str]) -> tuple[GuardFinding, ...]:
    """The guard findings on the quantizations, if they are compared by their scores."""
    if not any(map(_is_scored, quantities)):
        return ()
    rungs = [ladder[name].scored for name in ladder.quants]
    own = (finding for rung in rungs for finding in rung.guard_findings())
    return (*own, *twin_trips([rung.result() for rung in rungs]))


def _ladder_differences(ladder: Ladder, quantity: str) -> tuple[Estimate, ...]:
    confidence = shared_confidence(DECISION_CONFIDENCE, len(ladder.quants) - 1)
    neighbours = pairwise(ladder.quants)
    return tuple(_difference(ladder, quantity, a, b, confidence) for a, b in neighbours)


def _difference(
    ladder: Ladder, quantity: str, level: str, other: str, confidence: float
) -> Estimate:
    """By how much `other` exceeds `level` in a quantity, from paired observations."""
    metric = metric_of(quantity)
    refs = ladder.rungs[level], ladder.rungs[other]
    if metric is metrics.SIZE:
        sizes = [ladder.measurement.runner.locate(ref).size_bytes for ref in refs]
        return Estimate.exact((sizes[1] - sizes[0]) / 1e6, metrics.SIZE.unit)
    if metric in {metrics.TG, metrics.PP}:
        timed = ladder.timed(quantity)
        return paired_change_interval(timed[refs[0]].rates, timed[refs[1]].rates, confidence)
    a, b = (ladder[name].scored.result().chunks for name in (level, other))
    if metric is metrics.PPL:
        return delta_ppl([c.nll for c in a], [c.nll for c in b], confidence)
    return chunk_difference_interval(
        [c.kld for c in a], [c.kld for c in b], confidence, unit=metrics.KLD.unit
    )
