"""The names of rows: if two would be alike, their difference."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from os.path import commonprefix
from typing import Final

from rich.cells import cell_len

from pytest_asperf.records.kinds import Noted
from pytest_asperf.report.lines import Line, first_line

#: The run record, as label and text of each fact.
Ran = tuple[tuple[str, str], ...]

#: The run record's facts that distinguish rows, the plainest first.
_FACTS: Final = ("requested", "engine", "build", "settings", "device", "sha256")
_LONGEST: Final = 80


def told_apart(rows: Sequence[Noted]) -> list[Noted]:
    """Records, with the differences in the names of those that would be alike.

    Compared are the requested settings and, if these are equal, engine, build, resolved settings,
    device and file.
    """
    alike: dict[tuple[str, ...], dict[Ran, None]] = {}
    lines = [first_line(noted) for noted in rows]
    for line in lines:
        alike.setdefault(_key(line), {})[line.facts] = None
    return [
        replace(noted, apart=difference(line.facts, alike[_key(line)]))
        for noted, line in zip(rows, lines, strict=True)
    ]


def _key(line: Line) -> tuple[str, ...]:
    """Records of one key are alike; a measurement and its verdict are not."""
    return line.machine, line.model, *line.about.values(), line.what


def difference(ran: Ran, others: Iterable[Ran]) -> str:
    """The facts of a run that not all others share, of the first kind in which they differ."""
    for fact in _FACTS:
        parts = [list(_parts(each, fact)) for each in others]
        if any(each != parts[0] for each in parts):
            own = [part for part in _parts(ran, fact) if not all(part in each for each in parts)]
            return ", ".join(own)[:_LONGEST]
    return ""


def _parts(ran: Iterable[tuple[str, str]], fact: str) -> Iterator[str]:
    """A fact of every variant of a run, in parts."""
    for label, text in ran:
        side, _, name = f" {label}".rpartition(" ")
        if name == fact:
            yield from (f"{side} {part}".strip() for part in text.split(", "))


def tail_starts(names: Iterable[str], width: int) -> dict[str, int]:
    """By name, where the part begins that is kept if the name is cut to a width.

    It is the middle, unless two names would become one: then it is where these begin to differ.
    """
    starts = {name: len(name) - width // 2 for name in names}
    for _ in tuple(starts):  # each round may bring two others together
        alike: dict[str, list[str]] = {}
        for name, start in starts.items():
            alike.setdefault(cut(name, width, start), []).append(name)
        later = {
            name: start
            for same in alike.values()
            if len(same) > 1
            for name in same
            if starts[name] != (start := len(commonprefix(same)))  # noqa: RUF071  # by character
        }
        if not later:
            break
        starts |= later
    return starts


def cut(text: str, width: int, tail_at: int | None = None) -> str:
    """A text with `…` instead of its beginning, by default its middle, if it is too long.

    Args:
        text: the text.
        width: its columns at most.
        tail_at: the start of its last part, which is cut too if it is longer than two thirds.
    """
    if cell_len(text) <= width:
        return text
    tail = text[len(text) - width // 2 if tail_at is None else max(0, tail_at) :]
    if tail_at is not None and len(tail) > (most := max(1, 2 * width // 3)):
        tail = f"{tail[: most - 1]}…"
    head = text[: max(0, width - 1 - len(tail))]
    while cell_len(short := f"{head}…{tail}") > width and head + tail:
        head, tail = (head[:-1], tail) if len(head) > len(tail) else (head, tail[1:])
    return short
