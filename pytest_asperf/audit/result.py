"""The result of an audit, and its exit code."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_asperf.analysis.guards import Consequence, GuardFinding
from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.analysis.stats.estimate import Estimate, number_text
from pytest_asperf.errors import printable

#: The method of an estimate from figures that do not differ.
EQUAL: Final = "mean, without an interval because all are equal"
_SCHEMA: Final = 1
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class AuditedFigure:
    """A figure: a `value` with its interval and a remark, or `text` if there is only a point."""

    name: str
    value: Estimate | None = None
    text: str = ""

    def __str__(self) -> str:
        return ", ".join(
            filter(None, ["" if self.value is None else _shown(self.value), self.text])
        )


@dataclass(slots=True)
class FileFindings:
    """Figures and guard findings of one file, or of several compared."""

    title: str
    format: str = ""
    problem: str = ""  #: why it could not be read; empty if it was
    #: the run record, as far as the file has it
    ran: list[tuple[str, str]] = field(default_factory=list)
    figures: list[AuditedFigure] = field(default_factory=list)
    #: guards that tripped, each with its subject
    guard_findings: list[tuple[str, GuardFinding]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _seen: Counter[str] = field(default_factory=Counter)

    def measured(self, name: str, value: Estimate | None = None, text: str = "") -> None:
        """Store a figure; a repeated name gets a number."""
        self._seen[name] += 1
        if (n := self._seen[name]) > 1:
            name += f" (again, {n})"
        self.figures.append(AuditedFigure(name, value, text))

    def add(self, about: str, guard_finding: GuardFinding | None) -> None:
        """Keep a guard that tripped."""
        if guard_finding is not None:
            self.guard_findings.append((about, guard_finding))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; text from outside is escaped and bounded."""
        return {
            "title": printable(self.title, _SHOWN),
            "format": self.format,
            "problem": printable(self.problem),
            "ran": {name: printable(text) for name, text in self.ran},
            "figures": [_figure_dict(figure) for figure in self.figures],
            "trips": [
                {
                    "about": printable(about, _SHOWN),
                    "guard": tripped.guard,
                    "consequence": str(tripped.consequence),
                    "found": printable(tripped.found),
                    "rule": tripped.rule,
                    "remedy": tripped.remedy,
                }
                for about, tripped in self.guard_findings
            ],
            "notes": [printable(note) for note in self.notes],
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """The findings by file, in the order given, and those by comparison between files."""

    files: tuple[FileFindings, ...]
    together: tuple[FileFindings, ...] = ()

    @property
    def guard_findings(self) -> Iterator[GuardFinding]:
        """Every guard that tripped."""
        for findings in (*self.files, *self.together):
            yield from (tripped for _, tripped in findings.guard_findings)

    @property
    def unread(self) -> int:
        """How many files could not be read."""
        return sum(bool(findings.problem) for findings in self.files)

    def count(self, consequence: Consequence) -> int:
        """How many guards tripped with a consequence."""
        return sum(tripped.consequence is consequence for tripped in self.guard_findings)

    @property
    def exit_code(self) -> ExitCode:
        """INVALID if a guard trips, otherwise USAGE if a file was not read, or INCONCLUSIVE."""
        if self.count(Consequence.INVALID):
            return ExitCode.INVALID
        if self.unread:
            return ExitCode.USAGE
        return ExitCode.INCONCLUSIVE if self.count(Consequence.INCONCLUSIVE) else ExitCode.DONE

    @property
    def headline(self) -> str:
        """The answer, in one line."""
        counts = [f"{n} {c}" for c in Consequence if (n := self.count(c))]
        read = len(self.files) - self.unread
        unread = f", {self.unread} not" if self.unread else ""
        files = f"{read} file{'' if read == 1 else 's'} read{unread}"
        return f"{files}; {', '.join(counts) or 'no guard tripped'}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "schema": _SCHEMA,
            "exit_code": self.exit_code,
            "headline": self.headline,
            "files": [findings.as_dict() for findings in self.files],
            "together": [findings.as_dict() for findings in self.together],
        }


def _shown(value: Estimate) -> str:
    """The figure with its interval, or with the digits of a tool's own if it has none."""
    if value.has_interval or value.low > -math.inf:
        return str(value)
    if value.method == EQUAL:
        reason = f"{value.n} equal {value.counted} show no spread"
    else:
        reason = f"too few {value.counted} for an interval"
    return f"{number_text(value.point, 4)} {value.unit} ({reason})"


def _figure_dict(figure: AuditedFigure) -> dict[str, Any]:
    value = figure.value
    data: dict[str, Any] = {"name": printable(figure.name, _SHOWN), "text": printable(figure)}
    if value is not None:
        bounds = [value.low, value.high] if value.has_interval else None
        data |= {
            "point": value.point,
            "interval": bounds,
            "confidence": value.confidence,
            "n": value.n,
            "counted": value.counted,
            "unit": value.unit,
            "method": value.method,
        }
    return data
