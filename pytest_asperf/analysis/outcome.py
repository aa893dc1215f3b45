"""The four outcomes of an assertion, and the exit codes of commands."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Final, NoReturn, Self

from pytest_asperf.errors import SilentError

#: The word of a check of a gate that was planned and could not be measured.
NOT_RUN: Final = "NOT RUN"


class Outcome(StrEnum):
    """The four verdicts; INCONCLUSIVE and INVALID never count as a pass."""

    PASS = "PASS"  # noqa: S105  # a verdict, not a password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"

    def __bool__(self) -> NoReturn:
        raise SilentError(
            f"the outcome {self} is used as a truth value",
            why="it would be true for every verdict",
            remedy='write `assert verdict`, or `assert verdict.outcome == "PASS"`',
        )


class Decision(StrEnum):
    """The end of a sequential test; None before it."""

    PASS = "PASS"  # noqa: S105  # as above
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


class ExitCode(IntEnum):
    """How a command ended; one meaning in all commands."""

    DONE = 0, "done; if anything was judged, all of it is a PASS"
    FAIL = 1, "FAIL: slower, worse, broken, too large; or what was searched for was not found"
    INCONCLUSIVE = 2, "INCONCLUSIVE: the measurement did not decide"
    USAGE = 3, "the command, a file or a setting is not usable as written"
    INVALID = 4, "INVALID, or it could not be measured"
    INTERRUPTED = 130, "stopped by Ctrl-C, SIGTERM or SIGHUP"

    meaning: str

    def __new__(cls, code: int, meaning: str = "") -> Self:
        """A code with its meaning."""
        one = int.__new__(cls, code)
        one._value_, one.meaning = code, meaning
        return one

    @classmethod
    def of(cls, words: Iterable[str]) -> ExitCode:
        """The code for several verdicts: a FAIL decides, then INVALID or a missing measurement."""
        outcomes = set(words)
        if Outcome.FAIL in outcomes:
            return cls.FAIL
        if outcomes - {Outcome.PASS, Outcome.INCONCLUSIVE}:
            return cls.INVALID
        return cls.INCONCLUSIVE if Outcome.INCONCLUSIVE in outcomes else cls.DONE
