"""A report as pages show it: lines, series to draw, and measurements beside each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.outcome import NOT_RUN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.records.kinds import SpeculationRecord
    from pytest_asperf.records.report import Report
    from pytest_asperf.report.json_report import Claim
    from pytest_asperf.report.lines import Line, Series
    from pytest_asperf.report.measurements import Entry

#: In front of the label of a fact of what ran, where it is of one of two builds.
SIDES: Final = ("baseline ", "candidate ")
#: From the worst to the best.
OUTCOMES: Final = ("FAIL", "INVALID", NOT_RUN, "INCONCLUSIVE", "PASS")


def both_sides(ran: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Label, baseline and candidate of each fact of what ran; one that names no side is of both."""
    facts = dict(ran)
    for label in dict.fromkeys(key.removeprefix(SIDES[0]).removeprefix(SIDES[1]) for key in facts):
        base, candidate = (facts.get(f"{side}{label}", facts.get(label, "")) for side in SIDES)
        yield label, base, candidate


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a model: its rate and its ΔPPL, each None where it was not measured."""

    name: str
    rate: Estimate | None
    delta_ppl: Estimate | None


@dataclass(frozen=True, slots=True)
class LevelSet:
    """The levels of one model.

    Attributes:
        model: its name.
        workload: whose rates the levels have; empty where none has one.
        baseline: the level that ΔPPL is against.
        levels: from the largest file to the smallest, as far as sizes are known.
    """

    model: str
    workload: str
    baseline: str
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Timed:
    """One workload on one model, as a session measured it by itself."""

    model: str
    address: str
    engine: str
    workload: str
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class SideBySide:
    """One workload on several machines or engines.

    Attributes:
        workload: its name.
        unit: of the estimates.
        names: of the machines or engines, in the order of the reports.
        models: by model, what each of them came to; not every one measured every model.
    """

    workload: str
    unit: str
    names: tuple[str, ...]
    models: Mapping[str, Mapping[str, Estimate]]


@dataclass(frozen=True, slots=True)
class ReportData:
    """One report for a reader.

    Attributes:
        whole: the report that it is, or is a part of.
        name: of its file, or its machine.
        machine: the hardware that its figures are of; empty where it is not known.
        facts: when, where and how it was run, as label and text.
        headline: what the session measured with.
        claims: in the order of the session.
        measurements: likewise.
        level_sets: of models of which several levels were measured.
        speculation: measurements of speculation.
        timed: times and rates that were not measured in pairs.
        claim_table: its claims as a table.
        measured_table: its measurements as a table.
        history: of a report that was stored, the series that it adds to.
    """

    whole: Report
    name: str
    machine: str
    facts: tuple[tuple[str, str], ...]
    headline: tuple[str, ...]
    claims: tuple[Line, ...]
    measurements: tuple[Line, ...]
    level_sets: tuple[LevelSet, ...]
    speculation: tuple[SpeculationRecord, ...]
    timed: tuple[Timed, ...]
    claim_table: Sequence[Claim]
    measured_table: Sequence[Entry]
    history: tuple[Series, ...] = ()
