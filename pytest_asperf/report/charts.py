"""The charts of a page: intervals against limits, values in the order they were measured."""

import math
from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import Final
from xml.etree.ElementTree import Element

from pytest_asperf.analysis import speculation_model as sd_model
from pytest_asperf.analysis.facts import ComparedPairs
from pytest_asperf.analysis.results import JudgedFigure
from pytest_asperf.analysis.stats.estimate import CHANGE, Estimate
from pytest_asperf.records.kinds import SpeculationRecord
from pytest_asperf.report.lines import Series
from pytest_asperf.report.markup import WIDTH, Chart, Scale, number, shortened
from pytest_asperf.report.measurements import closed, predicted_at
from pytest_asperf.report.report_data import LevelSet, SideBySide

_LEFT: Final = 46.0
#: Half a tick's text at an axis without values on its left.
_EDGE: Final = 24.0
_RIGHT: Final = WIDTH - 8
_BAR: Final = 32.0
_SINGLE: Final = 56.0
_MINI: Final = 18.0
_PLOT: Final = 130.0
#: Characters of a label that are as wide as the chart.
_LABEL: Final = 56
#: Evidence below and above these multiples of the needed one is drawn at them.
_LEAST_EVIDENCE: Final = 1e-3
_MOST_EVIDENCE: Final = 1e3
_MOST_RATIO: Final = 40.0
#: Places that a curve is drawn through.
_STEPS: Final = 60
#: Heights of a model's name and of a bar, and the width of a machine's name next to it.
_HEAD: Final = 22.0
_ROW: Final = 18.0
_NAMES: Final = 190.0
_NAME: Final = 29
#: Characters of quantizations' names beyond which neighbours are on two lines.
_CROWDED: Final = 36


def intervals(figures: Sequence[JudgedFigure], outcome: str) -> Element:
    """Each figure's interval on one axis, with its accepted range as an area behind."""
    is_single = len(figures) == 1  # whose label is the assertion itself
    row = _SINGLE if is_single else _BAR
    bottom = 4 + row * len(figures)
    chart = Chart(bottom + 18, "interval against the limit")
    scale = Scale.around(chain.from_iterable(map(_extent, figures)), _EDGE, WIDTH - _EDGE)
    chart.axis_x(scale, bottom, figures[0].estimate.unit, 4)
    for top, figure in zip(count(4, row), figures, strict=False):
        if not is_single:
            chart.text(0, top + 11, shortened(figure.label, _LABEL))
        edges = (top if is_single else top + 14, top + row)
        _row(chart, scale, figure, edges, outcome.lower())
    return chart.drawn()


def mini_intervals(figures: Sequence[JudgedFigure], outcome: str) -> Element:
    """The same without words."""
    chart = Chart(_MINI * max(2, len(figures)))
    row = chart.height / len(figures)
    scale = Scale.around(chain.from_iterable(map(_extent, figures)), 4, WIDTH - 4)
    for top, figure in zip(count(0, row), figures, strict=False):
        _row(chart, scale, figure, (top, top + row), f"thick {outcome.lower()}")
    return chart.drawn()


def _row(
    chart: Chart, scale: Scale, figure: JudgedFigure, edges: tuple[float, float], class_: str
) -> None:
    _accepted(chart, scale, figure, *edges)
    _interval(chart, scale, figure.estimate, sum(edges) / 2, class_)


def _extent(figure: JudgedFigure) -> list[float]:
    of = figure.estimate
    limits = (figure.at_least, figure.at_most)
    return [of.point, of.low, of.high, *(limit for limit in limits if limit is not None)]


def _accepted(chart: Chart, scale: Scale, figure: JudgedFigure, y1: float, y2: float) -> None:
    limits = (figure.at_least, figure.at_most)
    if limits == (None, None):
        return
    low, high = limits
    x1 = scale.first if low is None else scale.at(low)
    x2 = scale.last if high is None else scale.at(high)
    chart.box("accepted", x1, y1, x2, y2)
    for limit in limits:
        if limit is not None:
            chart.line("limit", scale.at(limit), y1, scale.at(limit), y2)


def _interval(chart: Chart, scale: Scale, of: Estimate, y: float, class_: str) -> None:
    """The interval as a line with caps, or arrows if a bound is unknown, and the point."""
    x1, x2 = scale.at(of.low), scale.at(of.high)
    if of.low < of.high:
        ends = (_end(x, y, bound) for x, bound in ((x1, of.low), (x2, of.high)))
        chart.path(f"interval {class_}", f"M{number(x1)} {number(y)}H{number(x2)}{''.join(ends)}")
    chart.dots(f"point {class_}", [(scale.at(of.point), y)])


def _end(x: float, y: float, bound: float) -> str:
    """A cap, or an arrow's head if the bound is unknown."""
    if math.isfinite(bound):
        return f"M{number(x)} {number(y - 4)}v8"
    back = math.copysign(5, -bound)
    return f"M{number(x + back)} {number(y - 4)}l{-back:g} 4l{back:g} 4"


