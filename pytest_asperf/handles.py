"""What fixtures hand to a test: the measurement for its model, made when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_asperf.errors import ConfigError, listing
from pytest_asperf.measure.vetting import require_valid, throughput_trips
from pytest_asperf.report.rows import level_row, throughput_row
from pytest_asperf.spec import parse_workload
from pytest_asperf.verdict import Subject

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_asperf.guards import Trip
    from pytest_asperf.hardware.in_force import Ceiling
    from pytest_asperf.measure.gate import Budget, Duel
    from pytest_asperf.measure.lab import Lab
    from pytest_asperf.measure.ppl_gate import PplDuel
    from pytest_asperf.measure.results import LadderResult, LevelResult, ThroughputResult
    from pytest_asperf.metrics import Comparison
    from pytest_asperf.report.rows import Row
    from pytest_asperf.spec import Build, LadderRequest, ModelRef, Workload
    from pytest_asperf.stats.estimate import Estimate

_DEFAULT_WORKLOAD = "tg128"


@dataclass(frozen=True, slots=True)
class Bench:
    """What every handle needs: where to measure, where to note it, what bounds it.

    Attributes:
        lab: measures.
        record: takes a row for the summary.
        ceiling: gives what bounds a TG reading; raises HardwareError where that is unknown.
        roof: gives what no TG reading can exceed, None where that is unknown.
        max_cv: coefficient of variation of a reading's runs that is accepted.
    """

    lab: Lab
    record: Callable[[Row], None]
    ceiling: Callable[[ThroughputResult], Ceiling]
    roof: Callable[[ThroughputResult], Ceiling | None]
    max_cv: float

    def reading(self, result: ThroughputResult) -> Reading:
        """Note a measurement, and return it unless guards find it broken.

        Raises:
            MeasurementError: it is.
        """
        what = f"{result.workload.name} {result.ran.model}"
        trips = throughput_trips(result, self.roof(result), self.max_cv)
        require_valid(what, trips)
        self.record(throughput_row(result, "\n".join(f"{what}: {trip}" for trip in trips)))
        return Reading(result, self, trips)


@dataclass(frozen=True)
class Model:
    """The `model` fixture: the model that a test's markers name.

    Attributes:
        ref: its address.
    """

    ref: ModelRef = field(repr=False)
    bench: Bench = field(repr=False)

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
        return self.bench.lab.locate(self.ref).path


@dataclass(frozen=True)
class Reading:
    """One workload measured on one model.

    Attributes:
        result: raw runs and estimates.
        bench: where it was measured.
        trips: what guards say of it, none of it INVALID.
    """

    result: ThroughputResult = field(repr=False)
    bench: Bench = field(repr=False)
    trips: tuple[Trip, ...] = ()

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
    bench: Bench = field(repr=False)

    def __call__(self, workload: str = _DEFAULT_WORKLOAD) -> Reading:
        """Measure a workload.

        Raises:
            AsperfError: it cannot be measured; four parts say why.
        """
        parsed = parse_workload(workload, where="throughput")
        if parsed.kind == "ttft":
            raise ConfigError(
                f"throughput: {parsed.name} is a latency",
                why="a rate in tok/s is not what a user waits for",
                remedy=f'gate it, with gate("{parsed.name}")',
            )
        return self.bench.reading(self.bench.lab.throughput(self.ref, parsed))


@dataclass(frozen=True)
class Perplexity:
    """The `perplexity` fixture: one level against the baseline, on the same chunks."""

    result: LevelResult = field(repr=False)
    baseline: str
    bench: Bench = field(repr=False)

    @property
    def level(self) -> str:
        """The level."""
        return self.result.level

    @property
    def comparison(self) -> Comparison:
        """Everything that was compared, with intervals."""
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
        return Subject(name, "live", self.result.ran.rows())


@dataclass(frozen=True)
class Ladder:
    """The `ladder` fixture: all levels of a `quant_ladder` marker, in its order.

    Attributes:
        levels: as the marker names them.
        request: what they are, in the same order.
        joint: that, with others that are scored in the same pass.
    """

    levels: tuple[str, ...]
    request: LadderRequest = field(repr=False)
    joint: LadderRequest = field(repr=False)
    bench: Bench = field(repr=False)

    @property
    def baseline(self) -> str:
        """The baseline's level."""
        return str(self.request.base.level)

    @cached_property
    def result(self) -> LadderResult:
        """The scored levels, and others that are scored in the same pass."""
        return self.bench.lab.ladder(self.joint)

    def __getitem__(self, level: str) -> Perplexity:
        """Return a level's PPL and KLD against the baseline.

        Raises:
            AsperfError: the level could not be measured.
            ConfigError: the ladder does not have it.
        """
        self.require(level)
        ref = self._refs[level]
        if ref in self.result.failures:
            raise self.result.failures[ref]
        found = self.result.levels[ref]
        self.bench.record(level_row(found, self.baseline, self.result.note))
        return Perplexity(found, self.baseline, self.bench)

    def require(self, level: str) -> None:
        """Refuse a level that the marker does not name."""
        if level not in self.levels:
            raise ConfigError(
                f"the ladder has no level {level!r}",
                why="only the levels of the quant_ladder marker are measured",
                remedy=f"use one of {listing(self.levels)}, or add it to the marker",
            )

    def readings(self, workload: str) -> dict[str, Reading]:
        """Measure a workload on every level, their turns interleaved."""
        parsed = parse_workload(workload, where="ladder")
        results = self.bench.lab.throughputs(self.request.rungs, parsed)
        return {level: self.bench.reading(results[ref]) for level, ref in self._refs.items()}

    @property
    def _refs(self) -> dict[str, ModelRef]:
        return dict(zip(self.levels, self.request.rungs, strict=True))

    def subject(self, what: str) -> Subject:
        """Return what a claim about the whole ladder is about."""
        ran = self[self.levels[0]].result.ran.rows()
        return Subject(f"{what} {self.request.base.spec.name}", "live", ran)


