"""The output of the command line: checks, the state of each, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_asperf.errors import AsperfError, printable
from pytest_asperf.hardware.conditions import Condition

#: `impossible` prevents any measurement, `warning` makes it less reliable, and `unknown` could not
#: be read, which differs from `ok`. `measured` is a figure without a judgement; `invalid` and
#: `inconclusive` are a guard's results for one.
State = Literal["ok", "warning", "unknown", "impossible", "measured", "invalid", "inconclusive"]


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One examined part: its state, and a remedy if it needs one."""

    name: str  #: the part
    state: State  #: how it is
    detail: str  #: the finding, or a command
    remedy: str = ""  #: what to do, empty if nothing
    is_command: bool = False  #: whether the detail is a command, which is not broken


@dataclass(frozen=True, slots=True)
class Section:
    """Checks that belong together."""

    title: str
    checks: tuple[CheckLine, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why something is not available, and the remedy."""

    what: str
    remedy: str

    @classmethod
    def of(cls, error: AsperfError) -> Failure:
        """An error as a line shows it."""
        return cls(printable(error.what), printable(error.remedy))


def condition_check(condition: Condition) -> CheckLine:
    """How a condition of the machine is."""
    state: State = "warning" if condition.state == "disturbing" else condition.state
    detail, remedy = printable(condition.detail), printable(condition.remedy)
    return CheckLine(condition.name, state, detail, remedy)
