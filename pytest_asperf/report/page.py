"""One self-contained page of JSON reports: verdicts, assertions, measurements, run records.

Nothing of it is computed here: texts are those of the report, and charts are drawn of its figures.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import groupby
from typing import Final
from xml.etree.ElementTree import Element

from pytest_asperf.analysis.results import JudgedFigure
from pytest_asperf.analysis.stats.estimate import CHANGE, RATIO, SHARE, Estimate
from pytest_asperf.errors import printable
from pytest_asperf.records.kinds import SpeculationRecord
from pytest_asperf.report.charts import bars, gains, levels, mini_intervals, runs
from pytest_asperf.report.claim_card import badge, card, exact, notes
from pytest_asperf.report.lines import Line, Series
from pytest_asperf.report.markup import Child, element, serialised, shortened, table, whole
from pytest_asperf.report.measurements import cells
from pytest_asperf.report.report_data import OUTCOMES, LevelSet, ReportData, SideBySide, Timed

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
    heads = ("quantization", found.workload, f"ΔPPL against {found.baseline}")
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
    heads = ("", "pair", "ratio", "gain", "predicted", "accepted", "break-even", "best k")
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

    Machines of one kind are distinguished by their names on the network.
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
        # Times and rates have no common axis, for any workload in a file.
        units = {estimate.unit for of in several.values() for estimate in of.values()}
        for unit in units if len(units) == 1 else ():
            yield SideBySide(workload, unit, tuple(names), several)


#: The page loads nothing and runs nothing, for any name in it.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_MEANINGS: Final = (
    ("PASS", "the assertion is shown true"),
    ("FAIL", "the assertion is shown false"),
    ("INCONCLUSIVE", "the runs show neither"),
    ("INVALID", "the measurement is broken, so its figures decide nothing"),
)
#: Characters of a name in the overview; its card has more.
_LONGEST: Final = 100
#: Intervals of one assertion in the overview.
_MOST_ALIKE: Final = 6


def page(reports: Sequence[ReportData]) -> bytes:
    """The page of one or more reports."""
    claims = [claim for report in reports for claim in report.claims]
    counts = Counter(claim.outcome for claim in claims)
    answer = ", ".join(f"{counts[word]} {word}" for word in OUTCOMES if counts[word])
    answer = answer or "no assertion was judged"
    style = element("style")
    style.text = files(__package__).joinpath("page.css").read_text("utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", f"{answer} · pytest-asperf"),
        style,
    )
    names = _distinct([report.name for report in reports])
    body = element(
        "body",
        element(
            "header",
            element("p", "pytest-asperf", class_="kicker"),
            element("h1", whole(re.split("(?<=,) ", answer))),
        ),
        _strip(counts) if claims else None,
        machines(reports),
        (_report(report, f"r{n}", names[n], len(reports)) for n, report in enumerate(reports)),
        _footer(),
    )
    return serialised(element("html", head, body, lang="en"))


def _distinct(names: Sequence[str]) -> list[str]:
    twins = Counter(names)
    return [f"{name} ({n})" if twins[name] > 1 else name for n, name in enumerate(names, start=1)]


def _strip(counts: Counter[str]) -> Element:
    """One bar that is divided as the verdicts are."""
    parts = (
        element(
            "span",
            f"{counts[word]} {word}",
            class_=word.lower().replace(" ", "-"),
            style=f"flex-grow:{counts[word]}",
        )
        for word in OUTCOMES
        if counts[word]
    )
    return element("div", parts, class_="strip")


def _report(report: ReportData, prefix: str, name: str, n_reports: int) -> Element:
    worst_first = sorted(
        enumerate(report.claims), key=lambda numbered: OUTCOMES.index(numbered[1].outcome)
    )
    numbered = [(f"{prefix}-{n + 1}", claim) for n, claim in worst_first]
    firsts = {claim.facts: (anchor, claim) for anchor, claim in reversed(numbered)}
    return element(
        "section",
        element("h2", name) if n_reports > 1 else None,
        _facts(report),
        _overview(numbered) if numbered else None,
        figures(report),
        element("h2", "Assertions") if numbered else None,
        (card(claim, anchor, firsts[claim.facts]) for anchor, claim in numbered),
        _unjudged(report),
        _history(report),
    )


def _facts(report: ReportData) -> list[Element]:
    terms = [
        part
        for label, text in report.facts
        for part in (element("dt", label), element("dd", _value(label, text), class_=label))
    ]
    lines = element("ul", (element("li", line) for line in report.headline), class_="headline")
    early = "The file names neither time nor machine."
    return [
        element("dl", terms, class_="facts") if terms else element("p", early, class_="quiet"),
        *([lines] if report.headline else []),
    ]


def _value(label: str, text: str) -> Iterable[Child]:
    return whole(text.split()) if label == "command" else [text]


def _overview(numbered: Sequence[tuple[str, Line]]) -> Element:
    heads = ("verdict", "assertion", "measured", "interval and limit", "from")
    rows = (
        element(
            "tr",
            element("td", badge(claim.outcome)),
            element(
                "td",
                element("a", _in_short(claim), href=f"#{anchor}"),
                element("small", claim.test),
                class_="claim",
            ),
            element("td", printable(claim.measured, 160), class_="measured"),
            element(
                "td",
                mini_intervals(_alike(claim), claim.outcome) if claim.figures else None,
                class_="mini",
            ),
            element("td", claim.basis, class_="basis"),
        )
        for anchor, claim in numbered
    )
    return table(heads, rows, class_="overview")


def _in_short(claim: Line) -> str:
    return f"{shortened(claim.subject, _LONGEST)} {shortened(claim.threshold, _LONGEST)}"


def _alike(claim: Line) -> list[JudgedFigure]:
    """The first figure, and those that one axis can show with it."""
    unit = claim.figures[0].estimate.unit
    return [figure for figure in claim.figures if figure.estimate.unit == unit][:_MOST_ALIKE]


def _unjudged(report: ReportData) -> list[Element]:
    """Measurements of tests that assert nothing."""
    claimed = {claim.test for claim in report.claims}
    alone = [m for m in report.measurements if m.test not in claimed]
    if not alone:
        return []
    blocks = []
    for test, found in groupby(alone, key=lambda measurement: measurement.test):
        blocks += [element("h3", test, class_="test"), *_measured(list(found))]
    return [element("h2", "Measured without an assertion"), *blocks]


def _measured(found: Iterable[Line]) -> Iterator[Element]:
    for measurement in found:
        what = f"{measurement.model} {measurement.subject}: {measurement.measured}"
        yield element("p", what, f" ({measurement.basis})" if measurement.basis else "")
        if measurement.note:
            yield notes(measurement.note)
        for series in measurement.series:
            if len(series.values) > 1:
                yield element("div", element("figure", runs(series)), class_="charts")


def _history(report: ReportData) -> list[Element]:
    """The sessions before this one, of a report that was stored."""
    if not report.history:
        return []
    drawn = (
        element("figure", element("h3", _with_unit(series)), runs(series))
        for series in report.history
    )
    said = (
        "Each dot is a session. The band is the interval of the last one, which is this report. "
        "A ratio is one of times, candidate / baseline."
    )
    heading = element("h2", "History")
    return [heading, element("p", said, class_="quiet"), element("div", drawn, class_="charts")]


def _with_unit(series: Series) -> str:
    unit = series.estimate.unit
    return f"{series.label}, {unit}" if unit not in {"", RATIO, CHANGE, SHARE} else series.label


def _footer() -> Element:
    words = [
        part
        for word, text in _MEANINGS
        for part in (element("dt", badge(word)), element("dd", text))
    ]
    return element(
        "footer",
        element("h2", "How to read this page"),
        element("dl", words, class_="meanings"),
        element(
            "p",
            "An interval is two-sided, at the stated confidence. The verdict judges the interval "
            "that is shown: an assertion passes if all of it is accepted (the shaded area), and "
            "fails if none of it is. Texts and figures are those of the JSON report.",
        ),
    )
