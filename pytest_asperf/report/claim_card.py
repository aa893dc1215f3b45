"""The card of one assertion: verdict, charts, reason if it is not decided, and run record."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final
from xml.etree.ElementTree import Element

from pytest_asperf.analysis.facts import ComparedPairs
from pytest_asperf.analysis.results import JudgedFigure
from pytest_asperf.analysis.stats.estimate import Estimate, number_text
from pytest_asperf.records.kinds import SIDES, both_sides
from pytest_asperf.report import charts
from pytest_asperf.report.lines import Line, Series
from pytest_asperf.report.markup import element, shortened, shown, table, whole

#: More charts or rows than these would hide the others.
_MOST_SERIES: Final = 6
_MOST_FIGURES: Final = 16
#: Characters of a name; the table of figures has all of it.
_LONGEST: Final = 240


def card(claim: Line, anchor: str, same: tuple[str, Line]) -> Element:
    """The card of an assertion, which links find by `anchor`.

    `same` is the first card with an equal run record, and its assertion: the record is shown there.
    """
    passed, name = claim.outcome == "PASS", shortened(claim.subject, _LONGEST)
    return element(
        "article",
        element("h3", badge(claim.outcome), f" {name} ", element("em", claim.threshold)),
        element("p", claim.test, class_="test"),
        (element("p", f"{name}: {text}", class_="quiet") for name, text in claim.about.items()),
        element("p", f"fails no test: {claim.excused}", class_="quiet") if claim.excused else None,
        element("p", claim.measured, _basis(claim), class_="measured"),
        element("p", _variants(claim.pairs)) if claim.pairs else None,
        None if passed or not claim.advice else _advice(claim.advice),
        element("div", _charts(claim), class_="charts"),
        _figures(claim),
        _details(claim),
        _ran(claim) if same[0] == anchor else _link_to(*same),
        _repeat(claim),
        class_=f"card {_class(claim.outcome)}",
        id=anchor,
    )


def badge(outcome: str) -> Element:
    """An outcome in its colour."""
    return element("span", outcome, class_=f"badge {_class(outcome)}")


def exact(estimate: Estimate) -> Element:
    """An estimate as text, with its exact point for programs."""
    return element("data", estimate.text(), value=repr(estimate.point))


def notes(text: str) -> Element:
    """Remarks, one a line."""
    return element("ul", (element("li", line) for line in text.splitlines()), class_="notes")


def _class(outcome: str) -> str:
    return outcome.lower().replace(" ", "-")


def _basis(claim: Line) -> str:
    origin = [] if claim.source == "live" else [claim.source]
    basis = [*([claim.basis] if claim.basis else []), *origin]
    return f" ({', '.join(basis)})" if basis else ""


def _advice(text: str) -> Element:
    return element("p", element("strong", "Remedy: "), text, class_="advice")


def _charts(claim: Line) -> Iterator[Element]:
    figures = claim.figures[:_MOST_FIGURES]
    for _, of_unit in groupby(figures, key=lambda figure: figure.estimate.unit):
        same = list(of_unit)
        yield _chart(charts.intervals(same, claim.outcome), _interval_caption(claim, same))
    if claim.pairs is not None:
        figure = next(iter(figures), None)
        order = f"in the order they ran; hollow where {claim.pairs.variants[1]} ran first"
        yield _chart(charts.pairs(claim.pairs, figure), f"Each pair's ratio {order}.")
        yield _chart(charts.evidence(claim.pairs), _evidence_caption())
    for series in claim.series[:_MOST_SERIES]:
        if len(series.values) > 1:
            yield _chart(charts.runs(series), _runs_caption(series))


def _chart(drawn: Element, caption: str | Sequence[Element | str]) -> Element:
    return element("figure", drawn, element("figcaption", caption))


def _interval_caption(claim: Line, figures: Sequence[JudgedFigure]) -> str:
    limits = list(dict.fromkeys(text for figure in figures for text in _limits(figure)))
    percent = 100 * figures[0].estimate.confidence
    unit = figures[0].estimate.unit
    of_unit = f", {unit}" if unit not in {"", "change", "share"} else ""
    interval = "Exact value" if figures[0].estimate.is_exact else f"{percent:.3g} % interval"
    accepted = f"; accepted (shaded): {', '.join(limits)}" if limits else ""
    is_one_of_several = len(figures) == 1 < len(claim.figures)
    label = f"{figures[0].label}: " if is_one_of_several else ""
    return f"{label}{interval}{of_unit}{accepted}."


def _limits(figure: JudgedFigure) -> list[str]:
    words = (("at least", figure.at_least), ("at most", figure.at_most))
    unit = figure.estimate.unit
    return [f"{word} {shown(limit, unit)}" for word, limit in words if limit is not None]


def _variants(course: ComparedPairs) -> Iterator[Element | str]:
    yield f"{course.timed}, median of all runs: "
    for variant, middle in zip(course.variants, course.medians, strict=True):
        yield element("data", f"{number_text(middle, 4)} {course.unit}", value=repr(middle))
        yield f" {variant}{', ' if variant == course.variants[0] else ''}"


def _evidence_caption() -> list[Element | str]:
    fail, accept = (element("b", word, class_=word.lower()) for word in ("FAIL", "PASS"))
    unit = ", as a multiple of the least that each needs (dashed: 1)."
    return ["Evidence after each pair for ", fail, " and for ", accept, unit]


def _runs_caption(series: Series) -> str:
    interval = ", shaded: its interval" if series.estimate.has_interval else ""
    label, one = shortened(series.label, _LONGEST // 2), series.counted
    return f"{label}, {one} by {one}. Line: the estimate{interval}."


def _figures(claim: Line) -> Element | None:
    """Every judged figure with its exact numbers."""
    if not claim.figures:
        return None
    rows = (
        element(
            "tr",
            element("th", figure.label),
            element("td", exact(figure.estimate)),
            element("td", ", ".join(_limits(figure))),
            element("td", figure.estimate.basis),
            element("td", figure.estimate.method),
        )
        for figure in claim.figures
    )
    heads = ("figure", "value and interval", "accepted", "from", "method")
    return _folded("Figures", table(heads, rows))


def _details(claim: Line) -> Element | None:
    lines = [*claim.details, *claim.note.splitlines()]
    if not lines:
        return None
    listed = element("ul", (element("li", line) for line in dict.fromkeys(lines)), class_="notes")
    title = "Why" if claim.outcome == "INVALID" else "Remarks"
    return _folded(title, listed, is_open=claim.outcome != "PASS")


def _ran(claim: Line) -> Element | None:
    if not claim.facts:
        return None
    if all(label.startswith(SIDES) or label == "text" for label, _ in claim.facts):
        facts = table(("", "baseline", "candidate"), _both(claim), class_="ran")
    else:
        rows = (element("tr", element("th", k), element("td", text)) for k, text in claim.facts)
        facts = table((), rows, class_="ran")
    return _folded("Run record", facts)


def _link_to(anchor: str, claim: Line) -> Element | None:
    if not claim.facts:
        return None
    link = element("a", f"as for {shortened(claim.subject, _LONGEST // 2)}", href=f"#{anchor}")
    return element("p", "Run record: ", link, class_="quiet")


def _both(claim: Line) -> Iterator[Element]:
    """The facts of two builds side by side, marked if they differ."""
    for label, *sides in both_sides(claim.facts):
        cells = (element("td", text) for text in sides)
        differs = "differs" if sides[0] != sides[1] else None
        yield element("tr", element("th", label), cells, class_=differs)


def _repeat(claim: Line) -> Element | None:
    if not claim.repeat:
        return None
    return element("p", "repeat: ", element("code", whole(claim.repeat.split())), class_="repeat")


def _folded(title: str, content: Element, *, is_open: bool = False) -> Element:
    attributes = {"open": ""} if is_open else {}
    folded = element("div", content, class_="wide")
    return element("details", element("summary", title), folded, **attributes)
