"""HTML and SVG elements, whose text the standard library's serialiser escapes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from pytest_asperf.analysis.stats.estimate import CHANGE, SHARE
from pytest_asperf.errors import printable

Child = ET.Element | str | None

#: Longest text of one element.
_LONGEST: Final = 2000
#: The end of a shape, which HTML may shorten. No text contains one: its `>` is escaped.
_EMPTY_SHAPE: Final = re.compile("></(path|line|rect)>")


def element(
    tag: str, *children: Child | Iterable[Child], **attributes: str | float | None
) -> ET.Element:
    """An element with texts, elements and lists of them inside; None is left out.

    In an attribute's name, `_` is written `-`, and a last one is dropped: `class_`.
    """
    made = ET.Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), _value(value))
    for child in children:
        for part in child if not isinstance(child, str | ET.Element | None) else (child,):
            _append(made, part)
    return made


def whole(parts: Iterable[str]) -> Iterable[Child]:
    """Parts of a text with blanks between them; a line ends at those only, and at no hyphen."""
    spans = [element("span", part, class_="whole") for part in parts]
    return [piece for span in spans for piece in (" ", span)][1:]


def table(
    heads: Sequence[str], rows: Iterable[ET.Element], *, class_: str | None = None
) -> ET.Element:
    """A table under its heads."""
    head = element("thead", element("tr", (element("th", text) for text in heads)))
    return element("table", head, element("tbody", rows), class_=class_)


def number(value: float) -> str:
    """A coordinate, to a tenth of a unit."""
    return f"{value:.1f}".removesuffix(".0")


def serialised(root: ET.Element) -> bytes:
    """The document."""
    content = ET.tostring(root, "unicode", method="html")
    return f"<!DOCTYPE html>\n{_EMPTY_SHAPE.sub('/>', content)}\n".encode()


def _value(value: str | float) -> str:
    return printable(value, _LONGEST) if isinstance(value, str) else number(value)


def _append(parent: ET.Element, child: Child) -> None:
    if child is None:
        return
    if isinstance(child, ET.Element):
        parent.append(child)
        return
    text = printable(child, _LONGEST)
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


#: Width of every chart in its own units: one is a pixel on a narrow screen.
WIDTH: Final = 360.0
_ROOM: Final = 0.06
#: Smaller variation, relative to the size, is drawn as one value; and smaller values as 0.
_LEAST_SPREAD: Final = 1e-9
_LEAST_SIZE: Final = 1e-30
#: Decades of a logarithmic scale with ticks at 2 and 5.
_FEW_DECADES: Final = 2.5
_STEPS: Final = (1, 2, 2.5, 5, 10)
#: Characters of a name that are looked at.
_MOST_TEXT: Final = 2000


@dataclass(frozen=True, slots=True)
class Scale:
    """The positions of values on one axis, from `first` to `last` in the chart's units."""

    low: float
    high: float
    first: float
    last: float
    is_log: bool = False

    @classmethod
    def around(
        cls, values: Iterable[float], first: float, last: float, *, is_log: bool = False
    ) -> Scale:
        """A scale that contains all finite values with some margin at both ends."""
        known = [0.0 if abs(v) < _LEAST_SIZE else v for v in values if math.isfinite(v)]
        if is_log:
            known = [math.log10(value) for value in known if value > 0]
        known = known or [0.0]
        low, high = min(known), max(known)
        spread, size = high - low, max(abs(low), abs(high))
        if spread <= size * _LEAST_SPREAD:
            spread = size or 1.0
        return cls(low - _ROOM * spread, high + _ROOM * spread, first, last, is_log)

    def at(self, value: float) -> float:
        """The position of a value; at an end if the value is beyond it."""
        if self.is_log:
            value = math.log10(value) if value > _LEAST_SIZE else self.low
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def steps(self, number: int) -> list[float]:
        """Values from one end to the other, as far apart as they are drawn."""
        values = (self.low + (self.high - self.low) * n / number for n in range(number + 1))
        return [10**value if self.is_log else value for value in values]

    def ticks(self, at_most: int = 5) -> list[float]:
        """Round values within the scale."""
        if self.is_log:
            return self._log_ticks(at_most)
        step = _round_step((self.high - self.low) / at_most)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [n * step for n in range(first, last + 1)]

    def _log_ticks(self, at_most: int) -> list[float]:
        first, last = math.floor(self.low), math.ceil(self.high)
        every = math.ceil((last - first) / at_most) or 1
        digits = (1, 2, 5) if self.high - self.low <= _FEW_DECADES else (1,)
        ticks = [digit * 10.0**n for n in range(first, last + 1, every) for digit in digits]
        return [tick for tick in ticks if self.low <= math.log10(tick) <= self.high]


