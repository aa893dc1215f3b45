"""The `perplexity` and `ladder` fixtures, and the claims about levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

from pytest_asperf.analysis import metrics
from pytest_asperf.analysis.limit_verdict import judge_above, judge_below, parse_percent
from pytest_asperf.analysis.stats.chunk_intervals import delta_ppl
from pytest_asperf.analysis.stats.estimate import DECISION_CONFIDENCE, number_text
from pytest_asperf.analysis.stats.intervals import paired_change_interval
from pytest_asperf.analysis.stats.quantiles import shared_confidence
from pytest_asperf.analysis.verdict import Subject, Verdict, guarded
from pytest_asperf.api.figure import Figure
from pytest_asperf.api.measurement_context import (
    FixtureValue,
    Reading,
    require_kind,
    settle,
    unknown_word,
)
from pytest_asperf.config.catalogue import at_level
from pytest_asperf.config.workload import DEFAULT_WORKLOAD, parse_workload
from pytest_asperf.errors import ConfigError, listing, shown
from pytest_asperf.measure.runner import ComparedSide
from pytest_asperf.measure.validity import level_trips, require_valid
from pytest_asperf.report.rows import level_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_asperf.analysis.guards import GuardFinding
    from pytest_asperf.analysis.metrics import Comparison
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.api.measurement_context import MeasurementContext
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.measure.model_locator import LocatedModel
    from pytest_asperf.measure.results import LadderResult, LevelResult

#: Quantities of a ladder by name, for `assert_monotonic` and `assert_pareto_optimal`; any
#: workload's name stands for its rate.
SCORES: Final = {"ppl": metrics.PPL, "kld": metrics.KLD, "size": metrics.SIZE}


@dataclass(frozen=True)
class Perplexity(FixtureValue):
    """The `perplexity` fixture: one rung of a ladder against its baseline, on the same chunks.

    Attributes:
        measured: the scores, for what only shows or combines them.
        level: name of the rung: the level of its weights, or the type of its KV cache.
        baseline: name of the baseline.
        guard_findings: what guards found in it, none of it INVALID.
    """

    measured: LevelResult
    level: str
    baseline: str
    measurement: MeasurementContext
    guard_findings: tuple[GuardFinding, ...] = ()

    example: ClassVar = 'assert_ppl_delta(perplexity, below="1%")'

    def __repr__(self) -> str:
        change = self.measured.comparison.delta_ppl.text()
        return f"<Perplexity of {self.measured.ran.model} vs {self.baseline}: {change}>"

    @property
    def result(self) -> LevelResult:
        """The scores."""
        self.measurement.record.used()
        return self.measured

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
        name = f"{metric} {self.measured.ran.model} vs {self.baseline}"
        return Subject(name, "live", self.measured.rows())


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

    example: ClassVar = 'assert_ppl_delta(ladder["Q8_0"], below="1%")'

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
        what, is_other_model = f"{result.ran.model} vs {baseline}", ref.spec.name != self.title
        guard_findings = level_trips(result, is_other_model=is_other_model)
        notes = [
            self.result.note,
            *(f"{what}: {guard_finding}" for guard_finding in guard_findings),
        ]
        self.measurement.record(level_row(result, baseline, "\n".join(filter(None, notes))))
        require_valid(what, guard_findings)
        return Perplexity(result, level, baseline, self.measurement, guard_findings)

    def _baseline_of(self, ref: ModelRef) -> str:
        """The name of a rung's baseline, by the property in which the two differ."""
        if self._differs_in_cache(ref):
            return "a cache that is not quantised" if ref.spec.engine == "mlx" else "an F16 cache"
        kv = self.base.spec.settings.kv_name
        return f"{self.base.level} KV {kv}" if kv else str(self.base.level)

    def _differs_in_cache(self, ref: ModelRef) -> bool:
        return ref.level == self.base.level and ref.spec.name == self.base.spec.name

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

    def size(self, level: str) -> float:
        """The size of a rung's file, or of the baseline's, in MB; nothing is measured."""
        (ref,) = self.side(level, None).refs
        return self.measurement.runner.locate(ref).size_bytes / 1e6

    def efficiency(self, level: str, workload: str = DEFAULT_WORKLOAD) -> Figure:
        """Speed-up over the baseline, as a factor, for each percent of PPL that a rung loses.

        The interval combines those of both, which share the error. It has no upper bound where no
        loss is shown.

        Raises:
            MeasurementError: the rung loses nothing, so that there is nothing to divide by.
        """
        confidence = shared_confidence(DECISION_CONFIDENCE, 2)
        readings = self.readings(workload, with_baseline=True)
        base, own = (readings[name].measured.rates for name in ("baseline", level))
        scored = self[level]
        base_nll = [chunk.nll for chunk in scored.measured.baseline_chunks]
        speed_up = paired_change_interval(base, own, confidence).as_ratio()
        loss = delta_ppl(base_nll, scored.measured.nll, confidence)
        subject = scored.subject(f"speed-up in {workload} per % of PPL of")
        score = metrics.efficiency(speed_up, loss)
        return Figure(subject, score, self.measurement.record, scored.guard_findings)

    @property
    def title(self) -> str:
        """The model that the rungs are of."""
        return self.base.spec.name

    def side(self, name: str, on: str | None) -> ComparedSide:
        """One side of a comparison: a rung; or the baseline by its level or type, or `baseline`.

        Args:
            name: its name.
            on: the workload, tg128 by default.
        """
        workload = parse_workload(on or DEFAULT_WORKLOAD, where="ladder")
        base_names = {"baseline", self.base.level}
        if all(map(self._differs_in_cache, self.rungs.values())):
            base_names = {"baseline", self.base.spec.settings.kv_name or "f16"}
        if name in self.rungs or name not in base_names:
            self.require(name)
        ref = self.rungs.get(name, self.base)
        return ComparedSide(self.measurement.runner, (ref,), workload=workload)

    def located(self, level: str) -> LocatedModel:
        """A rung's file, made if need be; nothing is measured."""
        return self.measurement.runner.locate(self.rungs[level])

    def files(self, *levels: str) -> tuple[tuple[str, str], ...]:
        """The files of rungs, as rows of what ran."""
        models = map(self.located, levels)
        return tuple(("file", f"{m.ref.title}, sha256 {m.sha256[:12]}") for m in models)

    def subject(self, what: str, quantities: Sequence[str]) -> Subject:
        """The subject of a claim about the whole ladder, with what ran for these quantities."""
        first = self.levels[0]
        timed = [name for name in quantities if name not in SCORES]
        if {"ppl", "kld"} & set(quantities):
            ran = self[first].result.rows()
        elif timed:
            ran = self.readings(timed[0])[first].result.ran.rows()
        else:
            ran = self.files(*self.levels)
        return Subject(f"{what} {self.title}", "live", ran)


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
    is_ladder = isinstance(perplexity, Ladder)
    require_kind(perplexity, Perplexity, Ladder.example if is_ladder else Perplexity.example)
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
    verdict = replace(verdict, brief=f"{number_text(perplexity.ppl, 4)}, {verdict.brief}")
    return settle(
        guarded(verdict, perplexity.guard_findings),
        perplexity.measurement.record,
    )


def metric_of(quantity: str) -> metrics.Metric:
    """The metric of a ladder's quantity: `ppl`, `kld`, `size` or a workload."""
    if quantity in SCORES:
        return SCORES[quantity]
    if quantity[:2] in {"tg", "pp"}:
        return metrics.TG if quantity.startswith("tg") else metrics.PP
    raise unknown_word("quantity", quantity, (*SCORES, "tg128", "pp512"))
