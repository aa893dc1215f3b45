"""The `speculation` fixture: a draft and a target against the target alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from pytest_asperf.analysis.results import Limits
from pytest_asperf.analysis.stats.estimate import CHANGE, RATIO, SHARE, Estimate
from pytest_asperf.analysis.verdict import Subject
from pytest_asperf.api.measurement_context import (
    FixtureValue,
    MeasurementContext,
    NoTruthValue,
    unknown_word,
)
from pytest_asperf.api.quantity import Figure, Found, Judged, Quantity, noted
from pytest_asperf.config.engine_settings import parse_settings
from pytest_asperf.config.spec import ModelRef, Pairing
from pytest_asperf.errors import Advice, ConfigError, shown
from pytest_asperf.measure.ab_speed import Budget
from pytest_asperf.measure.experiment import Experiment
from pytest_asperf.measure.runner import ComparedSide, Result
from pytest_asperf.measure.speculation import (
    GainExperiment,
    PlacesExperiment,
    RemoteDraftingExperiment,
)
from pytest_asperf.measure.speculation_result import RemoteDraftingResult, SpeculationResult
from pytest_asperf.measure.texts import PromptExperiment, PromptOutput
from pytest_asperf.records.taken import speculation_record
from pytest_asperf.verdicts.speculation import compared_gain_verdict, stopped_verdict


@dataclass(frozen=True)
class Speculation(FixtureValue):
    """The `speculation` fixture. Nothing runs before a quantity is read or compared.

    Attributes:
        pairing: the draft and the target, and the text to generate.
        find: returns the draft of a model spec, None for lookup.
        remote: the RPC server of another machine, if the session names one.
    """

    pairing: Pairing
    budget: Budget
    measurement: MeasurementContext
    find: Callable[[str], ModelRef | None]
    remote: str | None = None

    example: ClassVar = "assert_sd_gain(speculation, when_ratio=2.5)"

    def __repr__(self) -> str:
        return f"<Speculation {self.pairing.label}>"

    def drafted_by(self, draft: str) -> Speculation:
        """The same target with another draft and equal settings.

        Args:
            draft: its model spec, or `ngram`.

        Raises:
            ConfigError: an unknown model or quantization.
        """
        return replace(self, pairing=replace(self.pairing, draft=self.find(draft)))

    def drafted_on(self, remote: str) -> Speculation:
        """The same draft and target, with the draft on another machine.

        Args:
            remote: its RPC server, as the engine setting `remote` names it: `"10.0.0.2:50052"`.

        Raises:
            ConfigError: no such model spec, or the draft is no model.
        """
        where = f"{self.pairing.label}: drafted_on"
        draft = self.pairing.draft
        if draft is None:
            raise ConfigError(
                f"{where}: a lookup in the text runs on no machine",
                why="only a draft that is a model can run on another machine",
                remedy="name a draft in the speculative marker",
            )
        settings = parse_settings({"remote": remote}, where=where)
        spec = draft.spec.with_settings(settings)
        return replace(self, pairing=replace(self.pairing, draft=replace(draft, spec=spec)))

    def overhead_on(self, remote: str | None = None) -> RemoteOverhead:
        """The cost of the draft on another machine, compared with the same draft here.

        Args:
            remote: its RPC server, as in `drafted_on`; by default the one that the setting
                `remote` names, without which the test is skipped.

        Raises:
            ConfigError: no such model spec, the draft is no model, or the pair samples.
        """
        if self.pairing.temperature:
            raise ConfigError(
                f"{self.pairing.label}: overhead_on needs greedy generation",
                why="sampled outputs differ, and only equal work can be compared",
                remedy="leave the temperature out of the marker",
            )
        remote = remote or self.remote
        if remote is None:
            self.measurement.skip(str(Advice("name another machine's RPC server", "remote")))
        return RemoteOverhead(self, self.drafted_on(remote))

    def on(self, prompt: str) -> PromptSpeculation:
        """The same pair on one prompt, for `assert_lossless`: nothing is timed.

        Both models stay loaded until the test ends, so many prompts can be tried.

        Raises:
            ConfigError: the pair samples, and one prompt shows nothing of a distribution.
        """
        if self.pairing.temperature:
            raise ConfigError(
                f"{self.pairing.label}: one prompt shows nothing of a distribution",
                why="sampled output differs from run to run",
                remedy="leave the temperature out of the marker",
            )
        return PromptSpeculation(self, prompt)

    def against(self, *limits: float) -> SpeculationResult:
        """The result of pairs that were run until the gain was above or below each limit.

        After an interrupted result nothing more may be measured; its verdict covers the finished
        pairs.

        Raises:
            AsperfError: it cannot be measured, or the measurement is broken.
            KeyboardInterrupt: it was stopped before a pair was finished.
        """
        result = self._measured(GainExperiment(self.pairing, self.budget, limits))
        self.measurement.record(speculation_record(result))
        return result

    def places(self, n_tokens: int) -> tuple[float, ...]:
        """The place of each sampled token in the target's own distribution."""
        self.measurement.record.used()
        return self._measured(PlacesExperiment(self.pairing, n_tokens, self.budget.seed))

    def _measured(self, experiment: Experiment[Result]) -> Result:
        return self.measurement.runner.measure(self.pairing.refs, experiment)

    @property
    def result(self) -> SpeculationResult:
        """Raw runs and counts, for code that judges them itself."""
        whole = self.whole()
        self.measurement.record.used()
        return whole

    @property
    def gain(self) -> Gain:
        """The rate with the draft over that of the target alone, less 1."""
        name = f"SD gain {self.pairing.label}"
        return Gain(name, CHANGE, self.measurement.record, self)

    @property
    def acceptance(self) -> Figure:
        """The share of drafted tokens that are accepted; its interval needs five prompts."""
        return self._figure("acceptance by", SHARE, lambda result: result.accepted())

    def acceptance_of(self, category: str) -> Figure:
        """The acceptance on prompts of a category, such as `code`.

        Raises:
            ConfigError: when it is compared, no prompt has that category.
        """

        def accepted(result: SpeculationResult) -> Estimate:
            if category not in result.categories:
                raise unknown_word("category", category, sorted(set(result.categories)))
            return result.accepted(category)

        return self._figure(f"acceptance of {category} by", SHARE, accepted)

    @property
    def ratio(self) -> Figure:
        """The speed ratio: the rate of the draft alone over that of the target alone."""
        return self._figure("speed ratio of", RATIO, lambda result: result.ratio)

    @property
    def break_even(self) -> Figure:
        """The speed ratio from which a draft with this acceptance would gain."""
        return self._figure("break-even ratio of", RATIO, lambda result: result.break_even)

    def verify_cost(self, positions: int) -> Figure:
        """The cost of verifying some positions in one batch, in steps of the target alone.

        Raises:
            ConfigError: when it is compared, no batch of that size was timed.
        """

        def cost(result: SpeculationResult) -> Estimate:
            if positions not in result.verify:
                raise ConfigError(
                    f"verify_cost: {shown(positions)} positions were not timed",
                    why="a round of k drafted tokens verifies k + 1",
                    remedy=f"name a number from {min(result.verify)} to {max(result.verify)}",
                )
            return replace(result.verify[positions], unit=RATIO)

        return self._figure(f"C({positions}) of", RATIO, cost)

    def whole(self) -> SpeculationResult:
        """The result of pairs that show whether it gains.

        Raises:
            KeyboardInterrupt: the run was stopped; a verdict covers the finished pairs.
        """
        result = self.against(0.0)
        if result.interrupted:
            verdict = stopped_verdict(result, self.subject("SD gain", result))
            noted(Judged(verdict, is_stopped=True), self.measurement.record)
        return result

    def _figure(self, what: str, unit: str, of: Callable[[SpeculationResult], Estimate]) -> Figure:
        def measure() -> Found:
            result = self.whole()
            return Found(of(result), self.subject(what, result), result.guard_findings)

        name = f"{what} {self.pairing.label}"
        return Figure(name, unit, self.measurement.record, measure)

    def subject(
        self,
        what: str,
        result: SpeculationResult | RemoteDraftingResult | PromptOutput | None = None,
    ) -> Subject:
        """The subject of an assertion about this pair, with its run record."""
        arms = () if result is None else result.ran
        ran = tuple(
            (f"{side} {label}", text)
            for side, arm in zip(("target", "draft"), arms, strict=False)
            for label, text in arm.rows()
        )
        return Subject(f"{what} {self.pairing.label}", "live", ran)


