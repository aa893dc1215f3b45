"""The `perplexity` and `ladder` fixtures, and the claims about levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from pytest_asperf.analysis import metrics
from pytest_asperf.analysis.limit_verdict import judge_above, judge_below, parse_percent
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
from pytest_asperf.api.measurement_context import FixtureValue, Reading, settle, unknown_word
from pytest_asperf.config.catalogue import at_level
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.errors import ConfigError, listing, shown
from pytest_asperf.measure.ab_speed import SpeedExperiment
from pytest_asperf.measure.runner import ComparedSide
from pytest_asperf.measure.validity import level_trips, require_valid, twin_trips
from pytest_asperf.report.rows import level_row
from pytest_asperf.verdicts.readings import vetted_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_asperf.analysis.guards import GuardFinding
    from pytest_asperf.analysis.metrics import Comparison
    from pytest_asperf.api.measurement_context import MeasurementContext
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.measure.ab_speed import ABResult
    from pytest_asperf.measure.results import LadderResult, LevelResult


@dataclass(frozen=True)
class Perplexity(FixtureValue):
    """The `perplexity` fixture: one rung of a ladder against its baseline, on the same chunks.

    Attributes:
        level: name of the rung: the level of its weights, or the type of its KV cache.
        baseline: name of the baseline.
        guard_findings: what guards found in it, none of it INVALID.
    """

    result: LevelResult
    level: str
    baseline: str
    measurement: MeasurementContext
    guard_findings: tuple[GuardFinding, ...] = ()

    def __repr__(self) -> str:
        change = self.delta_ppl.text()
        return f"<Perplexity of {self.result.ran.model} vs {self.baseline}: {change}>"

    @property
    def comparison(self) -> Comparison:
        """All figures of the comparison, with intervals."""
        return self.result.comparison

    @property
    def ppl(self) -> float:
        """PPL of the level."""
        return self.comparison.ppl.value

    @property
    def delta_ppl(self) -> Estimate:
        """ΔPPL as a fraction, paired over the chunks."""
        return self.comparison.delta_ppl

    @property
    def kld(self) -> Estimate:
        """Mean KLD, nats."""
        if self.comparison.kld is None:
            raise ConfigError(
                f"{self.result.ran.model} was scored without its baseline's distribution",
                why="KLD compares two distributions of one pass",
                remedy="use a quant or quant_ladder marker with a baseline",
            )
        return self.comparison.kld.mean

    def subject(self, metric: str) -> Subject:
        """The subject of a claim about a metric of this level."""
        name = f"{metric} {self.result.ran.model} vs {self.baseline}"
        return Subject(name, "live", self.result.rows())


@dataclass(frozen=True)
class Ladder(FixtureValue):
    """The `ladder` fixture: all rungs of a `quant_ladder` or `kv_ladder` marker, in its order.

    Attributes:
        base: what each rung is compared with.
        rungs: levels of the weights, or types of the KV cache, by name.
        joint: these and others that are scored in the same pass.
        at_most: the most chunks to score; None for the session's number.
    """

    base: ModelRef
    rungs: Mapping[str, ModelRef]
    measurement: MeasurementContext
    joint: tuple[ModelRef, ...]
    at_most: int | None = None

    def __repr__(self) -> str:
        return f"<Ladder {', '.join(self.levels)} vs {self.base.title}>"

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of the rungs."""
        return tuple(self.rungs)

    def of(self, *levels: str) -> Ladder:
        """The same baseline with other levels of the weights, scored in this order.

        Raises:
            ConfigError: no level, or one that is unknown, named twice or the baseline's.
        """
        where = "ladder.of"
        source = replace(self.base, level=None)
        refs = [at_level(source, level, where=where) for level in levels]
        if not refs or len({self.base, *refs}) <= len(refs):
            raise ConfigError(
                f"{where}{shown(levels, 80)}: no level, one twice, or the baseline",
                why="each is compared with the baseline, and with the others",
                remedy=f"name each level once, and not {self.base.level}",
            )
        rungs = {str(ref.level): ref for ref in refs}
        return replace(self, rungs=rungs, joint=tuple(refs))

    @cached_property
    def result(self) -> LadderResult:
        """The scored rungs, and others that are scored in the same pass."""
        return self.measurement.runner.ladder(self.base, self.joint, self.at_most)

    def __getitem__(self, level: str) -> Perplexity:
        """A rung's PPL and KLD against the baseline.

        Raises:
            AsperfError: the rung could not be measured.
            MeasurementError: a guard found it, or its baseline, broken.
            ConfigError: the ladder does not have that rung.
        """
        self.require(level)
        ref = self.rungs[level]
        if ref in self.result.failures:
            raise self.result.failures[ref]
        result = self.result.rungs[ref]
        baseline = self._baseline_of(ref)
        guard_findings, what = level_trips(result), f"{result.ran.model} vs {baseline}"
        notes = [
            self.result.note,
            f"PPL on {result.text}",
            *(f"{what}: {guard_finding}" for guard_finding in guard_findings),
        ]
        self.measurement.record(level_row(result, baseline, "\n".join(filter(None, notes))))
        require_valid(what, guard_findings)
        return Perplexity(result, level, baseline, self.measurement, guard_findings)

    def _baseline_of(self, ref: ModelRef) -> str:
        """The name of a rung's baseline, by the property in which the two differ."""
        if ref.level == self.base.level and ref.spec.name == self.base.spec.name:
            return "a cache that is not quantised" if ref.spec.engine == "mlx" else "an F16 cache"
        kv = self.base.spec.settings.kv_name
        return f"{self.base.level} KV {kv}" if kv else str(self.base.level)

    def require(self, level: str) -> None:
        """Refuse a rung that the marker does not name."""
        if level not in self.levels:
            raise ConfigError(
                f"the ladder has no level {shown(level, 80)}",
                why="only what the test's marker names is measured",
                remedy=f"use one of {listing(self.levels)}, or add it to the marker",
            )

    def readings(self, workload: str, *, with_baseline: bool = False) -> dict[str, Reading]:
        """A workload measured on every rung, in turns, by the rung's name.

        Args:
            workload: its name.
            with_baseline: measure the baseline too; it comes first, as `baseline`.
        """
        parsed = parse_workload(workload, where="ladder")
        refs = {"baseline": self.base, **self.rungs} if with_baseline else self.rungs
        results = self.measurement.runner.throughputs(tuple(refs.values()), parsed)
        return {name: self.measurement.reading(results[ref]) for name, ref in refs.items()}

    def compare(self, level: str, other: str, workload: str, within: float) -> ABResult:
        """Time two rungs in pairs until they are shown to be alike, or not to be.

        Args:
            level: a rung; the candidate.
            other: another; the baseline.
            workload: its name.
            within: how far their costs may be apart either way, a fraction above 0.
        """
        parsed, runner = parse_workload(workload, where="ladder"), self.measurement.runner
        budget = replace(self.measurement.budget, tolerance=within, both_sides=True)
        sides = tuple(ComparedSide(runner, (self.rungs[name],)) for name in (other, level))
        return runner.compare(sides, SpeedExperiment((parsed,), budget))

    def subject(self, what: str) -> Subject:
        """The subject of a claim about the whole ladder."""
        ran = self[self.levels[0]].result.rows()
        return Subject(f"{what} {self.base.spec.name}", "live", ran)


