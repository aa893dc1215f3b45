"""The `perplexity` and `ladder` fixtures: quantizations against their baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from pytest_asperf.analysis import metrics
from pytest_asperf.analysis.stats.chunk_intervals import delta_ppl
from pytest_asperf.analysis.stats.estimate import DECISION_CONFIDENCE, SHARE
from pytest_asperf.analysis.stats.intervals import paired_change_interval, shared_confidence
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.api.energy import EnergyFigure, energy_of, metered_phase
from pytest_asperf.api.latency import Time, time_of
from pytest_asperf.api.measurement_context import (
    FixtureValue,
    MeasurementContext,
    ModelUnderTest,
    require_kind,
)
from pytest_asperf.api.memory import AllocatedMemory, memory_at
from pytest_asperf.api.model import size_of
from pytest_asperf.api.quantity import Figure, Found, LimitText, conclude
from pytest_asperf.api.scored import Scored, ScoredRung, change_of, quantity_of
from pytest_asperf.api.throughput import Rate, rate
from pytest_asperf.config.catalogue import at_level
from pytest_asperf.config.spec import ModelRef
from pytest_asperf.config.workload import DEFAULT_WORKLOAD, parse_workload
from pytest_asperf.errors import ConfigError, listing, shown
from pytest_asperf.measure.results import LadderResult, LevelResult, ThroughputResult


@dataclass(frozen=True)
class Quant(FixtureValue):
    """One quantization of a sweep, or its baseline; the `perplexity` fixture is the test's own.

    Everything is measured when it is compared.

    Attributes:
        name: its name in the sweep.
        ladder: the sweep that scores it.
    """

    name: str
    variant: ModelUnderTest
    ladder: Ladder

    example: ClassVar = 'assert perplexity.delta < "1%"'

    def __repr__(self) -> str:
        return f"<Quant {self.variant.title} vs {self.ladder.baseline_of(self.variant.ref)}>"

    @property
    def ppl(self) -> Scored:
        """PPL, as llama-perplexity defines it."""
        return quantity_of(self.scored, "PPL", "ppl", lambda result: result.nll)

    @property
    def delta(self) -> Scored:
        """The change of PPL from the baseline, a share, from the same chunks."""
        return change_of(self.scored)

    @property
    def kld(self) -> Scored:
        """The mean KLD of its distributions from the baseline's, nats."""
        return quantity_of(
            self.scored, "KLD", "mean", lambda result: [c.kld for c in result.chunks]
        )

    @property
    def same_top(self) -> Figure:
        """The share of tokens whose likeliest token is the baseline's too."""
        rung = self.scored

        def measure() -> Found:
            share = rung.result().comparison.same_top
            if share is None:
                raise _nothing_to_compare(self.name)
            return Found(share, rung.subject("same top token"), rung.guard_findings())

        return Figure(f"same top token {rung.title}", SHARE, rung.measurement.record, measure)

    def efficiency(self, workload: str = DEFAULT_WORKLOAD) -> Figure:
        """The speed-up over the baseline, as a factor, for each percent of PPL that it loses.

        The interval combines those of both, which share the error. It has no upper bound if no
        loss is shown. MeasurementError if it loses nothing.
        """
        rung, ladder = self.scored, self.ladder

        def measure() -> Found:
            confidence = shared_confidence(DECISION_CONFIDENCE, 2)
            rates = ladder.timed(workload, with_baseline=True)
            speed_up = paired_change_interval(
                rates[ladder.base].rates, rates[self.variant.ref].rates, confidence
            )
            scored = rung.result()
            base_nll = [chunk.nll for chunk in scored.baseline_chunks]
            loss = delta_ppl(base_nll, scored.nll, confidence)
            subject = rung.subject(f"speed-up in {workload} per % of PPL of")
            score = metrics.efficiency(speed_up.as_ratio(), loss)
            return Found(score, subject, rung.guard_findings())

        name = f"efficiency in {workload} {rung.title}"
        return Figure(name, metrics.EFFICIENCY_UNIT, rung.measurement.record, measure)

    @property
    def size(self) -> Figure:
        """The size of its file, GiB."""
        return size_of(self.variant)

    def throughput(self, workload: str = DEFAULT_WORKLOAD) -> Rate:
        """The rate of a workload, tok/s."""
        return rate(self.variant, workload)

    def latency(self, workload: str = "ttft512") -> Time:
        """The time of a workload, ms."""
        return time_of(self.variant, workload)

    def energy(self, workload: str = DEFAULT_WORKLOAD) -> EnergyFigure:
        """The energy of a workload's token, J/token."""
        return energy_of(self.variant, metered_phase(workload), "J/token")

    def memory(self, context: int) -> AllocatedMemory:
        """The memory with the context filled, GiB."""
        return memory_at(self.variant, context)

    @property
    def scored(self) -> ScoredRung:
        """Its scores.

        Raises:
            ConfigError: it is the baseline.
        """
        return self.ladder.scored(self.name, self.variant.ref)


