"""The `latency` fixture and `assert_latency`: what a user waits for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from pytest_asperf.analysis.limit_verdict import LimitForm, judge_within
from pytest_asperf.analysis.stats.estimate import RATIO
from pytest_asperf.analysis.stats.intervals import unpaired_change_interval
from pytest_asperf.analysis.stats.percentiles import percentile_interval
from pytest_asperf.analysis.verdict import Subject
from pytest_asperf.api.figure import Figure
from pytest_asperf.api.measurement_context import (
    FixtureValue,
    NoTruthValue,
    Reading,
    require_kind,
    settle,
)
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.errors import ConfigError, shown
from pytest_asperf.measure.loads import LoadExperiment
from pytest_asperf.measure.runner import ComparedSide
from pytest_asperf.verdicts.readings import vetted

if TYPE_CHECKING:
    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.api.measurement_context import MeasurementContext
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.measure.results import ThroughputResult

_DEFAULT: Final = "ttft512"
_MEDIAN: Final = 50.0
_EXAMPLE: Final = 'assert_latency(latency("ttft512"), at_most="250 ms")'
_TIMES: Final = LimitForm(
    "assert_latency",
    "a time",
    {"us": 1e-3, "ms": 1.0, "s": 1e3},
    '"250 ms", "1.5 s" or 250.0, which is in ms',
)


@dataclass(frozen=True)
class Latency(FixtureValue):
    """The `latency` fixture: call it with `ttft512`, `pp512+tg128`, `tg128` or `load`."""

    ref: ModelRef
    measurement: MeasurementContext

    example: ClassVar = _EXAMPLE

    def __repr__(self) -> str:
        return f"<Latency of {self.ref.title}>"

    def __call__(self, workload: str = _DEFAULT) -> LatencyReading:
        """Measure a workload.

        Raises:
            AsperfError: it cannot be measured.
        """
        parsed = parse_workload(workload, where="latency", may_be_load=True)
        runner = self.measurement.runner
        if parsed.is_load:
            experiment = LoadExperiment(parsed, runner.plan.repetitions)
            result = runner.compare((ComparedSide(runner, (self.ref,)),), experiment)
        else:
            result = runner.throughput(self.ref, parsed)
        return LatencyReading(self.measurement.reading(result))


@dataclass(frozen=True)
class LatencyReading(NoTruthValue):
    """Times of one workload on one model: of whole runs, or of each token of a generation."""

    reading: Reading

    example: ClassVar = _EXAMPLE

    def __repr__(self) -> str:
        time = self.reading.measured.time if self._is_of_runs else self._percentile(_MEDIAN)
        return f"<LatencyReading {self.name}: {time.text()}>"

    @property
    def name(self) -> str:
        """What is timed, and the model."""
        result = self.reading.measured
        of_token = "time per token of " if result.workload.generates else ""
        return f"{of_token}{result.workload.name} {result.ran.model}"

    @property
    def time(self) -> Estimate:
        """The median time with its interval, ms: of a run, or of a token where `tg…` is timed."""
        return self.reading.result.time if self._is_of_runs else self.percentile(_MEDIAN)

    @property
    def _is_of_runs(self) -> bool:
        return not self.reading.measured.workload.generates

    @property
    def runs_ms(self) -> list[float]:
        """The time of each run, ms; of `tg…` its mean time of a token."""
        self.reading.measurement.record.used()
        return self._runs_ms

    @property
    def _runs_ms(self) -> list[float]:
        workload, times_ms = self.reading.measured.workload, self.reading.measured.times_ms
        per = workload.n_tokens if workload.kind == "tg" else 1
        return [ms / per for ms in times_ms]

    def percentile(self, percentile: float) -> Estimate:
        """The time in ms that a share of runs, or of tokens, does not exceed.

        Args:
            percentile: 95 for p95.

        Raises:
            ConfigError: no such percentile, or the engine does not time each token.
        """
        if not 0 < percentile < 100:
            raise ConfigError(
                f"percentile {shown(percentile)} is not between 0 and 100",
                why="it is the share of times that are not exceeded, in percent",
                remedy="write 95 for p95",
            )
        self.reading.measurement.record.used()
        return self._percentile(percentile)

    def _percentile(self, percentile: float) -> Estimate:
        result = self.reading.measured
        if result.workload.generates:
            return percentile_interval(self._tokens_ms(), percentile, unit="ms", counted="tokens")
        counted = "requests" if result.workload.users > 1 else result.counted
        return percentile_interval(result.samples_ms, percentile, unit="ms", counted=counted)

    def over(self, other: LatencyReading) -> Figure:
        """This time over another, such as that of a cold load over that of a warm one.

        The two were measured one after the other: a drift between them is in the figure.
        """
        ours, theirs = self.reading, other.reading
        change = unpaired_change_interval(other._runs_ms, self._runs_ms)
        ratio = replace(change.as_ratio(), unit=RATIO)
        subject = replace(ours.subject(), name=f"{self.name} / {other.name}")
        guard_findings = (*ours.guard_findings, *theirs.guard_findings)
        return Figure(subject, ratio, ours.measurement.record, guard_findings)

    @property
    def prefill_share(self) -> Figure:
        """The share of a whole request until its first output token.

        Raises:
            ConfigError: it is not a whole request.
        """
        return self._figure("share of prefill in", self._request.prefill_share)

    @property
    def effective_rate(self) -> Figure:
        """Output tokens of a whole request over its time, tok/s.

        Raises:
            ConfigError: it is not a whole request.
        """
        return self._figure("effective rate of", self._request.rate)

    @property
    def handover(self) -> Figure:
        """What a pipeline of several programs takes beside its prompt and its output, in ms.

        Raises:
            ConfigError: it is no such pipeline, or nothing was printed that it can be told from.
        """
        result = self.reading.measured
        found = [ns for run in result.runs if (ns := run.context.handover_ns) is not None]
        if len(found) < len(result.runs):
            raise ConfigError(
                f"{self.name}: no handover was measured",
                why="it is between the programs of a pipeline",
                remedy="measure a model with several `phases` that print the time of the prompt",
            )
        return self._figure("handover in", result.over_runs([ns / 1e6 for ns in found], "ms"))

    @property
    def peak_memory(self) -> Figure:
        """The peak resident memory of the engine's process, or of its largest program, in GiB."""
        result = self.reading.measured
        peaks = [run.peak_rss_bytes / 2**30 for run in result.runs]
        return self._figure("peak memory of", result.over_runs(peaks, "GiB"))

    def _figure(self, what: str, estimate: Estimate) -> Figure:
        reading = self.reading
        subject = reading.subject(f"{what} {reading.workload}")
        return Figure(subject, estimate, reading.measurement.record, reading.guard_findings)

    @property
    def _request(self) -> ThroughputResult:
        result = self.reading.measured
        if result.workload.kind != "request":
            raise ConfigError(
                f"{result.workload.name} is not a whole request",
                why="a share of prefill needs a prompt and what is generated after it",
                remedy='measure one, as in latency("pp512+tg128")',
            )
        return result

    def _tokens_ms(self) -> list[list[float]]:
        result = self.reading.measured
        steps = result.samples_ms
        if not all(steps):
            raise ConfigError(
                f"{result.ran.engine.release} does not time each token of {result.workload.name}",
                why="percentiles of tokens need the time of each",
                remedy="use the engine llama_cpp or mlx, or claim the rate with assert_throughput",
            )
        return steps


