"""Lines that fit a terminal: the place where every text that a user reads is broken."""

import os
import re
import textwrap
from typing import Any, Final

#: Columns that a text gets at least, whatever is before it.
_LEAST_TEXT: Final = 24
#: Parts that are not broken: a command and, if a line has room for them, something in quotes, a
#: short remark in parentheses, an interval, a limit with its sign.
_WHOLE: Final = re.compile(
    r"`[^`]+`|(?<!\w)'[^']+'(?!\w)|asperf [a-z]+|--set \S+"
    r"|\([^()]{1,24}\)|\[[^\s\]]+, [^\s\]]+\]|[<>≤≥] \S+( %)?"
)
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"
#: The label of an indented line: its text continues behind it.
_LABEL: Final = re.compile(r" +(?:[\w ()]{1,20}: +)?")


def columns_of(width: int, *, is_terminal: bool) -> int | None:
    """The width to break lines at; None in a file or a pipe, unless `COLUMNS` has one."""
    return width if is_terminal or "COLUMNS" in os.environ else None


def reporter_columns(terminal: Any) -> int | None:
    """`columns_of` pytest's terminal reporter; None without one."""
    if terminal is None:
        return None
    width = terminal.config.get_terminal_writer().fullwidth
    return columns_of(width, is_terminal=bool(terminal.isatty))


def say(terminal: Any, text: str, **markup: bool) -> None:
    """Print a text on pytest's terminal reporter, its lines broken at the width."""
    columns = reporter_columns(terminal)
    for line in text.splitlines():
        for part in wrapped(line, columns):
            terminal.line(part, **markup)


def wrapped(text: str, columns: int | None, first: str = "", below: str | None = None) -> list[str]:
    """Break a text between words only, so that paths and commands can be copied.

    Args:
        text: one line.
        columns: the width, None for no break.
        first: what the first line begins with.
        below: what each further line begins with; by default blanks below the text.
    """
    if columns is None or len(first) + len(text) <= columns:
        return [first + text]
    if below is None:
        label = _LABEL.match(text)
        below = " " * (len(label[0]) if label else 4)
    if len(below) + _LEAST_TEXT > columns:
        below = " " * 4

    def joined(found: re.Match[str]) -> str:
        is_kept = found[0].startswith("`") or len(found[0]) + len(below) <= columns
        return found[0].replace(" ", _NO_BREAK) if is_kept else found[0]

    lines = textwrap.wrap(
        _WHOLE.sub(joined, text),
        columns,
        initial_indent=first,
        subsequent_indent=below,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines] or [first]
