"""What fixtures hand to a test: the measurement for its model, made when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_asperf.analysis.verdict import Subject
from pytest_asperf.config.engines import parse_engine, parse_level
from pytest_asperf.config.spec import EngineSettings, ModelRef, parse_workload
from pytest_asperf.errors import ConfigError, listing, shown
from pytest_asperf.gate.cells import GateCell, judge_workloads, require_workload, shared_by
from pytest_asperf.measure.engine_matching import matching_level, require_matched_bits, terms_of
from pytest_asperf.measure.validity import level_trips, require_valid, throughput_trips
from pytest_asperf.report.rows import level_row, memory_row, throughput_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pytest_asperf.analysis.guards import GuardFinding
    from pytest_asperf.analysis.metrics import Comparison
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.spec import Build, Pairing
    from pytest_asperf.gate.cells import JudgedCell
    from pytest_asperf.hardware.in_force import Ceiling
    from pytest_asperf.measure.ab_speed import ABResult, Budget
    from pytest_asperf.measure.engine_matching import Term
    from pytest_asperf.measure.engine_memory import MemoryResult
    from pytest_asperf.measure.results import (
        LadderResult,
        LevelResult,
        ThroughputResult,
    )
    from pytest_asperf.measure.runner import MeasurementRunner
    from pytest_asperf.report.rows import ReportRow

_DEFAULT_WORKLOAD = "tg128"


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """What every handle needs: where to measure, where to note it, what bounds it.

    Attributes:
        runner: measures.
        record: takes a row for the summary.
        ceiling: gives what bounds a TG reading; raises HardwareError where that is unknown.
        roof: gives what no TG reading can exceed, None where that is unknown.
        max_cv: coefficient of variation of a reading's runs that is accepted.
        budget: what pairs may cost.
    """

    runner: MeasurementRunner
    record: Callable[[ReportRow], None]
    ceiling: Callable[[ThroughputResult], Ceiling]
    roof: Callable[[ThroughputResult], Ceiling | None]
    max_cv: float
    budget: Budget

    def reading(self, result: ThroughputResult) -> Reading:
        """Note a measurement, and return it unless guards find it broken.

        Raises:
            MeasurementError: it is.
        """
        what = f"{result.workload.name} {result.ran.model}"
        guard_findings = throughput_trips(result, self.roof(result), self.max_cv)
        require_valid(what, guard_findings)
        self.record(
            throughput_row(
                result, "\n".join(f"{what}: {guard_finding}" for guard_finding in guard_findings)
            )
        )
        return Reading(result, self, guard_findings)


@dataclass(frozen=True)
class Model:
    """The `model` fixture: the model that a test's markers name.

    Attributes:
        ref: its address.
    """

    ref: ModelRef = field(repr=False)
    measurement: MeasurementContext = field(repr=False)

    @property
    def name(self) -> str:
        """Its name, without the level."""
        return self.ref.spec.name

    @property
    def level(self) -> str | None:
        """Its level; None where it is the file's own."""
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
class Reading:
    """One workload measured on one model.

    Attributes:
        result: raw runs and estimates.
        measurement: where it was measured.
        guard_findings: what guards say of it, none of it INVALID.
    """

    result: ThroughputResult = field(repr=False)
    measurement: MeasurementContext = field(repr=False)
    guard_findings: tuple[GuardFinding, ...] = ()

    @property
    def rate(self) -> Estimate:
        """Median rate with its interval, tok/s."""
        return self.result.rate

    @property
    def workload(self) -> str:
        """The workload's name."""
        return self.result.workload.name

    def subject(self, what: str = "") -> Subject:
        """Return what a claim about this reading is about."""
        name = f"{what or self.workload} {self.result.ran.model}"
        return Subject(name, "live", self.result.ran.rows())


@dataclass(frozen=True)
class Throughput:
    """The `throughput` fixture: call it with a workload's name, `pp512`, `tg128`, `tg128@d1024`."""

    ref: ModelRef = field(repr=False)
    measurement: MeasurementContext = field(repr=False)

    def __call__(self, workload: str = _DEFAULT_WORKLOAD) -> Reading:
        """Measure a workload.

        Raises:
            AsperfError: it cannot be measured.
        """
        parsed = parse_workload(workload, where="throughput")
        if parsed.kind == "ttft":
            raise ConfigError(
                f"throughput: {parsed.name} is a latency",
                why="a rate in tok/s is not what a user waits for",
                remedy=f'gate it, with gate("{parsed.name}")',
            )
        return self.measurement.reading(self.measurement.runner.throughput(self.ref, parsed))


