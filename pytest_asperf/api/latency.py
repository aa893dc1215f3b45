"""The `latency` fixture: times that a user waits for."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

from pytest_asperf.analysis.crossover import MOST_COMPARISONS, Compared, CrossoverSearch
from pytest_asperf.analysis.stats.estimate import RATIO, SHARE, Estimate, counted_text
from pytest_asperf.analysis.stats.percentiles import percentile_interval
from pytest_asperf.analysis.verdict import Outcome, Subject
from pytest_asperf.api.measurement_context import ModelUnderTest, OfWorkload
from pytest_asperf.api.quantity import Figure, Found
from pytest_asperf.api.timed import CvFigure, TimedQuantity, WorkloadRuns, spread_of
from pytest_asperf.config.workload import Workload, parse_workload
from pytest_asperf.errors import ConfigError, shown
from pytest_asperf.measure.ab_speed import SpeedExperiment
from pytest_asperf.measure.results import ThroughputResult
from pytest_asperf.verdicts.paired import ran_rows

_MEDIAN: Final = 50.0


@dataclass(frozen=True, eq=False, repr=False)
class Time(TimedQuantity):
    """The median time of one workload, ms: of a whole run, or of each token of a generation."""

    example: ClassVar = 'assert latency("ttft512") <= "250 ms"'

    @property
    def cv(self) -> CvFigure:
        """The coefficient of variation of its runs, a share."""
        return spread_of(self)

    @property
    def p95(self) -> Figure:
        """The time that 95 % of runs, or tokens, do not exceed."""
        return self.percentile(95)

    @property
    def p99(self) -> Figure:
        """The time that 99 % of runs, or tokens, do not exceed."""
        return self.percentile(99)

    def percentile(self, percentile: float) -> Figure:
        """The time that a share of runs, or of tokens, does not exceed, ms.

        Args:
            percentile: 99.9 for p99.9.

        Raises:
            ConfigError: no such percentile; when it is compared, an engine that does not time each
                token.
        """
        if not 1 <= percentile < 100:
            raise ConfigError(
                f"percentile {shown(percentile)} is not between 1 and 100",
                why="it is the share of times that are not exceeded, in percent",
                remedy="write 95 for p95",
            )
        what = f"p{percentile:g} of{_of_token(self.workload)}"
        figure = self._figure(what, "ms", partial(_percentile, percentile=percentile))
        # A spread shows itself in p95 and p99.
        return replace(figure, measure=lambda: replace(figure.measure(), guard_findings=()))

    @property
    def ttft(self) -> Figure:
        """The time of a whole request until its first output token, ms."""
        self._require_request()
        return self._figure("TTFT in", "ms", lambda r: r.over_runs(_firsts_ms(r), "ms"), _firsts_ms)

    @property
    def tpot(self) -> Figure:
        """The time of each output token of a whole request after the first, ms."""
        self._require_request()
        return self._figure("TPOT in", "ms", lambda r: r.over_runs(_later_ms(r), "ms"), _later_ms)

    @property
    def prefill_share(self) -> Figure:
        """The share of a request's time before its first output token."""
        self._require_request()
        return self._figure("share of prefill in", SHARE, lambda r: r.prefill_share)

    @property
    def effective_rate(self) -> Figure:
        """The output tokens of a whole request over its time, tok/s."""
        self._require_request()
        return self._figure("effective rate of", "tok/s", lambda r: r.rate, lambda r: r.rates)

    @property
    def handoff(self) -> Figure:
        """The time of a pipeline outside its prompt and its output, ms."""
        return self._figure("handoff in", "ms", lambda r: _handoff(r, self.name))

    @property
    def peak_memory(self) -> Figure:
        """The peak resident memory of the engine's process, or of its largest program, GiB."""
        # Neither varying times nor a busy host change the memory of a process.
        return self._figure("peak memory of", "GiB", _peak, lambda _: ())

    def _figure(
        self,
        what: str,
        unit: str,
        of: Callable[[ThroughputResult], Estimate],
        runs: Callable[[ThroughputResult], tuple[float, ...]] | None = None,
    ) -> Figure:
        measured = WorkloadRuns(self.variant, self.workload)

        def measure() -> Found:
            return measured.found(what, of, runs, are_times=unit == "ms")

        name = f"{what} {measured.name}"
        return Figure(name, unit, self.record, measure, about=self.about)

    def _require_request(self) -> None:
        if self.workload.kind != "request":
            raise ConfigError(
                f"{self.workload.name} is not a whole request",
                why="a share of prefill needs a prompt and what is generated after it",
                remedy='measure one, as in latency("pp512+tg128")',
            )


