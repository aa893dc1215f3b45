"""The `throughput` fixture: rates in tok/s."""

from dataclasses import dataclass, replace
from typing import ClassVar

from pytest_asperf.analysis import metrics
from pytest_asperf.analysis.stats.estimate import SHARE, memory_text
from pytest_asperf.analysis.verdict import Outcome, Verdict, broken
from pytest_asperf.api.measurement_context import ModelUnderTest, OfWorkload
from pytest_asperf.api.quantity import Figure, Found
from pytest_asperf.api.timed import CvFigure, TimedQuantity, WorkloadRuns, spread_of
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.errors import Advice, ConfigError


@dataclass(frozen=True, eq=False, repr=False)
class Rate(TimedQuantity):
    """The rate of one workload, tok/s: the median of its runs.

    If loading is cheap, each run starts from a fresh load, and the interval covers differences
    between loads. The verdict names the kind of run.
    """

    @property
    def cv(self) -> CvFigure:
        """The coefficient of variation of its runs, a share."""
        return spread_of(self)

    @property
    def bandwidth_utilization(self) -> Figure:
        """The share of the memory bandwidth that TG uses: TG times the bytes of a token.

        More than 1 is impossible for a model that is read from memory, but not for one that stays
        in the processor's cache.

        Raises:
            ConfigError: a prompt is timed.
            HardwareError: the bandwidth is unknown, when it is compared.
        """
        if self.workload.kind != "tg":
            raise _undefined(self.workload.name)
        name = f"bandwidth utilization of {self.name}"
        return Figure(name, SHARE, self.record, self._utilization, about=self.about)

    def _utilization(self) -> Found:
        measured = WorkloadRuns(self.variant, self.workload)
        result = measured.result()
        n_bytes = result.bytes_per_token
        if n_bytes is None:
            raise _undefined(self.workload.name)
        bound = self.variant.measurement.bounds.expected(result)
        share = metrics.bandwidth_utilisation(result.rate, n_bytes, bound.gbs)

        def check(verdict: Verdict) -> Verdict:
            if bound.doubt:
                advice = Advice("name this machine's chip, or name none", "hardware")
                return broken(verdict, bound.doubt, advice=advice)
            if verdict.outcome is Outcome.PASS or n_bytes > bound.cache_bytes:
                return verdict
            problem = (
                f"{share.text()}, but the {memory_text(n_bytes)} that a step reads fit in the "
                f"{memory_text(bound.cache_bytes)} last-level cache: memory does not bound it"
            )
            remedy = "measure a model several times the cache's size"
            return broken(verdict, problem, advice=remedy)

        what = f"utilization of {bound.gbs:.4g} GB/s ({bound.kind}) by"
        per_rate = share.point / result.rate.point
        found = measured.found(what, lambda _: share, lambda r: r.rates, per_rate=per_rate)
        return replace(found, check=check)


class Throughput(OfWorkload[Rate]):
    """The `throughput` fixture: call it with a workload's name, `pp512`, `tg128`, `tg128@d1024`."""

    example: ClassVar = Rate.example

    def _quantity(self, variant: ModelUnderTest, workload: str) -> Rate:
        return rate(variant, workload)


def rate(variant: ModelUnderTest, workload: str) -> Rate:
    """The rate of a variant in a workload of this name."""
    parsed = parse_workload(workload, where="throughput")
    if not parsed.is_rate:
        raise ConfigError(
            f"throughput: {parsed.name} is a latency",
            why="a rate in tok/s is not what a user waits for",
            remedy=f'use the latency fixture, and write latency("{parsed.name}")',
        )
    measured = WorkloadRuns(variant, parsed)

    def measure() -> Found:
        return measured.found("", lambda r: r.rate, lambda r: r.rates)

    record = variant.measurement.record
    return Rate(measured.name, "tok/s", record, measure, variant, parsed, about=variant.ref)


def _undefined(workload: str) -> ConfigError:
    return ConfigError(
        f"bandwidth utilization is not defined for {workload}",
        why="a prompt's batch reads each weight once for many tokens",
        remedy='use a generation workload such as throughput("tg128"), of a model whose '
        "tensors have the usual names",
    )
