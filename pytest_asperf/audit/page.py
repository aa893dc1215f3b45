"""An audit as sections of checks, the form in which every command of ours shows its findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.guards import Consequence
from pytest_asperf.errors import printable
from pytest_asperf.report.sections import CheckLine, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.audit.result import Audit, FileFindings
    from pytest_asperf.report.sections import State

_STATES: Final[dict[Consequence, State]] = {
    Consequence.INVALID: "invalid",
    Consequence.INCONCLUSIVE: "inconclusive",
    Consequence.WARNING: "warning",
}
_NAME: Final = 60
_TEXT: Final = 300
#: Lines of each kind that one file is shown with; JSON has all.
_MOST: Final = 40


def sections(audit: Audit) -> tuple[Section, ...]:
    """Return what an audit shows: a section for each file, and for files seen together."""
    return tuple(
        Section(_title(found), tuple(_checks(found))) for found in (*audit.files, *audit.together)
    )


def _title(found: FileFindings) -> str:
    kind = f": {printable(found.format, _TEXT)}" if found.format else ""
    return f"{printable(found.title, _TEXT)}{kind}"


def _checks(found: FileFindings) -> Iterator[CheckLine]:
    if found.problem:
        yield CheckLine("not read", "unknown", printable(found.problem, _TEXT))
    for name, text in found.ran:
        yield CheckLine(name, "measured", printable(text, _TEXT))
    for figure in found.figures[:_MOST]:
        yield CheckLine(printable(figure.name, _NAME), "measured", printable(figure, _TEXT))
    for about, guard_finding in found.guard_findings[:_MOST]:
        detail = f"{printable(about, _NAME)}: {printable(guard_finding.found, _TEXT)}"
        yield CheckLine(
            guard_finding.guard,
            _STATES[guard_finding.consequence],
            f"{detail} (rule: {guard_finding.rule})",
        )
    for note in found.notes[:_MOST]:
        yield CheckLine("note", "measured", printable(note, _TEXT))
    left = sum(
        max(len(kind) - _MOST, 0) for kind in (found.figures, found.guard_findings, found.notes)
    )
    if left:
        yield CheckLine("note", "measured", f"{left} more lines are shown by --json")