class Latency(OfWorkload[Time]):
    """The `latency` fixture: call it with `ttft512`, `pp512+tg128`, `tg128` or `load`."""

    example: ClassVar = Time.example
    default: ClassVar = "ttft512"

    def _quantity(self, variant: ModelUnderTest, workload: str) -> Time:
        return time_of(variant, workload)

    def crossover(self, first: str, second: str, over: str = "ttft64..ttft4096") -> Figure:
        """The prompt length from which the first model is faster than the second, tokens.

        Both run in pairs at lengths that are chosen by bisection, until two lengths within 10 %
        of each other are decided. The interval is between decided lengths.

        Args:
            first: the model that is expected to be faster with long prompts, by its spec.
            second: the model that is faster with shorter ones.
            over: the shortest and the longest prompt.

        Raises:
            ConfigError: no such range, or one model twice.
        """
        ends = _range(over)
        sides = tuple(self.variant.other(name) for name in (second, first))
        if sides[0] == sides[1]:
            raise ConfigError(
                f"crossover: {first} is compared with itself", remedy="name two models"
            )
        what = f"crossover of {first} over {second} in {over}"
        search = _Crossing(what, ends, (sides[0], sides[1]), (second, first))
        return Figure(what, "tokens", self.variant.measurement.record, search.measure)


def time_of(variant: ModelUnderTest, workload: str) -> Time:
    """The time of a variant in a workload of this name."""
    parsed = parse_workload(workload, where="latency", may_be_load=True)
    measured = WorkloadRuns(variant, parsed)
    token = _of_token(parsed).strip()

    def measure() -> Found:
        if not parsed.generates:
            return measured.found(token, lambda r: r.time, lambda r: r.times_ms, are_times=True)
        median = partial(_percentile, percentile=_MEDIAN)
        return measured.found(token, median, _token_means_ms, are_times=True)

    name = " ".join(filter(None, (token, measured.name)))
    record = variant.measurement.record
    return Time(name, "ms", record, measure, variant, parsed, about=variant.ref)


def _of_token(workload: Workload) -> str:
    return " time per token of" if workload.generates else ""


def _token_means_ms(result: ThroughputResult) -> tuple[float, ...]:
    per = result.workload.n_tokens if result.workload.kind == "tg" else 1
    return tuple(ms / per for ms in result.times_ms)


def _percentile(result: ThroughputResult, percentile: float) -> Estimate:
    if result.workload.generates:
        return percentile_interval(_tokens_ms(result), percentile, unit="ms", counted="tokens")
    counted = "requests" if result.workload.users > 1 else result.counted
    return percentile_interval(result.samples_ms, percentile, unit="ms", counted=counted)


def _tokens_ms(result: ThroughputResult) -> list[list[float]]:
    steps = result.samples_ms
    if not all(steps):
        raise ConfigError(
            f"{result.ran.engine.release} does not time each token of {result.workload.name}",
            why="percentiles of tokens need the time of each",
            remedy="use the engine llama_cpp or mlx, or compare the rate, throughput(...)",
        )
    return steps


def _firsts_ms(result: ThroughputResult) -> tuple[float, ...]:
    return tuple(run.step_ns[0] / 1e6 for run in result.runs)


