"""What a page shows of a JSON report: claims, what was measured for each, and series to draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.report.speculation_points import SpeculationPoint

#: A cell of a gate that was planned and could not be measured.
NOT_RUN: Final = "NOT RUN"
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
class JudgedFigure:
    """A judged estimate, with the limits of what is accepted; None is no limit, or not known."""

    label: str
    estimate: Estimate
    at_least: float | None
    at_most: float | None


@dataclass(frozen=True, slots=True)
class Series:
    """Values in the order they were measured, and the estimate that was made of them."""

    label: str
    counted: str
    values: tuple[float, ...]
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class PairCourse:
    """The pairs of a comparison in the order they ran.

    Attributes:
        sides: names of what ran as baseline and as candidate.
        timed: the workload.
        unit: of the medians.
        medians: of all turns of each side.
        ratios: of the typical turn of each pair.
        total_ratios: of the total time of each pair.
        candidate_first: whether the candidate began the pair.
        evidence: after each pair, for a FAIL and for a PASS, as multiples of what each needs.
    """

    sides: tuple[str, str]
    timed: str
    unit: str
    medians: tuple[float, float]
    ratios: tuple[float, ...]
    total_ratios: tuple[float, ...]
    candidate_first: tuple[bool, ...]
    evidence: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row that nothing judged."""

    test: str
    model: str
    subject: str
    measured: str
    basis: str
    note: str
    series: Series | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """One verdict, with what it rests on; the texts are those of its row."""

    test: str
    subject: str
    threshold: str
    outcome: str
    source: str
    measured: str
    basis: str
    note: str
    advice: str
    details: tuple[str, ...]
    ran: tuple[tuple[str, str], ...]
    published: str
    statement: str
    repeat: str
    figures: tuple[JudgedFigure, ...]
    series: tuple[Series, ...]
    pairs: PairCourse | None


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
    """One JSON report, checked.

    Attributes:
        document: the report itself.
        name: of its file.
        machine: the hardware that its figures are of; empty where it is not known.
        facts: when, where and how it was run, as label and text.
        headline: what the session measured with.
        claims: in the order of the session.
        measurements: likewise.
        level_sets: of models of which several levels were measured.
        speculation: measurements of speculation.
        timed: times and rates that were not measured in pairs.
        records: its claims as a table, and its measurements as another.
        history: of a report that was stored, the series that it adds to.
    """

    document: Mapping[str, Any]
    name: str
    machine: str
    facts: tuple[tuple[str, str], ...]
    headline: tuple[str, ...]
    claims: tuple[Claim, ...]
    measurements: tuple[Measurement, ...]
    level_sets: tuple[LevelSet, ...]
    speculation: tuple[SpeculationPoint, ...]
    timed: tuple[Timed, ...]
    records: tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
    history: tuple[Series, ...] = ()
