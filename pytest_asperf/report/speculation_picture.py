"""The picture of speculation: gain against speed ratio, measured and predicted.

Made of rows alone, so it is the same with and without xdist; the same rows give the same bytes.
"""

# ruff: noqa: PLC0415  # matplotlib is an extra, and heavy: imported where a picture is asked for

from __future__ import annotations

import importlib.util
import io
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis import speculation_model as sd_model
from pytest_asperf.errors import ConfigError, printable
from pytest_asperf.report.speculation_points import closed, predicted_at, ratio_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pytest_asperf.records.kinds import SpeculationRecord

_NAME: Final = "speculation"
_FORMATS: Final = ("svg", "png")
#: Okabe and Ito's colours, which the colour-blind tell apart, from dark to light in grey; with each
#: a marker and a line style, for readers without colours. The lengths have no common divisor, so
#: that no two of the first 60 measurements look alike.
_COLOURS: Final = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS: Final = ("o", "s", "^", "D")
_LINES: Final = ("-", "--", "-.")
_GREY: Final = "#555555"
#: A lookup drafts next to nothing, so its ratio is in the thousands and would leave the others no
#: room: what is beyond stands at the edge.
_MOST_RATIO: Final = 40.0
_LEAST_RATIO: Final = 0.25
_TICKS: Final = (0.25, 0.5, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 40)
_ROOM: Final = 1.25
#: More measurements than a reader can tell apart; the table has all.
_MOST_SHOWN: Final = 20
_WIDTH_IN: Final = 8.0
_PLOT_IN: Final = 4.6
_LINE_IN: Final = 0.19
_STYLE: Final[dict[str, object]] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "svg.fonttype": "path",  # the same everywhere, and no font of the reader's is needed
    "svg.hashsalt": _NAME,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def require_matplotlib() -> None:
    """Refuse pictures where nothing can draw them, before anything is measured."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(
            "plots: pictures are drawn by matplotlib, which is not installed",
            why="this would be noticed only after everything was measured",
            remedy="pip install 'pytest-asperf[plots]'",
            opt_out="leave the pictures out; json:PATH keeps every figure to draw them from later",
        )


def draw(points: Sequence[SpeculationRecord], headline: Sequence[str]) -> dict[str, bytes]:
    """The picture in each format, by its file's name; empty where nothing was measured.

    Broken measurements are named and not drawn. The headline says what the session measured with.
    """
    if not points:
        return {f"{_NAME}.{form}": b"" for form in _FORMATS}
    require_matplotlib()
    import matplotlib.style

    with matplotlib.style.context(["default", _STYLE]):
        figure = _figure(points, headline)
        return {f"{_NAME}.{form}": _saved(figure, form) for form in _FORMATS}


def _saved(figure: Figure, form: str) -> bytes:
    file = io.BytesIO()
    # A date and a version would make every file another one.
    nameless = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    figure.savefig(file, format=form, dpi=160, metadata=nameless)
    return file.getvalue()


def _figure(points: Sequence[SpeculationRecord], headline: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure

    numbered = list(enumerate(points, start=1))
    shown = [(n, point) for n, point in numbered if not point.is_invalid][:_MOST_SHOWN]
    captions = [_caption(n, point) for n, point in numbered[:_MOST_SHOWN]]
    if left_out := len(numbered) - len(captions):
        captions.append(f"{left_out} more are in the table and in the JSON report")
    captions += ["", *(_plain(line, 125) for line in headline)]
    below_in = _LINE_IN * len(captions) + 0.15
    height_in = _PLOT_IN + below_in
    figure = Figure(figsize=(_WIDTH_IN, height_in))
    bottom_in = below_in + 0.55
    place = (0.09, bottom_in / height_in, 0.83, (_PLOT_IN - 1.0) / height_in)
    _plot(figure.add_axes(place), shown)
    for line, text in enumerate(captions):
        y = (below_in - _LINE_IN * (line + 1)) / height_in
        is_footer = line >= len(captions) - len(headline)
        figure.text(
            0.03, y, text, fontsize=7, color=_GREY if is_footer else "black", parse_math=False
        )
    return figure


def _plot(axes: Axes, shown: Sequence[tuple[int, SpeculationRecord]]) -> None:
    low, high = _range([point for _, point in shown])
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("speed ratio: rate of the draft by itself / rate of the target by itself")
    axes.set_ylabel("gain in rate over the target alone, %")
    axes.set_title(
        "Speculation: gain measured, with its 90 % interval, and predicted for drafts of other\n"
        "speeds from acceptance and the costs of rounds; a tick on the zero line is break-even",
        loc="left",
        fontsize=9,
    )
    axes.axhline(0, color="black", linewidth=0.8)
    axes.axvline(sd_model.RULE_RATIO, color=_GREY, linewidth=1, linestyle=":")
    axes.annotate(
        f"rule of thumb: {sd_model.RULE_RATIO:g} x",
        (sd_model.RULE_RATIO, 1),
        xycoords=("data", "axes fraction"),
        xytext=(3, -9),
        textcoords="offset points",
        fontsize=7.5,
        color=_GREY,
    )
    for number, point in shown:
        look = look_of(number)
        _plot_curve(axes, point, look, (low, high))
        _plot_measured(axes, point, look, (low, high))
        x = min(point.ratio.point, high)
        _number(axes, number, (x, 100 * point.gain.point), (6 if x < high else -14, 7), look)
        # Side by side, because ends of curves lie close together.
        end = (high, 100 * predicted_at(point, high))
        _number(axes, number, end, (3 + 9 * (number % 4), -3), look)
    _frame_gains(axes, [point for _, point in shown])


def look_of(number: int) -> tuple[str, str, str]:
    """Colour, marker and line style of a measurement by its number."""
    colour, marker, line = (of[number % len(of)] for of in (_COLOURS, _MARKERS, _LINES))
    return colour, marker, line


def _plot_curve(
    axes: Axes, point: SpeculationRecord, look: tuple[str, str, str], edges: tuple[float, float]
) -> None:
    colour, _, line = look
    low, high = edges
    ratios = [low * (high / low) ** (step / 200) for step in range(201)]
    gains = [100 * predicted_at(point, ratio) for ratio in ratios]
    axes.plot(ratios, gains, color=colour, linestyle=line, linewidth=1, alpha=0.8)
    even = point.break_even_ratio
    if even is not None and low <= even <= high:
        axes.plot([even], [0], color=colour, marker="|", markersize=11)


def _plot_measured(
    axes: Axes, point: SpeculationRecord, look: tuple[str, str, str], edges: tuple[float, float]
) -> None:
    colour, marker, _ = look
    low, high = edges
    x = min(max(point.ratio.point, low), high)
    gain, ratio = closed(point.gain), closed(point.ratio)
    axes.errorbar(
        [x],
        [100 * gain.point],
        xerr=_reach(x, max(ratio.low, low), min(ratio.high, high)),
        yerr=_reach(100 * gain.point, 100 * gain.low, 100 * gain.high),
        color=colour,
        marker=marker if x == ratio.point else ">",
        markersize=7,
        markeredgecolor="white",
        capsize=3,
        linewidth=1.4,
        clip_on=False,
        zorder=3,
    )


def _reach(at: float, low: float, high: float) -> list[list[float]] | None:
    """How far an interval reaches below and above; None where there is none to draw."""
    return [[max(0.0, at - low)], [max(0.0, high - at)]] if low < high else None


def _number(
    axes: Axes,
    number: int,
    place: tuple[float, float],
    offset: tuple[int, int],
    look: tuple[str, str, str],
) -> None:
    from matplotlib.patheffects import withStroke

    axes.annotate(
        str(number),
        place,
        xytext=offset,
        textcoords="offset points",
        fontsize=8,
        fontweight="bold",
        color=look[0],
        path_effects=[withStroke(linewidth=2, foreground="white")],
        annotation_clip=True,
    )


def _range(points: Sequence[SpeculationRecord]) -> tuple[float, float]:
    """The speed ratios that are drawn: all measured, the rule's, break-evens not too far."""
    ratios = [1.0, _ROOM * sd_model.RULE_RATIO]
    for point in points:
        ratios += [closed(point.ratio).low, closed(point.ratio).high, point.break_even_ratio or 0.0]
    drawn = [ratio for ratio in ratios if ratio > 0]
    return max(_LEAST_RATIO, min(drawn) / _ROOM), min(_MOST_RATIO, max(drawn) * _ROOM)


def _frame_gains(axes: Axes, points: Sequence[SpeculationRecord]) -> None:
    """Show all intervals and the zero line, and as much of the curves as that leaves room for."""
    bounds = [0.0, *(100 * bound for p in points for bound in _span(p))]
    margin = max(5.0, 0.15 * (max(bounds) - min(bounds)))
    axes.set_ylim(min(bounds) - margin, max(bounds) + margin)


def _span(point: SpeculationRecord) -> tuple[float, float]:
    gain = closed(point.gain)
    return gain.low, gain.high


def _caption(number: int, point: SpeculationRecord) -> str:
    name = f"{number}  {_plain(point.label, 75)}"
    if point.is_invalid:
        return f"{name}: INVALID, not drawn"
    return (
        f"{name}: ratio {ratio_text(point.ratio.point)}, {100 * point.acceptance:.1f} % accepted, "
        f"verifying {point.verifying:.2f} steps, break-even {ratio_text(point.break_even_ratio)}"
    )


def _plain(text: str, at_most: int) -> str:
    """Text of which the font has every letter: a model may be called anything."""
    plain = printable(text, at_most).replace("→", "->").replace("…", "...")
    return plain.encode("ascii", "backslashreplace").decode()
