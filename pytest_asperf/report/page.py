"""One self-contained page of JSON reports: verdicts, claims, what was measured, and what ran.

Nothing of it is computed here: texts are those of the report, and charts are drawn of its figures.
"""

from __future__ import annotations

from collections import Counter
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import printable
from pytest_asperf.report.charts import mini_intervals, runs
from pytest_asperf.report.claim_card import badge, card, notes
from pytest_asperf.report.figures import figures, machines
from pytest_asperf.report.markup import element, serialised, table
from pytest_asperf.report.report_data import OUTCOMES
from pytest_asperf.report.svg import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from xml.etree.ElementTree import Element

    from pytest_asperf.records.kinds import JudgedFigure
    from pytest_asperf.report.lines import Line
    from pytest_asperf.report.report_data import ReportData

#: The page loads nothing and runs nothing, whatever a name in it holds.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_MEANINGS: Final = (
    ("PASS", "the claim is shown to hold"),
    ("FAIL", "the claim is shown not to hold"),
    ("INCONCLUSIVE", "the runs show neither"),
    ("INVALID", "the measurement is broken, so its figures decide nothing"),
)
#: Characters of a name in the overview; its card has more.
_LONGEST: Final = 100
#: Intervals of one claim in the overview.
_MOST_ALIKE: Final = 6


def page(reports: Sequence[ReportData]) -> bytes:
    """The page of one or more reports."""
    claims = [claim for report in reports for claim in report.claims]
    counts = Counter(claim.outcome for claim in claims)
    answer = ", ".join(f"{counts[word]} {word}" for word in OUTCOMES if counts[word])
    answer = answer or "no claim was judged"
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
        element("header", element("p", "pytest-asperf", class_="kicker"), element("h1", answer)),
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
        element("h2", "Claims") if numbered else None,
        (card(claim, anchor, firsts[claim.facts]) for anchor, claim in numbered),
        _unjudged(report),
        _history(report),
    )


def _facts(report: ReportData) -> list[Element]:
    terms = [
        part
        for label, text in report.facts
        for part in (element("dt", label), element("dd", text, class_=label))
    ]
    lines = element("ul", (element("li", line) for line in report.headline), class_="headline")
    early = "The file names neither time nor machine."
    return [
        element("dl", terms, class_="facts") if terms else element("p", early, class_="quiet"),
        *([lines] if report.headline else []),
    ]


def _overview(numbered: Sequence[tuple[str, Line]]) -> Element:
    heads = ("verdict", "claim", "measured", "interval and limit", "from")
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
    """Measurements of tests that claim nothing."""
    claimed = {claim.test for claim in report.claims}
    alone = [m for m in report.measurements if m.test not in claimed]
    if not alone:
        return []
    blocks = []
    for test, found in groupby(alone, key=lambda measurement: measurement.test):
        blocks += [element("h3", test, class_="test"), *_measured(list(found))]
    return [element("h2", "Measured without a claim"), *blocks]


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
        element("figure", element("h3", series.label), runs(series)) for series in report.history
    )
    said = "Each dot is a session. The band is the interval of the last one, which is this report."
    heading = element("h2", "History")
    return [heading, element("p", said, class_="quiet"), element("div", drawn, class_="charts")]


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
            "that is shown: a claim passes if all of it is accepted (the shaded area), and fails "
            "if none of it is. Texts and figures are those of the JSON report.",
        ),
    )
