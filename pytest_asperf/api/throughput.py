"""The `throughput` fixture and the claims about rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from pytest_asperf.analysis import metrics
from pytest_asperf.analysis.limit_verdict import LimitForm, judge_within, parse_percent
from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.analysis.verdict import Outcome, Verdict, judge_invalid
from pytest_asperf.api.measurement_context import FixtureValue, Reading, require_kind, settle
from pytest_asperf.config.workload import DEFAULT_WORKLOAD, parse_workload
from pytest_asperf.errors import ConfigError, shown
from pytest_asperf.measure.runner import ComparedSide
from pytest_asperf.verdicts.readings import vetted

if TYPE_CHECKING:
    from pytest_asperf.api.measurement_context import MeasurementContext
    from pytest_asperf.config.spec import ModelRef


@dataclass(frozen=True)
class Throughput(FixtureValue):
    """The `throughput` fixture: call it with a workload's name, `pp512`, `tg128`, `tg128@d1024`."""

    ref: ModelRef
    measurement: MeasurementContext

    example: ClassVar = Reading.example

    def __repr__(self) -> str:
        return f"<Throughput of {self.ref.title}>"

    def __call__(self, workload: str = DEFAULT_WORKLOAD) -> Reading:
        """Measure a workload.

        Raises:
            AsperfError: it cannot be measured.
        """
        parsed = parse_workload(workload, where="throughput")
        if not parsed.is_rate:
            raise ConfigError(
                f"throughput: {parsed.name} is a latency",
                why="a rate in tok/s is not what a user waits for",
                remedy=f'take the latency fixture, and write latency("{parsed.name}")',
            )
        return self.measurement.reading(self.measurement.runner.throughput(self.ref, parsed))

    @property
    def title(self) -> str:
        """The model."""
        return self.ref.title

    def side(self, name: str, on: str | None) -> ComparedSide:
        """One side of a comparison: a workload of the model, by its name."""
        if on is not None:
            raise ConfigError(
                f"throughput: two workloads are compared, and {shown(on, 80)} is a third",
                why="each side names its own",
                remedy='leave it out, as in assert_ratio(throughput, "tg64", "tg64@d4096", ...)',
            )
        workload = parse_workload(name, where="throughput")
        return ComparedSide(self.measurement.runner, (self.ref,), workload=workload)


_RATES: Final = LimitForm(
    "assert_throughput", "a rate in tok/s", {"tok/s": 1.0}, '"40 tok/s", or 40.0'
)

_UTILIZATION: Final = 'assert_bandwidth_utilization(throughput("tg128"), at_least="60%")'


def assert_throughput(
    throughput: Reading,
    *,
    at_least: str | float | None = None,
    at_most: str | float | None = None,
) -> Verdict:
    """Claim that a rate lies within limits.

    If loading is cheap, each run is from a fresh load, and the interval covers differences between
    loads. The verdict says which it was.

    Args:
        throughput: a measurement, `throughput("tg128")`.
        at_least: lower limit, `"40 tok/s"` or a number of tok/s.
        at_most: upper limit, likewise.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no measurement, no limit, or one that is not a rate in tok/s.
    """
    __tracebackhide__ = True
    require_kind(throughput, Reading, Reading.example)
    low, high = _RATES.read(at_least, "at_least"), _RATES.read(at_most, "at_most")
    verdict = judge_within(throughput.rate, throughput.subject(), at_least=low, at_most=high)
    return settle(vetted(verdict, throughput.runs, (low, high)), throughput.measurement.record)


def assert_bandwidth_utilization(
    throughput: Reading,
    *,
    at_most: str | float | None = None,
    at_least: str | float | None = None,
) -> Verdict:
    """Claim that TG uses a share of the memory bandwidth within limits.

    Utilisation is TG times bytes read per token / bandwidth. More than 1.0 is impossible for a
    model that is read from memory, but not for one that stays in the processor's cache.

    Args:
        throughput: a measurement of TG, `throughput("tg128")`.
        at_most: upper limit, `"80%"` or a fraction.
        at_least: lower limit, likewise.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: a prompt workload, no limit, or one that is no share.
        HardwareError: the bandwidth is not known.
    """
    __tracebackhide__ = True
    require_kind(throughput, Reading, _UTILIZATION)
    low, high = (
        None
        if limit is None
        else parse_percent(limit, where=f"assert_bandwidth_utilization: {name}")
        for name, limit in (("at_least", at_least), ("at_most", at_most))
    )
    reading = throughput
    n_bytes = reading.result.bytes_per_token
    if reading.result.workload.kind != "tg" or n_bytes is None:
        raise ConfigError(
            f"bandwidth utilisation is not defined for {reading.workload}",
            why="a prompt's batch reads each weight once for many tokens",
            remedy='use a generation workload such as throughput("tg128"), of a model whose '
            "tensors have the usual names",
        )
    bound = reading.measurement.bounds.expected(reading.result)
    share = metrics.bandwidth_utilisation(reading.rate, n_bytes, bound.gbs)
    subject = reading.subject(f"utilisation of {bound.gbs:.4g} GB/s ({bound.kind}) by")
    verdict = judge_within(share, subject, at_least=low, at_most=high)
    if bound.doubt:
        remedy = "name this machine's chip with --asperf-hardware, or leave it out"
        verdict = judge_invalid(subject, verdict.threshold, [bound.doubt], remedy=remedy)
    elif verdict.outcome is not Outcome.PASS and n_bytes <= bound.cache_bytes:
        problem = (
            f"{share.text()}, but the {memory_text(n_bytes)} that a step reads fit in the "
            f"{memory_text(bound.cache_bytes)} last-level cache: memory does not bound it"
        )
        remedy = "measure a model several times the cache's size"
        verdict = judge_invalid(subject, verdict.threshold, [problem], remedy=remedy)
    unit = share.point / reading.rate.point
    return settle(vetted(verdict, reading.runs, (low, high), unit=unit), reading.measurement.record)
