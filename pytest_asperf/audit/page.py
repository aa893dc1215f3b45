"""An audit as sections of checks, the form in which every command of ours shows its findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.guards import Consequence
from pytest_asperf.errors import printable
from pytest_asperf.report.sections import CheckLine, Section, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.audit.result import Audit, FileFindings

_STATES: Final[dict[Consequence, State]] = {
    Consequence.INVALID: "invalid",
    Consequence.INCONCLUSIVE: "inconclusive",
    Consequence.WARNING: "warning",
}
_NAME: Final = 100
_TEXT: Final = 300
#: Lines of each kind that one file is shown with; JSON has all.
_MOST: Final = 40


def sections(audit: Audit) -> tuple[Section, ...]:
    """A section for each file, and for files compared with one another."""
    return tuple(
        Section(_title(findings), tuple(_checks(findings)))
        for findings in (*audit.files, *audit.together)
    )


def _title(findings: FileFindings) -> str:
    kind = f": {printable(findings.format, _TEXT)}" if findings.format else ""
    return f"{printable(findings.title, _TEXT)}{kind}"


def _checks(findings: FileFindings) -> Iterator[CheckLine]:
    if findings.problem:
        yield CheckLine("not read", "unknown", printable(findings.problem, _TEXT))
    for name, text in findings.ran:
        yield CheckLine(name, "measured", printable(text, _TEXT))
    for figure in findings.figures[:_MOST]:
        yield CheckLine(printable(figure.name, _NAME), "measured", printable(figure, _TEXT))
    for about, guard_finding in findings.guard_findings[:_MOST]:
        detail = f"{printable(about, _NAME)}: {printable(guard_finding.found, _TEXT)}"
        yield CheckLine(
            guard_finding.guard,
            _STATES[guard_finding.consequence],
            f"{detail} (rule: {guard_finding.rule})",
            guard_finding.remedy,
        )
    for note in findings.notes[:_MOST]:
        yield CheckLine("note", "measured", printable(note, _TEXT))
    left = sum(
        max(len(kind) - _MOST, 0)
        for kind in (findings.figures, findings.guard_findings, findings.notes)
    )
    if left:
        yield CheckLine("note", "measured", f"{left} more lines are shown by --json")
