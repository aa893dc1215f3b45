"""HTML and SVG elements, whose text the standard library's serialiser escapes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from pytest_asperf.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Child = ET.Element | str | None

#: Longest text of one element.
_LONGEST: Final = 2000
#: The end of a shape, which HTML lets be short. No text holds one: its `>` is escaped.
_EMPTY_SHAPE: Final = re.compile("></(path|line|rect)>")


def element(
    tag: str, *children: Child | Iterable[Child], **attributes: str | float | None
) -> ET.Element:
    """An element with texts, elements and lists of them inside; None is left out.

    Of an attribute's name, `_` is written `-`, and a last one is dropped: `class_`.
    """
    made = ET.Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), _value(value))
    for child in children:
        for part in child if not isinstance(child, str | ET.Element | None) else (child,):
            _append(made, part)
    return made


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