@dataclass(frozen=True)
class MemoryReading:
    """The memory that a model takes with its context filled.

    Attributes:
        ref: the model.
        result: what the engine allocated.
        measurement: where it was measured.
    """

    ref: ModelRef = field(repr=False)
    result: MemoryResult = field(repr=False)
    measurement: MeasurementContext = field(repr=False)

    @property
    def kv_bytes(self) -> int:
        """What the KV cache takes, as the engine counts it."""
        return self.result.memory.kv


@dataclass(frozen=True)
class Memory:
    """The `memory` fixture: call it with the context to fill."""

    ref: ModelRef = field(repr=False)
    measurement: MeasurementContext = field(repr=False)

    def __call__(self, context: int) -> MemoryReading:
        """Fill the context, and read from the engine how much memory that takes.

        Args:
            context: tokens.

        Raises:
            AsperfError: it cannot be measured.
        """
        require_positions(context, where="memory: context")
        result = self.measurement.runner.memory(self.ref, context)
        self.measurement.record(memory_row(result))
        return MemoryReading(self.ref, result, self.measurement)

    @property
    def with_f16_cache(self) -> Memory:
        """The same model with a KV cache in F16, to compare a quantised one with."""
        return replace(self, ref=self.ref.with_kv(EngineSettings()))


def require_positions(context: object, *, where: str) -> None:
    """Refuse what is no length of a context.

    Raises:
        ConfigError: it is not.
    """
    if type(context) is not int or not 1 <= context < 2**31:
        raise ConfigError(
            f"{where}: {shown(context, 80)} is no number of tokens",
            why="the KV cache grows with the context",
            remedy="write a whole number from 1, such as 4096",
        )


@dataclass(frozen=True)
class Perplexity:
    """The `perplexity` fixture: one rung of a ladder against its baseline, on the same chunks.

    Attributes:
        level: name of the rung: the level of its weights, or the type of its KV cache.
        baseline: name of the baseline.
        guard_findings: what guards say of it, none of it INVALID.
    """

    result: LevelResult = field(repr=False)
    level: str
    baseline: str
    measurement: MeasurementContext = field(repr=False)
    guard_findings: tuple[GuardFinding, ...] = ()

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
        """Return what a claim about a metric of this level is about."""
        name = f"{metric} {self.result.ran.model} vs {self.baseline}"
        return Subject(name, "live", self.result.rows())


@dataclass(frozen=True)
class Ladder:
    """The `ladder` fixture: all rungs of a `quant_ladder` or `kv_ladder` marker, in its order.

    Attributes:
        base: what each rung is compared with.
        rungs: levels of the weights, or types of the KV cache, by name.
        joint: these and others that are scored in the same pass.
        at_most: chunks to score, where that is less than the session's number; None for those.
    """

    base: ModelRef = field(repr=False)
    rungs: Mapping[str, ModelRef]
    measurement: MeasurementContext = field(repr=False)
    joint: tuple[ModelRef, ...] = field(repr=False)
    at_most: int | None = field(default=None, repr=False)

    @property
    def levels(self) -> tuple[str, ...]:
        """The names of the rungs."""
        return tuple(self.rungs)

    @cached_property
    def result(self) -> LadderResult:
        """The scored rungs, and others that are scored in the same pass."""
        return self.measurement.runner.ladder(self.base, self.joint, self.at_most)

    def __getitem__(self, level: str) -> Perplexity:
        """A rung's PPL and KLD against the baseline.

        Raises:
            AsperfError: the rung could not be measured.
            MeasurementError: guards find it, or its baseline, broken.
            ConfigError: the ladder does not have it.
        """
        self.require(level)
        ref = self.rungs[level]
        if ref in self.result.failures:
            raise self.result.failures[ref]
        found = self.result.rungs[ref]
        baseline = self._baseline_of(ref)
        guard_findings, what = level_trips(found), f"{found.ran.model} vs {baseline}"
        told = [
            self.result.note,
            f"PPL on {found.text}",
            *(f"{what}: {guard_finding}" for guard_finding in guard_findings),
        ]
        self.measurement.record(level_row(found, baseline, "\n".join(filter(None, told))))
        require_valid(what, guard_findings)
        return Perplexity(found, level, baseline, self.measurement, guard_findings)

    def _baseline_of(self, ref: ModelRef) -> str:
        """Return what a rung's baseline is called, by that in which it differs."""
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
        """Measure a workload on every rung, their turns interleaved.

        Args:
            workload: its name.
            with_baseline: measure the baseline too; it comes first, as `baseline`.
        """
        parsed = parse_workload(workload, where="ladder")
        refs = {"baseline": self.base, **self.rungs} if with_baseline else self.rungs
        results = self.measurement.runner.throughputs(tuple(refs.values()), parsed)
        return {name: self.measurement.reading(results[ref]) for name, ref in refs.items()}

    def duel(self, level: str, other: str, workload: str, within: float) -> ABResult:
        """Time two rungs in pairs until they are shown to be alike, or not to be.

        Args:
            level: a rung; the candidate.
            other: another; the baseline.
            workload: its name.
            within: how far their costs may be apart either way, a fraction above 0.
        """
        parsed, runner = parse_workload(workload, where="ladder"), self.measurement.runner
        budget = replace(self.measurement.budget, tolerance=within, both_sides=True)
        return runner.engine_duel(self.rungs[other], runner, self.rungs[level], parsed, budget)

    def subject(self, what: str) -> Subject:
        """Return what a claim about the whole ladder is about."""
        ran = self[self.levels[0]].result.rows()
        return Subject(f"{what} {self.base.spec.name}", "live", ran)


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


