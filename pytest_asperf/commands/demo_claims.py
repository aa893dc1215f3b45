"""The assertions of `asperf demo`: on the shipped model and a broken copy."""

import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from gguf import GGUFReader

from pytest_asperf import assert_no_regression
from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.verdict import Subject, Verdict, judge_invalid
from pytest_asperf.api.gate import Gate
from pytest_asperf.api.ladder import Ladder
from pytest_asperf.api.measurement_context import MeasurementContext, ModelUnderTest, NoRecord
from pytest_asperf.api.throughput import rate
from pytest_asperf.config.spec import ModelRef, Pairing
from pytest_asperf.errors import AsperfError
from pytest_asperf.hardware.in_force import Hardware, detect
from pytest_asperf.measure.runner import MeasurementRunner
from pytest_asperf.measure.validity import BandwidthBounds
from pytest_asperf.measure.workspace import Workspace
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import VerdictError

_MODEL: Final = "asperf-target"
_LEVELS: Final = ("Q8_0", "Q4_K_M")
_WORKLOAD: Final = "tg32"
#: Far above the noise of a busy machine, and far below the time of the slow build.
_TOLERANCE: Final = "40 %"
_SLOW: Final = "current,slow_by=2"
_WHERE: Final = "asperf demo"


@dataclass(frozen=True, slots=True)
class DemoClaim:
    """An assertion, its expected verdict, and the meaning of it."""

    title: str  #: the assertion, for a reader
    expected: Outcome
    meaning: str
    #: makes it; a named assertion raises a VerdictError unless it is a PASS
    make: Callable[[], Verdict | tuple[Verdict, ...]]

    def verdict(self) -> Verdict:
        """The verdict that is measured."""
        try:
            made = self.make()
        except VerdictError as error:
            return error.verdict.plain()
        except AsperfError as error:
            if not error.breaks_measurement:
                raise
            # A guard's error begins with the workload and the file, which the title names.
            problem = error.what.partition(": ")[2] or error.what
            return judge_invalid(Subject(self.title, "live"), [problem], advice=error.advice)
        return made[0] if isinstance(made, tuple) else made


def found(verdict: Verdict) -> str:
    """The basis of a verdict: the figure with its interval, or the fault."""
    if verdict.overruled or not verdict.figures:
        return in_words(verdict).measured
    figure = verdict.figures[0].estimate
    return f"{figure.text()} ({figure.n} {figure.counted})"


def demo_claims(project: Workspace, runner: MeasurementRunner, folder: str) -> Iterator[DemoClaim]:
    """The assertions in their order, not measured yet; the broken model goes into `folder`."""
    measures = _measures(project, runner)
    yield from _of_levels(project, measures)
    yield from _of_builds(project, measures)
    yield DemoClaim(
        f"{_WORKLOAD} of a broken model, ≥ 1 tok/s",
        Outcome.INVALID,
        "Its speed would pass. A guard saw that it computes no numbers.",
        lambda: (
            rate(ModelUnderTest(_broken(project, runner, Path(folder)), measures), _WORKLOAD) >= 1.0
        ),
    )


def _of_levels(project: Workspace, measures: MeasurementContext) -> Iterator[DemoClaim]:
    find = project.catalogue.find
    rungs = {name: find(f"{_MODEL}:{name}", where=_WHERE, engine="llama_cpp") for name in _LEVELS}
    base = find(f"{_MODEL}:F16", where=_WHERE, engine="llama_cpp")
    ladder = Ladder(base, rungs, measures, tuple(rungs.values()))
    yield DemoClaim(
        "ΔPPL of Q8_0 below 1 %",
        Outcome.PASS,
        "The whole interval is below the limit: 8 bits cost nothing here.",
        lambda: ladder["Q8_0"].delta < "1%",
    )
    yield DemoClaim(
        "ΔPPL of Q4_K_M below 1 %",
        Outcome.FAIL,
        "The whole interval is above the limit: 4 bits cost more.",
        lambda: ladder["Q4_K_M"].delta < "1%",
    )
    yield DemoClaim(
        "ΔPPL of Q4_K_M below 4 %",
        Outcome.INCONCLUSIVE,
        "The interval contains the limit. More text would decide it.",
        lambda: ladder["Q4_K_M"].delta < "4%",
    )


def _of_builds(project: Workspace, measures: MeasurementContext) -> Iterator[DemoClaim]:
    ref = project.catalogue.find(f"{_MODEL}:Q8_0", where=_WHERE, engine="llama_cpp")

    def gated(candidate: str) -> tuple[Verdict, ...]:
        current, other = (
            project.catalogue.find_build(build, where=_WHERE, engine="llama_cpp")
            for build in ("current", candidate)
        )
        gate = Gate(ref, (current, other), measures.budget, measures, Pairing(ref, None))
        return assert_no_regression(gate(_WORKLOAD), tolerance=_TOLERANCE)

    yield DemoClaim(
        f"{_WORKLOAD}, same build twice, ≤ +{_TOLERANCE}",
        Outcome.PASS,
        f"1 is equally fast. Pairs were run until +{_TOLERANCE} was ruled out.",
        lambda: gated("current"),
    )
    yield DemoClaim(
        f"{_WORKLOAD}, slowed on purpose, ≤ +{_TOLERANCE}",
        Outcome.FAIL,
        "The ratio is above the limit. A large slowdown needs few pairs.",
        lambda: gated(_SLOW),
    )


def _measures(project: Workspace, runner: MeasurementRunner) -> MeasurementContext:
    settings = project.settings

    def skip(reason: str) -> NoReturn:
        raise RuntimeError(reason)

    def bandwidth(remeasure: bool) -> NoReturn:  # noqa: ARG001, FBT001  # its only argument
        raise RuntimeError("no assertion is about a share of the bandwidth")

    return MeasurementContext(
        runner,
        NoRecord(),
        BandwidthBounds(Hardware(detect()), bandwidth),
        settings.max_cv,
        project.gate_budget,
        skip,
    )


def _broken(project: Workspace, runner: MeasurementRunner, folder: Path) -> ModelRef:
    """A copy of the model in which one weight of the last norm is not a number."""
    source = project.catalogue.find(f"{_MODEL}:F16", where=_WHERE, engine="llama_cpp")
    path = folder / "broken.gguf"
    shutil.copyfile(runner.locate(source).path, path)
    (norm,) = (t for t in GGUFReader(path, "r+").tensors if t.name == "output_norm.weight")
    norm.data[0] = math.nan
    return project.catalogue.find(str(path), where=_WHERE, engine="llama_cpp")