def _later_ms(result: ThroughputResult) -> tuple[float, ...]:
    later = result.workload.n_tokens - 1
    return tuple((run.elapsed_ns - run.step_ns[0]) / 1e6 / later for run in result.runs)


def _handoff(result: ThroughputResult, name: str) -> Estimate:
    found = [ns for run in result.runs if (ns := run.context.handoff_ns) is not None]
    if len(found) < len(result.runs):
        raise ConfigError(
            f"{name}: no handoff was measured",
            why="it is between the programs of a pipeline",
            remedy="measure a model with several `phases` that print the time of the prompt",
        )
    return result.over_runs([ns / 1e6 for ns in found], "ms")


def _peak(result: ThroughputResult) -> Estimate:
    return result.over_runs([run.peak_rss_bytes / 2**30 for run in result.runs], "GiB")


@dataclass(frozen=True, slots=True)
class _Crossing:
    """The search for the prompt length from which the second of two variants is faster."""

    what: str
    ends: tuple[Workload, Workload]
    variants: tuple[ModelUnderTest, ModelUnderTest]
    names: tuple[str, str]

    def measure(self) -> Found:
        """Compare lengths until the crossover is known."""
        shortest, longest = self.ends
        search = CrossoverSearch(shortest.n_tokens, longest.n_tokens)
        ran: tuple[tuple[str, str], ...] = ()
        while (n_tokens := search.next_length()) is not None:
            compared, ran = self._compared(replace(shortest, n_tokens=n_tokens))
            search.done.append(compared)
        rows = tuple(
            (f"{shortest.kind}{compared.n_tokens}", compared.text)
            for compared in sorted(search.done, key=lambda compared: compared.n_tokens)
        )
        if_failed = "compare with another length, or see at which lengths it was decided"
        return Found(
            search.estimate, Subject(self.what, "live", (*rows, *ran), if_failed=if_failed)
        )

    def _compared(self, workload: Workload) -> tuple[Compared, tuple[tuple[str, str], ...]]:
        """Pairs at one length until one variant is shown to be faster, and the run record."""
        measurement = self.variants[0].measurement
        # All lengths share the error of either bound.
        beta = measurement.budget.beta / MOST_COMPARISONS
        budget = replace(measurement.budget, claim=(0.0, 1.0), beta=beta)
        experiment = SpeedExperiment((workload,), budget, MOST_COMPARISONS)
        base, candidate = (variant.side() for variant in self.variants)
        result = measurement.runner.compare((base, candidate), experiment)
        if result.interrupted:
            raise KeyboardInterrupt
        (pairs,) = result.by_workload
        outcome = pairs.test.outcome_if_stopped if pairs.pairs else Outcome.INCONCLUSIVE
        text = "no pair was finished"
        if pairs.pairs:
            ratio = replace(pairs.test.estimate.as_ratio(), unit=RATIO)
            n_pairs = counted_text(len(pairs.pairs), "pairs")
            text = f"{self.names[1]} takes {ratio.text()} the time of {self.names[0]} ({n_pairs})"
        compared = Compared(workload.n_tokens, outcome, len(pairs.pairs), text)
        return compared, ran_rows(self.names, result.ran)


def _range(text: str) -> tuple[Workload, Workload]:
    """Read `ttft64..ttft4096`."""
    low, dots, high = text.partition("..")
    if dots:
        ends = tuple(parse_workload(end, where="crossover: over") for end in (low, high))
        is_range = ends[0].kind == ends[1].kind and 0 < ends[0].n_tokens < ends[1].n_tokens
        if is_range and all(
            end.is_prompt and end == Workload(end.kind, end.n_tokens) for end in ends
        ):
            return ends[0], ends[1]
    raise ConfigError(
        f"crossover: over: {shown(text, 80)} is not a range of prompts",
        why="the crossover is searched between two prompt lengths",
        remedy='write "ttft64..ttft4096", or "pp64..pp4096" for the prompt alone',
    )