@dataclass(frozen=True)
class EngineComparison:
    """Two engines held against each other.

    Attributes:
        duel: the pairs; the engine claimed to be faster is their candidate.
        engines: baseline and candidate.
        by: by how much it is claimed to be, a fraction.
        terms: what they have in common and what they have not.
    """

    duel: ABResult
    engines: tuple[Engine, Engine]
    by: float
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Engines:
    """The `engines` fixture: the test's model on any two engines, for `assert_faster`.

    Attributes:
        level: the level that the test's markers name, of whichever engine; None for F16.
    """

    level: str | None
    find: Callable[[Engine, str | None], ModelRef] = field(repr=False)
    runner: Callable[[Engine], MeasurementRunner] = field(repr=False)
    budget: Budget = field(repr=False)
    record: Callable[[ReportRow], None] = field(repr=False)

    def duel(
        self, faster: str, than: str, on: str, *, by: float, bits_within: float
    ) -> EngineComparison:
        """Run the pairs of two engines, or return what the same claim gave before.

        Args:
            faster: the engine claimed to be faster, `mlx`, with or without its level, `mlx:4bit`.
            than: the other, likewise.
            on: the workload.
            by: by how much, a fraction.
            bits_within: by how much bits per weight may differ, a fraction.

        Raises:
            ConfigError: no such engine, level or workload, the same engine twice, or a level that
                the other engine has no match for.
            ModelError: bits per weight differ by more, or an engine cannot have the model.
            EngineError: an engine is not installed, refused or died.
        """
        workload = parse_workload(on, where="assert_faster: on")
        (engine, level), (base_engine, base_level) = named = _named(faster), _named(than)
        if engine == base_engine:
            raise ConfigError(
                f"assert_faster: {engine} is named twice",
                why="two engines are compared; settings or builds of one are what gate compares",
                remedy="name two engines, as in "
                'assert_faster(engines, "mlx", than="llama_cpp", on="tg128")',
            )
        of_both = level or base_level or self.level or "F16"
        refs = [self._ref(engine, level, of_both) for engine, level in named]
        runners = [self.runner(engine) for engine, _ in named]
        model, base = (runner.locate(ref) for runner, ref in zip(runners, refs, strict=True))
        require_matched_bits((model, base), bits_within)
        # Faster by a half is a cost of two thirds.
        budget = replace(self.budget, tolerance=1 / (1 + by) - 1, one_limit=True)
        duel = runners[1].engine_duel(base.ref, runners[0], model.ref, workload, budget)
        terms = terms_of(
            (base, model),
            duel.ran,
            same_tokens=duel.same_tokens,
            source_sha256=runners[0].source_sha256(model.ref.spec),
        )
        return EngineComparison(duel, (base_engine, engine), by, terms)

    def _ref(self, engine: Engine, level: str | None, of_both: str) -> ModelRef:
        """Return the model on an engine, at the level named with it or at the nearest to it."""
        if level is None:
            level = matching_level(of_both, engine, where="assert_faster")
        return self.find(engine, level)


def _named(text: str) -> tuple[Engine, str | None]:
    """Read `mlx` or `mlx:4bit`."""
    name, colon, level = text.partition(":")
    engine = parse_engine(name, where="assert_faster")
    return engine, parse_level(level, where="assert_faster", engine=engine) if colon else None
