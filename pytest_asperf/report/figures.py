"""The figures of a page: levels of a model, speculation, machines and engines beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_asperf.report.charts import bars, gains, levels
from pytest_asperf.report.claim_card import exact
from pytest_asperf.report.markup import element, table
from pytest_asperf.report.report_data import SideBySide
from pytest_asperf.report.speculation_points import cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from xml.etree.ElementTree import Element

    from pytest_asperf.analysis.stats.estimate import Estimate
    from pytest_asperf.records.kinds import SpeculationRecord
    from pytest_asperf.report.report_data import LevelSet, ReportData, Timed

    Found = dict[str, dict[str, dict[str, Estimate]]]


def figures(report: ReportData) -> list[Element]:
    """The measurements of a report, in figures of several measurements each."""
    drawn = [*map(_level_figure, report.level_sets)]
    drawn += map(_side_by_side, by_engine(report.timed))
    if report.speculation:
        drawn.append(_gain_figure(report.speculation))
    return _section("Figures", drawn)


def machines(reports: Sequence[ReportData]) -> list[Element]:
    """The results of several machines, side by side."""
    return _section("Machines", list(map(_side_by_side, by_machine(reports))))


def _section(title: str, drawn: Sequence[Element]) -> list[Element]:
    return [element("h2", title), element("div", drawn, class_="figures")] if drawn else []


def _side_by_side(found: SideBySide) -> Element:
    rows = (
        element(
            "tr",
            element("th", model),
            (element("td", exact(of[name]) if name in of else "") for name in found.names),
        )
        for model, of in found.models.items()
    )
    better = "more" if found.unit == "tok/s" else "less"
    return element(
        "figure",
        element("h3", found.workload),
        bars(found),
        element(
            "figcaption",
            f"{found.unit}, {better} is better. Thin lines are 90 % intervals. "
            "Not measured in pairs: no verdict rests on it.",
        ),
        element("div", table(("model", *found.names), rows), class_="wide"),
    )


def _level_figure(found: LevelSet) -> Element:
    rates = f"Bars: {found.workload}, tok/s (left axis). " if found.workload else ""
    rows = (
        element(
            "tr",
            element("th", level.name),
            element("td", "" if level.rate is None else exact(level.rate)),
            element(
                "td",
                _baseline(found, level.name) if level.delta_ppl is None else exact(level.delta_ppl),
            ),
        )
        for level in found.levels
    )
    heads = ("level", found.workload, f"ΔPPL against {found.baseline}")
    return element(
        "figure",
        element("h3", found.model),
        levels(found),
        element(
            "figcaption",
            f"{rates}Line: ΔPPL against {found.baseline}"
            f"{' (right axis)' if rates else ''}. Upright lines are 90 % intervals.",
        ),
        element("div", table(heads, rows), class_="wide"),
    )


def _baseline(found: LevelSet, name: str) -> str:
    return "baseline" if name == found.baseline else ""


def _gain_figure(points: Sequence[SpeculationRecord]) -> Element:
    rows = (
        element("tr", element("td", str(n)), element("td", point.label, class_="name"), found)
        for n, point in enumerate(points, start=1)
        for found in [[element("td", cell) for cell in cells(point)]]
    )
    heads = ("", "pair", "ratio", "gain", "predicted", "accepted", "even at", "best k")
    return element(
        "figure",
        element("h3", "Speculative decoding"),
        None if all(point.is_invalid for point in points) else gains(points),
        element(
            "figcaption",
            "Gain in rate over the target alone, with its 90 % interval; the short line is the "
            "gain that acceptance and costs predict, and the curve predicts it for drafts of other "
            "speeds that are accepted as often. Dashed: the rule of thumb, a ratio of 2.5 x.",
        ),
        element("div", table(heads, rows), class_="wide"),
        class_="across",
    )


def by_machine(reports: Sequence[ReportData]) -> list[SideBySide]:
    """The workloads that two machines or more measured on a model; of one machine its last report.

    Machines of one kind are told apart by their names on the network.
    """
    hosts: dict[str, set[str]] = {}
    for report in reports:
        hosts.setdefault(report.machine, set()).add(dict(report.facts).get("host", ""))
    found: Found = {}
    for report in reports:
        host = dict(report.facts).get("host", "")
        name = f"{report.machine} {host}" if len(hosts[report.machine]) > 1 else report.machine
        for timed in report.timed:
            _add(found, timed.workload, timed.model, name or host, timed.estimate)
    return list(_compared(found))


def by_engine(timed: Iterable[Timed]) -> list[SideBySide]:
    """The workloads that two engines or more ran on a model."""
    found: Found = {}
    for one in timed:
        _add(found, one.workload, one.address, one.engine, one.estimate)
    return list(_compared(found))


def _add(found: Found, workload: str, model: str, name: str, estimate: Estimate) -> None:
    found.setdefault(workload, {}).setdefault(model, {})[name] = estimate


def _compared(found: Found) -> Iterator[SideBySide]:
    for workload, models in found.items():
        several = {model: of for model, of in models.items() if len(of) > 1}
        names = dict.fromkeys(name for of in several.values() for name in of)
        # Times and rates have no common axis, whatever a file says of a workload.
        units = {estimate.unit for of in several.values() for estimate in of.values()}
        for unit in units if len(units) == 1 else ():
            yield SideBySide(workload, unit, tuple(names), several)