@dataclass(frozen=True)
class Ladder(FixtureValue):
    """The `ladder` fixture: the quantizations of a `quant_ladder` or `kv_ladder` marker, in order.

    Attributes:
        base: the baseline of each.
        rungs: quantizations of the weights, or types of the KV cache, by name.
        joint: these and others that are scored in the same pass.
        at_most: the most chunks to score; None for the session's number.
    """

    base: ModelRef
    rungs: Mapping[str, ModelRef]
    measurement: MeasurementContext
    joint: tuple[ModelRef, ...]
    at_most: int | None = None

    example: ClassVar = 'assert ladder["Q8_0"].delta < "1%"'

    def __repr__(self) -> str:
        return f"<Ladder {', '.join(self.quants)} vs {self.base.title}>"

    @property
    def quants(self) -> tuple[str, ...]:
        """The names, in the marker's order, without the baseline."""
        return tuple(self.rungs)

    @property
    def title(self) -> str:
        """The model that the quantizations are of."""
        return self.base.spec.name

    def of(self, *quants: str) -> Ladder:
        """The same baseline with other quantizations of the weights, scored in this order.

        Raises:
            ConfigError: none, or one that is unknown, named twice or the baseline's.
        """
        where = "ladder.of"
        source = replace(self.base, level=None)
        refs = [at_level(source, quant, where=where) for quant in quants]
        if not refs or len({self.base, *refs}) <= len(refs):
            raise ConfigError(
                f"{where}{shown(quants, 80)}: no quantization, one twice, or the baseline",
                remedy=f"name each once, and not {self.base.level}",
            )
        rungs = {str(ref.level): ref for ref in refs}
        return replace(self, rungs=rungs, joint=tuple(refs))

    def __getitem__(self, name: str) -> Quant:
        """A quantization by its name; the baseline by its own, or as `"baseline"`.

        Raises:
            ConfigError: the sweep does not have it.
        """
        ref = self.rungs.get(name)
        if ref is None and name in {"baseline", *self._names_of_base()}:
            ref = self.base
        if ref is None:
            raise ConfigError(
                f"the quant sweep has no quantization {shown(name, 80)}",
                why="only what the test's marker names is measured",
                remedy=f"use one of {listing(self.quants)}, or add it to the marker",
            )
        return Quant(name, ModelUnderTest(ref, self.measurement), self)

    def scored(self, name: str, ref: ModelRef) -> ScoredRung:
        """The scores of a quantization against the baseline.

        Raises:
            ConfigError: it is the baseline.
        """
        if ref == self.base:
            raise _nothing_to_compare(name)
        is_other = ref.spec.name != self.title
        baseline = self.baseline_of(ref)
        title = f"{ref.title} vs {baseline}"
        score = partial(self._score, ref)
        return ScoredRung(title, baseline, self.measurement, score, is_other, self.at_most)

    def _score(self, ref: ModelRef) -> tuple[LevelResult, str]:
        result: LadderResult = self.measurement.runner.ladder(self.base, self.joint, self.at_most)
        if ref in result.failures:
            raise result.failures[ref]
        return result.rungs[ref], result.note

    def timed(
        self, workload: str, *, with_baseline: bool = False
    ) -> dict[ModelRef, ThroughputResult]:
        """A workload measured on every quantization, in run pairs."""
        parsed = parse_workload(workload, where="ladder")
        refs = (*([self.base] if with_baseline else []), *self.rungs.values())
        results = self.measurement.runner.throughputs(refs, parsed)
        for ref in refs:
            self.measurement.noted(results[ref])
        return results

    def baseline_of(self, ref: ModelRef) -> str:
        """The name of a quantization's baseline, by the property in which the two differ."""
        if self._differs_in_cache(ref):
            return "a cache that is not quantized" if ref.spec.engine == "mlx" else "an F16 cache"
        kv = self.base.spec.settings.kv_name
        return f"{self.base.level} KV {kv}" if kv else str(self.base.level)

    def _differs_in_cache(self, ref: ModelRef) -> bool:
        return ref.level == self.base.level and ref.spec.name == self.base.spec.name

    def _names_of_base(self) -> tuple[str | None, ...]:
        if all(map(self._differs_in_cache, self.rungs.values())):
            return (self.base.spec.settings.kv_name or "f16",)
        return (self.base.level,)


def _nothing_to_compare(name: str) -> ConfigError:
    return ConfigError(
        f"{name} is the baseline of the quant sweep: nothing to compare it with",
        why="ΔPPL and KLD are from the baseline",
        remedy="compare another quantization of the marker",
    )


def assert_ppl_delta(
    perplexity: Quant, *, below: LimitText | None = None, above: LimitText | None = None
) -> Verdict:
    """Assert that a quantization's ΔPPL against its baseline is below, or above, a limit.

    Args:
        perplexity: the fixture, or a quantization of a sweep.
        below: the limit, `"1%"` or a fraction.
        above: the limit that it must exceed instead.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: not exactly one limit was given, or it is not a percentage.
    """
    __tracebackhide__ = True
    given: object = perplexity
    example = 'ladder["Q8_0"]' if isinstance(given, Ladder) else "perplexity"
    require_kind(perplexity, Quant, f'assert_ppl_delta({example}, below="1%")')
    if (below is None) == (above is None):
        raise ConfigError(
            "assert_ppl_delta needs exactly one of below and above",
            remedy='write assert_ppl_delta(perplexity, below="1%")',
        )
    delta = perplexity.delta
    verdict = delta < below if below is not None else delta > (above or 0.0)
    conclude(verdict, delta.record)
    return verdict
