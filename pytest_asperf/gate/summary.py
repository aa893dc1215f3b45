"""A gate's outcome: its answer, its exit code, and what a report keeps of it."""

from dataclasses import dataclass
from typing import Final

from pytest_asperf.analysis.outcome import NOT_RUN, ExitCode
from pytest_asperf.analysis.verdict import Outcome
from pytest_asperf.errors import printable
from pytest_asperf.gate.cells import CellResult
from pytest_asperf.gate.plan import GatePlan
from pytest_asperf.records.kinds import AnyRecord, BrokenRecord, Noted
from pytest_asperf.records.report import CheckFacts, GateFacts, LeftOutFacts
from pytest_asperf.records.taken import broken_record

_WORDS: Final = (*map(str, Outcome), NOT_RUN)
_ANSWERS: Final = {
    ExitCode.DONE: "PASS",
    ExitCode.FAIL: "FAIL",
    ExitCode.INCONCLUSIVE: "NOT DECIDED",
    ExitCode.INVALID: "NOT MEASURED",
    ExitCode.INTERRUPTED: "STOPPED",
}


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """The outcome of a gate."""

    builds: tuple[str, str]  #: names of baseline and candidate
    plan: GatePlan  #: the checks
    limits: str  #: the accepted limits, in words
    results: tuple[CellResult, ...]  #: of the checks that were begun and ended, in the plan's order
    elapsed_s: float  #: time of all
    interrupted: bool = False  #: whether it was stopped from outside

    @property
    def exit_code(self) -> ExitCode:
        """The exit code."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        words = [result.word for result in self.results]
        return ExitCode.of(words) if words else ExitCode.INVALID

    @property
    def answer(self) -> str:
        """The result in one line: the verdict, the builds, the duration."""
        base, candidate = map(printable, self.builds)
        return f"{_ANSWERS[self.exit_code]}: {candidate} against {base}, {self.headline}"

    @property
    def headline(self) -> str:
        """The number of checks with each verdict."""
        words = [result.word for result in self.results]
        counts = [f"{words.count(word)} {word}" for word in _WORDS if word in words]
        open_cells = len(self.plan.cells) - len(words)
        missing = [f"{open_cells} of {len(self.plan.cells)} not measured"] if open_cells else []
        return f"{', '.join([*counts, *missing])} in {self.elapsed_s:.0f} s"


def noted(outcome: GateOutcome) -> tuple[Noted, ...]:
    """A report's record of each check, under the check's name."""
    return tuple(Noted(f"{r.cell.name} {r.cell.what}", _record(r)) for r in outcome.results)


def _record(result: CellResult) -> AnyRecord:
    if result.verdict is not None:
        return result.verdict
    what = f"{result.cell.name} {result.cell.what}"
    if result.error is None:
        return BrokenRecord(outcome=NOT_RUN, subject=what, found="")
    return broken_record(what, result.error, NOT_RUN)


def facts(outcome: GateOutcome) -> GateFacts:
    """The outcome of the gate as a whole, and the facts of each check that its record lacks."""
    return GateFacts(
        baseline=outcome.builds[0],
        candidate=outcome.builds[1],
        limits=outcome.limits,
        answer=outcome.answer,
        counts=outcome.headline,
        exit_code=int(outcome.exit_code),
        elapsed_s=outcome.elapsed_s,
        interrupted=outcome.interrupted,
        checks=tuple(
            CheckFacts(
                workload=result.cell.name,
                model=result.cell.what,
                settings=result.cell.ref.spec.settings.as_texts(),
                elapsed_s=result.elapsed_s,
            )
            for result in outcome.results
        ),
        left_out=tuple(
            LeftOutFacts(check=left.what, reason=left.reason) for left in outcome.plan.left_out
        ),
    )
