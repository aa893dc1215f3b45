"""The four outcomes of a claim."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

#: The word of a check of a gate that was planned and could not be measured.
NOT_RUN: Final = "NOT RUN"


class Outcome(StrEnum):
    """The four verdicts; neither of the last two ever counts as a pass."""

    PASS = "PASS"  # noqa: S105  # a verdict, not a password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"