def _round_step(step: float) -> float:
    size = 10.0 ** math.floor(math.log10(step))
    return next(size * factor for factor in _STEPS if size * factor >= step * (1 - 1e-9))


def shown(value: float, unit: str) -> str:
    """A tick's or limit's value in its unit."""
    percent = unit in {CHANGE, SHARE}
    value = 100 * value if percent else value
    if abs(value) >= 1000:
        text = f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.3g}"
    else:
        text = f"{value:.4g}" if abs(value) >= 1e-4 else f"{value:.9f}".rstrip("0").rstrip(".")
    return f"{text} %" if percent else text


@dataclass(slots=True)
class Chart:
    """A chart that is drawn from the back to the front."""

    height: float
    title: str = ""
    marks: list[Element] = field(default_factory=list)

    def add(self, tag: str, class_: str, **attributes: str | float | None) -> None:
        """Add a shape."""
        self.marks.append(element(tag, class_=class_, **attributes))

    def line(self, class_: str, x1: float, y1: float, x2: float, y2: float) -> None:
        """Add a straight line."""
        self.add("line", class_, x1=x1, y1=y1, x2=x2, y2=y2)

    def box(self, class_: str, x1: float, y1: float, x2: float, y2: float) -> None:
        """Add a rectangle between two corners."""
        x, y, width, height = min(x1, x2), min(y1, y2), abs(x2 - x1), abs(y2 - y1)
        self.add("rect", class_, x=x, y=y, width=width, height=height)

    def dots(self, class_: str, places: Iterable[tuple[float, float]]) -> None:
        """Add dots as one path of lines without a length: their round caps are seen."""
        self.path(f"dots {class_}", "".join(f"M{number(x)} {number(y)}h0" for x, y in places))

    def course(self, class_: str, places: Sequence[tuple[float, float]]) -> None:
        """Add a line through places."""
        path = "L".join(f"{number(x)} {number(y)}" for x, y in places)
        self.path(class_, path and f"M{path}")

    def path(self, class_: str, path: str) -> None:
        """Add a path unless it is empty."""
        if path:
            self.add("path", class_, d=path)

    def text(self, x: float, y: float, text: str, class_: str | None = None) -> None:
        """Add a text: of class `tx` its middle is at the place, of `ty` its end."""
        self.marks.append(element("text", text, x=x, y=y, class_=class_))

    def axis_x(self, scale: Scale, y: float, unit: str, top: float) -> None:
        """Add ticks and faint lines for a horizontal scale."""
        ticks = scale.ticks()
        lines = (f"M{number(scale.at(tick))} {number(top)}V{number(y)}" for tick in ticks)
        self.path("grid", "".join(lines))
        for tick in ticks:
            self.text(scale.at(tick), y + 13, shown(tick, unit), "tx")

    def axis_y(self, scale: Scale, edges: tuple[float, float], unit: str) -> None:
        """Add ticks and faint lines for a vertical scale."""
        (x1, x2), ticks = edges, scale.ticks(4)
        lines = (f"M{number(x1)} {number(scale.at(tick))}H{number(x2)}" for tick in ticks)
        self.path("grid", "".join(lines))
        for tick in ticks:
            self.text(x1 - 4, scale.at(tick) + 4, shown(tick, unit), "ty")

    def axis_right(self, scale: Scale, x: float, unit: str) -> None:
        """Add ticks for a second vertical scale."""
        for tick in scale.ticks(4):
            self.text(x + 4, scale.at(tick) + 4, shown(tick, unit), "tr")

    def drawn(self) -> Element:
        """The chart, with its title for readers who do not see it."""
        view = f"0 0 {number(WIDTH)} {number(self.height)}"
        if not self.title:
            return element("svg", self.marks, viewBox=view, aria_hidden="true")
        return element("svg", self.marks, viewBox=view, role="img", aria_label=self.title)


def shortened(text: str, at_most: int) -> str:
    """A name with its middle left out if it is too long for a chart, escapes counted."""
    text = printable(text, _MOST_TEXT)
    if len(text) <= at_most:
        return text
    half = (at_most - 1) // 2
    return f"{text[: at_most - 1 - half]}…{text[-half:]}"
