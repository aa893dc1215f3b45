"""Quantities that are timed, and their ratios and differences, which are measured in pairs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pytest_asperf.analysis.guards import GuardFinding, Voids
from pytest_asperf.analysis.results import Limit, Limits
from pytest_asperf.analysis.stats.estimate import RATIO, SHARE, Estimate
from pytest_asperf.analysis.stats.spread import cv_interval, cv_ratio_interval
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict, guarded
from pytest_asperf.api.measurement_context import ModelUnderTest, told_apart
from pytest_asperf.api.quantity import (
    Compound,
    Figure,
    Found,
    Judged,
    Quantity,
    Sign,
    joined_name,
    no_room,
)
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import ConfigError
from pytest_asperf.measure.ab_speed import ABResult
from pytest_asperf.measure.loading import LoadExperiment
from pytest_asperf.measure.results import ThroughputResult
from pytest_asperf.measure.runner import ComparedSide
from pytest_asperf.modelfiles.locate import require_one_model
from pytest_asperf.report.verdict_text import VerdictError
from pytest_asperf.verdicts.engine_matching import Term, require_matched_bits, terms_of
from pytest_asperf.verdicts.ratio import (
    PairedClaim,
    cost_of_serving,
    paired_subject,
    paired_verdict,
    terms_texts,
)
from pytest_asperf.verdicts.readings import GuardedRates

#: A larger factor between two figures, or a smaller one than its inverse, is a slip of the pen.
_LARGEST_RATIO: Final = 1e4


@dataclass(frozen=True, slots=True)
class WorkloadRuns:
    """One workload of one variant, measured when first needed and once a session."""

    variant: ModelUnderTest
    workload: Workload

    @property
    def name(self) -> str:
        """The workload and the model."""
        return f"{self.workload.name} {self.variant.title}"

    def result(self) -> ThroughputResult:
        """The runs, if no guard found them broken; noted for the report."""
        return self._noted()[0]

    def found(
        self,
        what: str,
        of: Callable[[ThroughputResult], Estimate],
        runs: Callable[[ThroughputResult], tuple[float, ...]] | None = None,
        *,
        are_times: bool = False,
        per_rate: float = 1.0,
    ) -> Found:
        """A quantity of the runs.

        Args:
            what: its name, before the workload.
            of: gives it.
            runs: gives the figure of each run, if a spread or a busy host can matter near a limit.
            are_times: whether these are times.
            per_rate: the quantity for each unit of these.
        """
        result, guard_findings = self._noted()
        name = " ".join(filter(None, (what, self.workload.name, result.ran.model)))
        subject = Subject(name, "live", result.rows())
        if runs is None:
            return Found(of(result), subject, guard_findings)
        lost = result.watched.lost_share
        guarded = GuardedRates(runs(result), guard_findings, lost, are_times=are_times)
        return Found(of(result), subject, runs=guarded, per_rate=per_rate)

    def _noted(self) -> tuple[ThroughputResult, tuple[GuardFinding, ...]]:
        variant, workload = self.variant, self.workload
        measurement, runner = variant.measurement, variant.measurement.runner
        if variant.build is not None:
            raise ConfigError(
                f"{self.name}: a build is measured against the other build only",
                why="two builds are compared in the same minutes",
                remedy="compare the two, as in "
                'gate.candidate.throughput("tg128") / gate.baseline.throughput("tg128") >= 0.95',
            )
        if workload.is_load:
            result = runner.measure((variant.ref,), LoadExperiment(workload))
        else:
            result = runner.throughput(variant.ref, workload)
        return result, measurement.noted(result)


@dataclass(frozen=True, eq=False, repr=False)
class TimedQuantity(Figure):
    """A quantity whose ratio to another one is measured in run pairs."""

    variant: ModelUnderTest  #: the measured variant
    workload: Workload  #: its work

    @property
    def side(self) -> ComparedSide:
        """The build or variant that runs for it in pairs."""
        is_time = self.unit == "ms" and self.workload.is_rate
        return self.variant.side(replace(self.workload, timed=is_time))

    def is_again(self, other: Quantity) -> bool:
        """True if the other one is this one again; two builds of a gate may be equal."""
        return self.variant.build is None and super().is_again(other)

    def ratio_to(self, other: Quantity) -> Quantity:
        """The quantity of `self / other`, measured in pairs if both are timed."""
        pair = self._in_pairs(other, "/")
        return super().ratio_to(other) if pair is None else pair

    def difference_from(self, other: Quantity) -> Quantity:
        """The quantity of `self - other`, measured in run pairs."""
        pair = self._in_pairs(other, "-")
        return super().difference_from(other) if pair is None else pair

    def _in_pairs(self, other: Quantity, sign: Sign) -> Quantity | None:
        if not isinstance(other, TimedQuantity):
            return None
        unit = RATIO if sign == "/" else self.unit
        return Paired(joined_name(self, sign, other), unit, self.record, self, other, sign)


@dataclass(frozen=True, eq=False, repr=False)
class Paired(Compound):
    """The ratio or difference of two timed quantities, run in pairs until a comparison is decided.

    Pairs count for all comparisons of the same two variants.
    """

    first: TimedQuantity
    second: TimedQuantity

    def find(self) -> Found:
        """Measure run pairs until they show which of the two is larger."""
        claim = self._claim((Limit(">", 0.0 if self.is_signed else 1.0, self.unit),))
        result, verdict, _ = self._judged(claim)
        if result.interrupted:
            raise KeyboardInterrupt
        (pairs,) = result.by_workload
        if verdict.outcome is Outcome.INVALID or not pairs.pairs:
            raise VerdictError(verdict)
        return Found(claim.estimate(pairs), paired_subject(result, claim))

    def judge(self, limits: Limits) -> Judged:
        """The verdict on a comparison with limits."""
        __tracebackhide__ = True
        for limit in () if self.is_signed else limits:
            if not 1 / _LARGEST_RATIO <= limit.value <= _LARGEST_RATIO:
                raise ConfigError(
                    f"{self.name} {limit.operator} {limit.value:g}: that is no ratio of two "
                    "figures",
                    why="such a comparison would always pass, or never",
                    remedy="write a factor such as 1.5; 92 % slower is a ratio of at most 0.08",
                )
        if len({limit.value for limit in limits}) < len(limits):
            raise no_room(self.name, limits)
        claim = self._claim(limits)
        result, verdict, terms = self._judged(claim)
        remark = "\n".join(
            (*terms_texts(terms, claim.names), *cost_of_serving(result, claim.names))
        )
        return Judged(replace(verdict, note=remark), is_stopped=result.interrupted)

    def _judged(self, claim: PairedClaim) -> tuple[ABResult, Verdict, tuple[Term, ...]]:
        is_of_engines = self._compares_engines()
        result = self._run(claim)
        terms = self._terms(result) if is_of_engines else ()
        return result, paired_verdict(result, claim, twins=self._twins(result), terms=terms), terms

    def _claim(self, limits: Limits) -> PairedClaim:
        names, what = _names_of_sides(self.first, self.second)
        is_rate = self.first.unit == "tok/s"
        return PairedClaim(names, what, limits, is_rate, of_difference=self.is_signed)

    def _run(self, claim: PairedClaim) -> ABResult:
        base = self.second.variant.measurement
        sides = self.second.side, self.first.side
        return base.runner.paired(sides, claim.within(base.budget))

    def _compares_engines(self) -> bool:
        """True if two engines run one model, which then must be the same weights."""
        first, second = self.first.variant, self.second.variant
        if first.engine == second.engine or first.ref.spec.name != second.ref.spec.name:
            return False
        models = [v.measurement.runner.locate(v.ref) for v in (first, second)]
        require_one_model(*((model.ref.title, model.info) for model in models))
        if first.is_matched or second.is_matched:
            require_matched_bits((models[0], models[1]))
        return True

    def _terms(self, result: ABResult) -> tuple[Term, ...]:
        first, second = self.first.variant, self.second.variant
        runner, base = first.measurement.runner, second.measurement.runner
        models = runner.locate(first.ref), base.locate(second.ref)
        return terms_of(
            models,
            result.ran[::-1],
            same_tokens=result.same_tokens,
            source_sha256=runner.source_sha256(models[0].ref.spec),
        )

    def _twins(self, result: ABResult) -> str:
        """The proof that the two are one and the same; empty if they are not."""
        base, candidate = result.ran
        is_one_file = base.sha256 == candidate.sha256 and base.requested == candidate.requested
        first, second = self.first, self.second
        is_same_work = first.workload == second.workload
        engines_differ = first.variant.engine != second.variant.engine
        if not is_one_file or not is_same_work or engines_differ or first.variant.build:
            return ""
        return f"both are the file sha256 {base.sha256[:12]}, with the same settings"


def _names_of_sides(first: TimedQuantity, second: TimedQuantity) -> tuple[tuple[str, str], str]:
    """The names of two variants by their differences, and their common part."""
    one, other = first.variant, second.variant
    if one == other:
        return (first.workload.name, second.workload.name), one.title
    names, what = told_apart(one, other)
    if first.workload == second.workload:
        return names, f"{first.workload.name}{what}"
    both = (f"{t.workload.name} {name}" for t, name in zip((first, second), names, strict=True))
    return tuple(both), what.removeprefix(" of ") or "speed"  # type: ignore[return-value]  # two


@dataclass(frozen=True, eq=False, repr=False)
class CvFigure(Figure):
    """The coefficient of variation of a measurement's runs, for any value of `max_cv`."""

    measured: WorkloadRuns

    def ratio_to(self, other: Quantity) -> Quantity:
        """The quantity of `self / other`, from the runs of both."""
        if not isinstance(other, CvFigure):
            return super().ratio_to(other)
        mine, base = self.measured, other.measured

        def find() -> Found:
            first, second = mine.result(), base.result()
            ran = tuple(dict.fromkeys((*first.ran.rows(), *second.ran.rows())))
            subject = Subject(f"{self.name} / {other.name}", "live", ran)
            checks = self.find().check, other.find().check

            def check(verdict: Verdict) -> Verdict:
                for one in filter(None, checks):
                    verdict = one(verdict)
                return verdict

            return Found(cv_ratio_interval(first.rates, second.rates), subject, check=check)

        return Figure(f"{self.name} / {other.name}", RATIO, self.record, find)

    @property
    def is_compared_by_ratio(self) -> bool:
        """True if two such quantities are compared by their ratio."""
        return True


def spread_of(timed: TimedQuantity) -> CvFigure:
    """How much the runs of a quantity vary: standard deviation over mean."""
    measured = WorkloadRuns(timed.variant, timed.workload)

    def find() -> Found:
        found = measured.found("CV of", lambda r: cv_interval(r.rates, counted=r.counted))
        findings = found.guard_findings

        def check(verdict: Verdict) -> Verdict:
            # The spread itself is judged. A busy host only adds to it: steady runs are steady.
            spared = {Voids.SPREAD_SENSITIVE}
            if verdict.outcome is Outcome.PASS:
                spared.add(Voids.LOAD_SENSITIVE)
            return guarded(verdict, findings, spared=spared)

        return replace(found, guard_findings=(), check=check)

    name = f"CV of {measured.name}"
    return CvFigure(name, SHARE, timed.record, find, measured, about=timed.about)