Direction = Literal["rising", "falling"]

#: Quantities of a ladder by name, for `assert_monotonic` and `assert_pareto_optimal`; any
#: workload's name stands for its rate.
_SCORES = {"ppl": metrics.PPL, "kld": metrics.KLD, "size": metrics.SIZE}

#: What to do where two levels that are compared are one.
OTHER_LEVELS: Final = "name levels that differ, or the file that holds each"


def assert_ppl_delta(
    perplexity: Perplexity,
    *,
    below: str | float | None = None,
    above: str | float | None = None,
) -> Verdict:
    """Claim that a level's ΔPPL against its baseline is below, or above, a limit.

    Args:
        perplexity: the fixture, or a level of a ladder.
        below: the limit, `"1%"` or a fraction.
        above: the same, for a claim that a level is worse than that.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: not exactly one limit was given, or it is not a percentage.
    """
    __tracebackhide__ = True
    if (below is None) == (above is None):
        raise ConfigError(
            "assert_ppl_delta needs exactly one of below and above",
            why="the limit is the claim",
            remedy='write assert_ppl_delta(perplexity, below="1%")',
        )
    subject = perplexity.subject("ΔPPL")
    if below is not None:
        limit = parse_percent(below, where="assert_ppl_delta: below", negative=True)
        verdict = judge_below(perplexity.delta_ppl, limit, subject)
    else:
        limit = parse_percent(above, where="assert_ppl_delta: above", negative=True)
        verdict = judge_above(perplexity.delta_ppl, limit, subject)
    return settle(
        guarded(verdict, perplexity.guard_findings, remedy=OTHER_LEVELS),
        perplexity.measurement.record,
    )


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
        subject = series.subject(quantity)
        guard_findings = _scored_trips(series, [quantity])
    else:
        readings = list(series)
        labels = [f"{r.workload} {r.result.ran.model}" for r in readings]
        details = tuple(
            f"{label} from {reading.rate.n} {reading.rate.counted}"
            for label, reading in zip(labels, readings, strict=True)
        )
        _require_two(labels)
        measurement = readings[0].measurement
        rates = [reading.result.rates for reading in readings]
        differences = neighbour_estimates(rates, unpaired_change_interval)
        subject = Subject("rate", "live", readings[0].result.ran.rows())
    verdict = judge_monotonic(labels, differences, subject, direction=direction)
    verdict = guarded(replace(verdict, details=details), guard_findings, remedy=OTHER_LEVELS)
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
    subject = ladder.subject(f"{level} of")
    chosen = [metric_of(objective) for objective in objectives]
    verdict = judge_pareto(differences, chosen, subject)
    guard_findings = _scored_trips(ladder, objectives)
    return settle(guarded(verdict, guard_findings, remedy=OTHER_LEVELS), ladder.measurement.record)


def _require_two(labels: Sequence[str]) -> None:
    if len(labels) < 2:
        raise ConfigError(
            f"nothing to compare: {len(labels)} of at least two",
            why="an order needs two members",
            remedy="name more levels in the marker, or give more readings",
        )


def metric_of(quantity: str) -> metrics.Metric:
    """The metric of a ladder's quantity: `ppl`, `kld`, `size` or a workload."""
    if quantity in _SCORES:
        return _SCORES[quantity]
    if quantity[:2] in {"tg", "pp"}:
        return metrics.TG if quantity.startswith("tg") else metrics.PP
    raise unknown_word("quantity", quantity, (*_SCORES, "tg128", "pp512"))


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
        sizes = [ladder[name].result.size_bytes for name in (level, other)]
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