@dataclass(frozen=True, eq=False, repr=False)
class Gain(Quantity):
    """The gain of a pairing, measured until it is shown to be above or below a limit."""

    speculation: Speculation

    def find(self) -> Found:
        """Measure until it is shown to be above or below 0."""
        result = self.speculation.whole()
        subject = self.speculation.subject("SD gain", result)
        return Found(result.gain, subject, result.guard_findings)

    def judge(self, limits: Limits) -> Judged:
        """The verdict on a comparison with limits."""
        __tracebackhide__ = True
        result = self.speculation.against(*(limit.value for limit in limits))
        subject = self.speculation.subject("SD gain", result)
        if result.interrupted:
            verdict = stopped_verdict(result, subject)
        else:
            verdict = compared_gain_verdict(result, subject, limits)
        return Judged(verdict, is_stopped=result.interrupted)


@dataclass(frozen=True)
class PromptSpeculation(NoTruthValue):
    """A pair on one prompt, from `speculation.on(prompt)`."""

    speculation: Speculation
    prompt: str

    example: ClassVar = 'assert_lossless(speculation.on("def area("))'

    def __repr__(self) -> str:
        return f"<PromptSpeculation {self.speculation.pairing.label} on {self.prompt!r:.80}>"

    def output(self) -> PromptOutput:
        """The text after the prompt, with the draft and without.

        Raises:
            AsperfError: it cannot be run.
        """
        pairing, measurement = self.speculation.pairing, self.speculation.measurement
        measurement.record.used()
        return measurement.runner.measure(pairing.refs, PromptExperiment(pairing, self.prompt))