def runs(series: Series) -> Element:
    """Values in the order they were measured, over the interval of their estimate."""
    of = series.estimate
    chart = Chart(_PLOT + 30, f"{series.counted}s in the order they ran")
    y = Scale.around([*series.values, of.low, of.high, of.point], _PLOT, 8)
    x = _numbered(chart, y, len(series.values), of.unit, series.counted)
    if of.has_interval:
        chart.box("band", _LEFT, y.at(of.low), _RIGHT, y.at(of.high))
    chart.line("middle", _LEFT, y.at(of.point), _RIGHT, y.at(of.point))
    places = [(x.at(n), y.at(value)) for n, value in enumerate(series.values, start=1)]
    chart.dots("value", places)
    return chart.drawn()


def pairs(course: ComparedPairs, figure: JudgedFigure | None) -> Element:
    """The ratio of each pair in order; hollow where the candidate ran first."""
    is_total = figure is not None and figure.label == "total time"
    ratios = [pair.total_ratio if is_total else pair.ratio for pair in course.pairs]
    limits = [] if figure is None else [f for f in (figure.at_least, figure.at_most) if f]
    bounds = [] if figure is None else [figure.estimate.low, figure.estimate.high]
    chart = Chart(_PLOT + 30, "ratio of each pair in the order they ran")
    y = Scale.around([*ratios, *limits, *bounds, 1.0], _PLOT, 8)
    x = _numbered(chart, y, len(ratios), "", "pair")
    if figure is not None and figure.estimate.has_interval:
        chart.box("band", _LEFT, y.at(bounds[0]), _RIGHT, y.at(bounds[1]))
    chart.line("middle", _LEFT, y.at(1.0), _RIGHT, y.at(1.0))
    for limit in limits:
        chart.line("limit", _LEFT, y.at(limit), _RIGHT, y.at(limit))
    places = [(x.at(n), y.at(ratio)) for n, ratio in enumerate(ratios, start=1)]
    chart.dots("value", places)
    both = zip(places, course.pairs, strict=True)
    chart.dots("hollow", [place for place, pair in both if pair.candidate_first])
    return chart.drawn()


def evidence(course: ComparedPairs) -> Element:
    """The evidence for a FAIL and for a PASS after each pair, in multiples of the needed one."""
    chart = Chart(_PLOT + 30, "evidence after each pair")
    found = [(pair.evidence_for_fail or 0, pair.evidence_for_pass or 0) for pair in course.pairs]
    steps = [[min(max(e, _LEAST_EVIDENCE), _MOST_EVIDENCE) for e in of] for of in found]
    y = Scale.around([*chain.from_iterable(steps), 1.0], _PLOT, 8, is_log=True)
    x = _numbered(chart, y, len(steps), "", "pair")
    chart.line("limit", _LEFT, y.at(1.0), _RIGHT, y.at(1.0))
    for side, word in enumerate(("fail", "pass")):
        places = [(x.at(n), y.at(step[side])) for n, step in enumerate(steps, start=1)]
        chart.course(f"course {word}", places)
        chart.dots(f"small {word}", places[-1:])
    return chart.drawn()


def _numbered(chart: Chart, y: Scale, n: int, unit: str, counted: str) -> Scale:
    """Add axes for values that are numbered from 1, and give the horizontal scale."""
    x = Scale(0.5, n + 0.5, _LEFT, _RIGHT)
    chart.axis_y(y, (_LEFT, _RIGHT), unit)
    for tick in sorted(
        {1, *(round(t) for t in x.ticks(10 if n <= 10 else 6) if t >= 1 and t == round(t)), n}
    ):
        near_end = 0 < n - tick < n / 12
        if not near_end:
            chart.text(x.at(tick), _PLOT + 14, str(tick), "tx")
    chart.text((_LEFT + _RIGHT) / 2, _PLOT + 28, counted, "tx")
    return x


def levels(found: LevelSet) -> Element:
    """Rates of generation as bars, and ΔPPL as a line, over the quantizations of one model."""
    longest = max(len(level.name) for level in found.levels)
    is_crowded = longest * len(found.levels) > _CROWDED
    chart = Chart(_PLOT + (32 if is_crowded else 20), "rate of generation and ΔPPL by quantization")
    right = WIDTH - (_LEFT if found.workload else 8)
    width = (right - _LEFT) / len(found.levels)
    middles = [_LEFT + width * (n + 0.5) for n in range(len(found.levels))]
    deltas = Scale.around([0.0, *_bounds(level.delta_ppl for level in found.levels)], _PLOT, 14)
    if found.workload:
        _rate_bars(chart, found, middles, right)
        chart.axis_right(deltas, right, CHANGE)
    else:
        chart.axis_y(deltas, (_LEFT, right), CHANGE)
    _delta_line(chart, found, middles, deltas)
    for n, (x, level) in enumerate(zip(middles, found.levels, strict=True)):
        lower = 12.0 * (n % 2) if is_crowded else 0.0
        name = shortened(level.name, max(6, int(2 * width / 7)))
        chart.text(x, _PLOT + 14 + lower, name, "tx")
    return chart.drawn()