@dataclass(frozen=True)
class Gate:
    """What is gated: the candidate build against the baseline.

    Nothing runs until limits are claimed, because they decide how long to measure.

    Attributes:
        workloads: what is timed.
        has_ppl: whether PPL of the same file is compared too.
    """

    ref: ModelRef = field(repr=False)
    workloads: tuple[Workload, ...]
    has_ppl: bool
    builds: tuple[Build, Build] = field(repr=False)
    budget: Budget = field(repr=False)
    bench: Bench = field(repr=False)

    @property
    def comparisons(self) -> int:
        """How many tests share the error."""
        return len(self.workloads) + self.has_ppl

    def duel(self, tolerance: float | None) -> Duel:
        """Run the pairs, or return what the same claim gave before.

        Args:
            tolerance: slowdown that is accepted, a fraction; None for the session's.
        """
        budget = self.budget if tolerance is None else replace(self.budget, tolerance=tolerance)
        lab = self.bench.lab
        return lab.duel(self.ref, self.workloads, self.builds, budget, self.comparisons)

    def ppl_duel(self, limit: float) -> PplDuel:
        """Score the chunks, or return what the same claim gave before.

        Args:
            limit: ΔPPL to stay below, a fraction.
        """
        lab = self.bench.lab
        return lab.ppl_duel(self.ref, self.builds, limit, self.budget, self.comparisons)


@dataclass(frozen=True)
class Gates:
    """The `gate` fixture: call it with what to gate."""

    ref: ModelRef = field(repr=False)
    builds: tuple[Build, Build] = field(repr=False)
    budget: Budget = field(repr=False)
    bench: Bench = field(repr=False)

    def __call__(self, *names: str) -> Gate:
        """Name what is gated: workloads (`tg128`, `pp512`, `ttft512`, ...) and `ppl`.

        All that is named together shares the error.
        """
        chosen = dict.fromkeys(names or (_DEFAULT_WORKLOAD,))
        workloads = tuple(parse_workload(n, where="gate") for n in chosen if n != "ppl")
        return Gate(self.ref, workloads, "ppl" in chosen, self.builds, self.budget, self.bench)
