"""HTML and SVG elements, whose text the standard library's serialiser escapes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from pytest_asperf.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    Child = ET.Element | str | None

#: Longest text of one element.
_LONGEST = 2000


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


def number(value: float) -> str:
    """A coordinate, to a hundredth of a unit."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def serialised(root: ET.Element) -> bytes:
    """The document."""
    return f"<!DOCTYPE html>\n{ET.tostring(root, 'unicode', method='html')}\n".encode()


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
