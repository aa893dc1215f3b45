"""The `pipelines` fixture: any two models in pairs, where they cross, and if they say the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from pytest_asperf.analysis.crossover import MOST_COMPARISONS, Compared, CrossoverSearch
from pytest_asperf.analysis.stats.estimate import RATIO, counted_text
from pytest_asperf.analysis.verdict import Outcome, Subject
from pytest_asperf.api.figure import Figure
from pytest_asperf.api.measurement_context import FixtureValue, require_kind, settle
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.errors import ConfigError, shown
from pytest_asperf.measure.ab_speed import SpeedExperiment
from pytest_asperf.measure.outputs import OutputsExperiment
from pytest_asperf.measure.prompts import read_prompts
from pytest_asperf.measure.runner import ComparedSide
from pytest_asperf.verdicts.outputs import same_output_verdict
from pytest_asperf.verdicts.paired import ran_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.api.measurement_context import MeasurementContext
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.config.workload import Workload
    from pytest_asperf.measure.outputs import Outputs
    from pytest_asperf.measure.runner import MeasurementRunner

#: What is claimed of the shipped prompts.
_TOKENS: Final = 64
_PROMPTS: Final = 4
_IF_FAILED: Final = "claim another length, or see at which lengths it was decided"


@dataclass(frozen=True)
class Pipelines(FixtureValue):
    """The `pipelines` fixture: models by their addresses, each on the engine that it names.

    Attributes:
        find: gives the model of an address.
        runner: gives what measures on an engine.
    """

    find: Callable[[str], ModelRef]
    runner: Callable[[ModelRef], MeasurementRunner]
    measurement: MeasurementContext

    example: ClassVar = 'assert_ratio(pipelines, "a", "b", "ttft512", at_most=0.9)'

    def __repr__(self) -> str:
        return "<Pipelines>"

    @property
    def title(self) -> str:
        """What all members have in common."""
        return "pipelines"

    def side(self, name: str, on: str | None) -> ComparedSide:
        """One side of a comparison: a model, and the workload that it runs."""
        workload = parse_workload(on or "ttft512", where="pipelines", any_cost=True)
        return replace(self._side(name), workload=workload)

    def crossover(self, first: str, second: str, over: str = "ttft64..ttft4096") -> Figure:
        """The prompt length from which one model is faster than another, for `assert_figure`.

        Both run in pairs at lengths that are chosen by bisection, until two lengths within 10 %
        of each other are decided. The interval is between decided lengths.

        Args:
            first: the model that is claimed to be faster with long prompts, by its address.
            second: the model that is faster with shorter ones.
            over: the shortest and the longest prompt.

        Raises:
            ConfigError: no such range, or one model twice.
            AsperfError: one could not be measured.
        """
        shortest, longest = _range(over)
        sides = self._two(second, first)
        search = CrossoverSearch(shortest.n_tokens, longest.n_tokens)
        ran: tuple[tuple[str, str], ...] = ()
        while (n_tokens := search.next_length()) is not None:
            workload = replace(shortest, n_tokens=n_tokens)
            compared, ran = self._compared(sides, workload, (second, first))
            search.done.append(compared)
        rows = tuple(
            (f"{shortest.kind}{compared.n_tokens}", compared.text)
            for compared in sorted(search.done, key=lambda compared: compared.n_tokens)
        )
        what = f"crossover of {first} over {second} in {over}"
        subject = Subject(what, "live", (*rows, *ran), if_failed=_IF_FAILED)
        return Figure(subject, search.estimate, self.measurement.record)

    def _compared(
        self,
        sides: tuple[ComparedSide, ComparedSide],
        workload: Workload,
        names: tuple[str, str],
    ) -> tuple[Compared, tuple[tuple[str, str], ...]]:
        """Pairs at one length until one model is shown to be faster, and what ran."""
        budget = self.measurement.budget
        # All lengths share the error of either bound.
        budget = replace(budget, claim=(0.0, 1.0), beta=budget.beta / MOST_COMPARISONS)
        experiment = SpeedExperiment((workload,), budget, MOST_COMPARISONS)
        result = sides[0].runner.compare(sides, experiment)
        if result.interrupted:
            raise KeyboardInterrupt
        (pairs,) = result.by_workload
        outcome = pairs.test.outcome_if_stopped if pairs.pairs else Outcome.INCONCLUSIVE
        text = "no pair was finished"
        if pairs.pairs:
            ratio = replace(pairs.test.estimate.as_ratio(), unit=RATIO)
            n_pairs = counted_text(len(pairs.pairs), "pairs")
            text = f"{names[1]} takes {ratio.text()} the time of {names[0]} ({n_pairs})"
        compared = Compared(workload.n_tokens, outcome, len(pairs.pairs), text)
        return compared, ran_rows(names, result.ran)

    def outputs(self, first: str, second: str) -> Outputs:
        """What two models generate after the shipped prompts.

        Raises:
            ConfigError: one model twice.
            AsperfError: an engine shows no output: only `command` does.
        """
        prompts = tuple(text for _, text in read_prompts(None))[:_PROMPTS]
        sides = self._two(second, first)
        return sides[0].runner.compare(sides, OutputsExperiment(prompts, _TOKENS))

    def _two(self, base: str, candidate: str) -> tuple[ComparedSide, ComparedSide]:
        """Two models that differ, the baseline first."""
        sides = self._side(base), self._side(candidate)
        if sides[0] == sides[1]:
            raise ConfigError(
                f"pipelines: {base} is compared with itself",
                why="that shows nothing",
                remedy="name two models",
            )
        return sides

    def _side(self, name: str) -> ComparedSide:
        ref = self.find(name)
        return ComparedSide(self.runner(ref), (ref,))


def assert_same_output(pipelines: Pipelines, first: str, second: str) -> Verdict:
    """Claim that two models generate the same text: that a handover between programs loses nothing.

    Both generate 64 tokens after each of four shipped prompts. They must sample greedily.

    Args:
        pipelines: the fixture.
        first: a model on the engine `command`, by its address.
        second: the model that it is compared with, likewise.

    Raises:
        VerdictError: the verdict is not a PASS; INVALID where the second does not repeat itself.
        ConfigError: one model twice.
        AsperfError: an engine shows no output, or died.
    """
    __tracebackhide__ = True
    require_kind(pipelines, Pipelines, 'assert_same_output(pipelines, "a", "b")')
    outputs = pipelines.outputs(first, second)
    verdict = same_output_verdict(outputs, (second, first), _TOKENS)
    return settle(verdict, pipelines.measurement.record)


def _range(text: str) -> tuple[Workload, Workload]:
    """Read `ttft64..ttft4096`."""
    low, dots, high = text.partition("..")
    if dots:
        ends = tuple(parse_workload(end, where="crossover: over") for end in (low, high))
        is_range = ends[0].kind == ends[1].kind and 0 < ends[0].n_tokens < ends[1].n_tokens
        if is_range and all(end.is_prompt and not end.depth and end.users == 1 for end in ends):
            return ends[0], ends[1]
    raise ConfigError(
        f"crossover: over: {shown(text, 80)} is not a range of prompts",
        why="the crossover is searched between two prompt lengths",
        remedy='write "ttft64..ttft4096", or "pp64..pp4096" for the prompt alone',
    )