def _rate_bars(chart: Chart, found: LevelSet, middles: Sequence[float], right: float) -> None:
    half = 0.32 * (middles[1] - middles[0])
    highest = Scale.around([0.0, *_bounds(level.rate for level in found.levels)], 0, 1).high
    scale = Scale(0.0, highest, _PLOT, 14)
    chart.axis_y(scale, (_LEFT, right), "tok/s")
    for x, level in zip(middles, found.levels, strict=True):
        if level.rate is not None:
            chart.box("bar", x - half, _PLOT, x + half, scale.at(level.rate.point))
            _upright(chart, scale, level.rate, x + 0.6 * half, "on-bar")


def _delta_line(chart: Chart, found: LevelSet, middles: Sequence[float], scale: Scale) -> None:
    """The line begins at the baseline, whose ΔPPL is 0."""
    known = [
        (x, e)
        for x, level in zip(middles, found.levels, strict=True)
        if (e := level.delta_ppl) is not None
    ]
    places = [(middles[0], scale.at(0.0)), *((x, scale.at(e.point)) for x, e in known)]
    chart.course("course delta", places)
    for x, delta in known:
        _upright(chart, scale, delta, x, "delta")
    chart.dots("value delta", places)


def bars(found: SideBySide) -> Element:
    """Each model's estimates as bars below its name, one for each machine or engine."""
    n_bars = sum(map(len, found.models.values()))
    bottom = _HEAD * len(found.models) + _ROW * n_bars
    chart = Chart(bottom + 18, f"{found.workload} side by side")
    spans = _bounds(estimate for of in found.models.values() for estimate in of.values())
    highest = Scale.around([0.0, *spans], 0, 1).high
    scale = Scale(0.0, highest, _NAMES, WIDTH - _EDGE)
    chart.axis_x(scale, bottom, found.unit, 0)
    y = 0.0
    for model, of in found.models.items():
        chart.text(0, y + 14, shortened(model, _LABEL - 8))
        y += _HEAD
        for name in filter(of.__contains__, found.names):
            chart.text(_NAMES - 6, y + 12, shortened(name, _NAME), "ty")
            chart.box("bar", _NAMES, y + 3, scale.at(of[name].point), y + _ROW - 3)
            if of[name].has_interval:
                middle = y + _ROW / 2
                ends = scale.at(of[name].low), scale.at(of[name].high)
                chart.line("interval on-bar", ends[0], middle, ends[1], middle)
            y += _ROW
    return chart.drawn()


def _bounds(estimates: Iterable[Estimate | None]) -> list[float]:
    return [bound for e in estimates if e is not None for bound in (e.low, e.point, e.high)]


def _upright(chart: Chart, scale: Scale, of: Estimate, x: float, class_: str) -> None:
    if of.has_interval and of.low < of.high:
        chart.line(f"interval {class_}", x, scale.at(of.low), x, scale.at(of.high))


def gains(points: Sequence[SpeculationRecord]) -> Element:
    """The gain of speculation over the speed ratio of draft to target, measured and predicted.

    A curve is the gain predicted for drafts of other speeds that are accepted as often.

    Points are numbered; broken ones are left out.
    """
    chart = Chart(_PLOT + 60, "gain of speculation over the speed ratio")
    bottom = _PLOT + 28
    drawn = {n: point for n, point in enumerate(points, start=1) if not point.is_invalid}
    ratios = [min(point.ratio.point, _MOST_RATIO) for point in drawn.values()]
    x = Scale.around([*ratios, 1.0, 1.2 * sd_model.RULE_RATIO], _LEFT, _RIGHT, is_log=True)
    found = {n: closed(point.gain) for n, point in drawn.items()}
    spans = [bound for gain in found.values() for bound in (gain.low, gain.high)]
    spans += [point.predicted_gain.point for point in drawn.values()]
    y = Scale.around([0.0, *spans], bottom, 8)
    chart.axis_y(y, (_LEFT, _RIGHT), CHANGE)
    chart.axis_x(x, bottom, "x", 8)
    chart.line("middle", _LEFT, y.at(0.0), _RIGHT, y.at(0.0))
    rule = x.at(sd_model.RULE_RATIO)
    chart.line("limit", rule, 8, rule, bottom)
    for (n, point), ratio in zip(drawn.items(), ratios, strict=True):
        at, gain = x.at(ratio), y.at(point.gain.point)
        chart.course("curve", [(x.at(r), y.at(predicted_at(point, r))) for r in x.steps(_STEPS)])
        chart.line("interval sd", at, y.at(found[n].low), at, y.at(found[n].high))
        chart.dots("value sd", [(at, gain)])
        chart.course("predicted", [(at - 5, p := y.at(point.predicted_gain.point)), (at + 5, p)])
        chart.text(at - 8, gain + 4, str(n), "ty")
    middle = (_LEFT + _RIGHT) / 2
    what = "speed ratio: draft alone / target alone"
    chart.text(middle, bottom + 28, what, "tx")
    return chart.drawn()