@dataclass(frozen=True)
class RemoteOverhead(NoTruthValue):
    """The cost of a draft on another machine, from `speculation.overhead_on(remote)`.

    The draft runs here and there on the same prompts, in run pairs. Outputs that differ make each
    figure INVALID.
    """

    here: Speculation
    there: Speculation

    example: ClassVar = "assert speculation.overhead_on(remote).per_token <= 2.0"

    def __repr__(self) -> str:
        return f"<RemoteOverhead {self.there.pairing.label}>"

    @property
    def change(self) -> Figure:
        """The change of TG by a draft on another machine: `"-79%"` is a fifth of the rate."""
        return self._figure("change of TG by distance", CHANGE, lambda result: result.change)

    @property
    def per_token(self) -> Figure:
        """The extra time of an emitted token, ms."""
        return self._figure("extra time of an emitted token", "ms", lambda r: r.per_token)

    @property
    def per_drafted_token(self) -> Figure:
        """The extra time of a drafted token, ms: the server computes one graph for it."""
        return self._figure("extra time of a drafted token", "ms", lambda r: r.per_drafted_token)

    def _figure(
        self, what: str, unit: str, of: Callable[[RemoteDraftingResult], Estimate]
    ) -> Figure:
        def measure() -> Found:
            result = self._result()
            subject = self.there.subject(f"{what},", result)
            arms = ("draft here", result.row(0)), ("draft there", result.row(1))
            subject = replace(subject, ran=(*arms, *subject.ran))
            return Found(of(result), subject, result.guard_findings)

        name = f"{what}, {self.there.pairing.label}"
        return Figure(name, unit, self.here.measurement.record, measure)

    def _result(self) -> RemoteDraftingResult:
        runner = self.here.measurement.runner
        pairings = self.here.pairing, self.there.pairing
        sides = tuple(ComparedSide(runner, pairing.refs) for pairing in pairings)
        return runner.compare(sides, RemoteDraftingExperiment(*pairings, self.here.budget))
