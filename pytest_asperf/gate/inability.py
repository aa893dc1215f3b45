"""A candidate that cannot do what the baseline does: found by trials after an error.

An error of a comparison alone does not say whose it is, nor whether it comes again. So the smallest
unit of the experiment is tried with each side by itself: baseline, candidate, baseline, candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict
from pytest_asperf.engine_process import EngineRefusedError
from pytest_asperf.errors import AsperfError, EngineError
from pytest_asperf.measure.experiment import Trial

if TYPE_CHECKING:
    from pytest_asperf.measure.experiment import PairedExperiment
    from pytest_asperf.measure.runner import ComparedSide, MeasurementRunner

_TRIALS: Final = 2
#: A candidate hangs if a call takes so many times as long as all of the baseline's trial, and
#: longer than this.
_PATIENCE: Final = 20
_LEAST_PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of trials of both sides.

    Attributes:
        failures: how the candidate failed, each after a trial in which the baseline did not.
        remark: why they are too few, empty if they are not.
    """

    failures: tuple[EngineError, ...]
    remark: str = ""


def tried(
    runner: MeasurementRunner,
    sides: tuple[ComparedSide, ComparedSide],
    experiment: PairedExperiment[Any],
) -> Tried:
    """Try the smallest unit of an experiment with each side in turn.

    Raises:
        AsperfError: a trial broke for a reason that is not the engine's.
    """
    base, candidate = sides
    failures: list[EngineError] = []
    for number in range(_TRIALS):
        try:
            took_s = runner.compare((base,), Trial(experiment, number))
        except EngineError as error:
            return Tried(tuple(failures), f"the baseline {_manner(error)} too, when it was tried")
        patience_s = max(_LEAST_PATIENCE_S, _PATIENCE * took_s)
        try:
            runner.compare((candidate,), Trial(experiment, number, patience_s))
        except EngineError as error:
            failures.append(error)
        else:
            return Tried(tuple(failures), "both builds ran when they were tried again")
    return Tried(tuple(failures))


def shows_a_build(error: AsperfError) -> bool:
    """True if an error may be a build's fault, and not that of an engine that is not installed.

    Libraries that do not fit the llama-cpp-python that loads them are no fault of the build either.
    """
    if isinstance(error, EngineRefusedError) and error.kind == "import":
        return "ModuleNotFoundError" not in error.what
    is_of_setup = getattr(error, "kind", "") in {"tools", "libraries"}
    return isinstance(error, EngineError) and not is_of_setup


def inability(subject: Subject, failures: tuple[EngineError, ...]) -> Verdict:
    """The verdict on a candidate that failed where the baseline ran, with the log's last words."""
    last = failures[-1]
    how = list(dict.fromkeys(map(_manner, failures)))
    measured = f"candidate {_twice(last)}" if len(how) == 1 else f"candidate {', then '.join(how)}"
    return Verdict(
        Outcome.FAIL,
        subject,
        "runs as the baseline does",
        f"{measured}, baseline ran twice in between",
        (),
        "the candidate cannot do what the baseline does: find the change between the builds, or "
        "report it to the engine with the log above",
        (last.what, *(last.detail or "").splitlines()),
    )


def _twice(error: EngineError) -> str:
    return f"{error.did} twice{f' ({error.manner})' if error.manner else ''}"


def _manner(error: EngineError) -> str:
    return f"{error.did}{f' ({error.manner})' if error.manner else ''}"