def assert_latency(
    latency: LatencyReading,
    *,
    at_most: str | float | None = None,
    at_least: str | float | None = None,
    percentile: float = _MEDIAN,
) -> Verdict:
    """Claim that a latency lies within limits.

    Of `ttft…`, `pp…` and `pp…+tg…` the times of whole runs are judged, of `tg…` those of tokens.

    Args:
        latency: a measurement, `latency("ttft512")`.
        at_most: upper limit, `"250 ms"`, `"1.5 s"` or a number of ms.
        at_least: lower limit, likewise.
        percentile: the time that this share does not exceed, in percent; the median by default.

    Raises:
        VerdictError: the verdict is not a PASS; INCONCLUSIVE where there are too few runs, or
            tokens, for that percentile.
        ConfigError: no measurement, no limit, or one that is no time.
    """
    __tracebackhide__ = True
    require_kind(latency, LatencyReading, _EXAMPLE)
    low, high = _TIMES.read(at_least, "at_least"), _TIMES.read(at_most, "at_most")
    reading = latency
    result = reading.reading.result
    is_median = percentile == _MEDIAN
    estimate = reading.time if is_median else reading.percentile(percentile)
    name = reading.name if is_median else f"p{percentile:g} of {reading.name}"
    subject = Subject(name, "live", result.rows())
    verdict = judge_within(estimate, subject, at_least=low, at_most=high)
    if is_median:  # a tail is what a spread is about
        runs = replace(reading.reading.runs, rates=reading.runs_ms, are_times=True)
        verdict = vetted(verdict, runs, (low, high))
    return settle(verdict, reading.reading.measurement.record)
