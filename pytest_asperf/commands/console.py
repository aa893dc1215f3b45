"""How every command prints: sections of checks, tables and texts, broken at a terminal's width."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Self

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.config.progress import NOTHING_YET, Notify, SoFar
from pytest_asperf.errors import Advice, AsperfError, printable
from pytest_asperf.report.progress_line import CursorConsole, ProgressLine
from pytest_asperf.report.sections import Section, State
from pytest_asperf.report.wrapping import columns_of, wrapped

if TYPE_CHECKING:
    from pytest_asperf.config.engines import Engine

_WORDS: Final[dict[State, str]] = {
    "ok": "ok", "warning": "warn", "unknown": "?", "impossible": "FAIL",
    "measured": "", "invalid": "INVALID", "inconclusive": "INCONCLUSIVE",
}  # fmt: skip
_STYLES: Final[dict[State, str]] = {
    "ok": "green", "warning": "yellow", "unknown": "cyan", "impossible": "bold red",
    "measured": "none", "invalid": "bold red", "inconclusive": "bold yellow",
}  # fmt: skip
_OUTCOME_STYLES: Final = {
    Outcome.PASS: "green", Outcome.FAIL: "red",
    Outcome.INCONCLUSIVE: "yellow", Outcome.INVALID: "magenta",
}  # fmt: skip
_GAP: Final = "  "
_LEAST_STATE_COLUMNS: Final = 4
_LEAST_NAME_COLUMNS: Final = 8
_MOST_NAME_COLUMNS: Final = 30
_LEAST_DETAIL_COLUMNS: Final = 44


class CommandNotify(Notify):
    """Shows progress on the terminal's last line; a context manager that removes it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._line = ProgressLine(console)

    def progress(self, label: str, done: int, total: int, so_far: SoFar = NOTHING_YET) -> None:
        """Show how far a measurement is."""
        self._line.show(label, done, total, so_far)

    def done(self) -> None:
        """Remove the line."""
        self._line.clear()

    def wait(self, reason: str) -> None:
        """Print the reason for a pause."""
        if self._line.is_possible:
            self._line.wait(reason)
        else:
            print_waiting(self._console, reason)

    def say(self, text: str) -> None:
        """Print a line that stays on the terminal, above the progress line."""
        print_text(self._console, printable(text))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.done()


def stderr_console() -> Console:
    """The console for errors and progress; results go to stdout."""
    return CursorConsole(stderr=True, highlight=False)


def print_error(error: AsperfError) -> None:
    """Print an error's parts."""
    console = stderr_console()
    for line in str(error).splitlines():
        print_text(console, printable(line))


def print_sections(sections: Iterable[Section], *, last_line: str = "") -> None:
    """Print the examined parts, and one line that sums them up."""
    console = Console(highlight=False)
    columns = columns_on(console)
    for number, section in enumerate(sections):
        for line in (*([Text()] if number else []), *render(section, columns)):
            console.print(line, soft_wrap=True)
    if last_line:
        print_text(console, "")
        print_text(console, last_line)


def json_text(data: object) -> str:
    """Data as JSON."""
    return json.dumps(data, default=str, indent=2, ensure_ascii=False)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their head, the names on lines of their own if the terminal is narrow."""
    console = Console(highlight=False)
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    columns = columns_on(console)
    is_narrow = columns is not None and sum(widths) + len(_GAP) * (len(widths) - 1) > columns
    for number, (name, *figures) in enumerate(rows):
        sized = zip(figures, widths[1:], strict=True)
        line = "".join(_GAP + " " * (width - cell_len(text)) + text for text, width in sized)
        style = "" if number else "bold"
        if is_narrow:
            print_text(console, name, style=style)
        else:
            line = name + " " * (widths[0] - cell_len(name)) + line
        console.print(Text(line.rstrip(), style=style), soft_wrap=True)
    print_text(console, "")


def print_verdict(console: Console, outcome: Outcome, claim: str, why: str) -> None:
    """Print a verdict with its assertion, and a sentence below it."""
    indent = " " * (len(Outcome.INCONCLUSIVE) + 2)
    head, *tail = wrapped(printable(claim), columns_on(console), f"{outcome:{len(indent)}}", indent)
    line = Text(head)
    line.stylize(_OUTCOME_STYLES[outcome], 0, len(outcome))
    tail += wrapped(printable(why), columns_on(console), indent, indent)
    for shown in (line, *map(Text, tail)):
        console.print(shown, soft_wrap=True)


def print_text(console: Console, text: str, first: str = "", *, style: str = "") -> None:
    """Print one text behind its first words, with the overflow below it."""
    for line in wrapped(text, columns_on(console), first, " " * len(first) if first else None):
        console.print(Text(line, style=style), soft_wrap=True)


def print_waiting(console: Console, reason: str) -> None:
    """Print who is waited for."""
    print_text(console, f"waiting: {printable(reason)}")


def print_priority(console: Console, engine: Engine, nice: int) -> None:
    """Print the priority of the processes that asperf starts; nothing if it is the usual one."""
    from pytest_asperf.engine_process import engine_priority  # psutil

    who = "asperf's client runs" if engine == "openai" else "engines run"
    if priority := engine_priority(nice):
        print_text(console, str(Advice(f"{who} at {priority}; to change that", "nice")))


def print_whole(out: Console, line: str) -> None:
    """Print a line that is laid out already, or that a program reads."""
    out.print(Text(line), soft_wrap=True)


def columns_on(console: Console) -> int | None:
    """The width at which to break what is printed on it; None for no break."""
    return columns_of(console.width, is_terminal=console.is_terminal)


def render(section: Section, columns: int | None) -> Iterator[Text]:
    """A section's lines: state, name and detail in columns, each remedy below its detail.

    Without `columns`, the width to break lines at, each is one line.
    """
    yield from (Text(line, style="bold") for line in wrapped(section.title, columns))
    longest = max((len(check.name) for check in section.checks), default=0)
    words = [len(_WORDS[check.state]) for check in section.checks]
    states = max([_LEAST_STATE_COLUMNS, *words])
    room = _MOST_NAME_COLUMNS if columns is None else columns - states - _LEAST_DETAIL_COLUMNS
    width = min(longest, _MOST_NAME_COLUMNS, max(_LEAST_NAME_COLUMNS, room))
    indent = " " * (states + width + 5)
    for check in section.checks:
        name = f"  {_WORDS[check.state]:{states}} {check.name:{width}}  "
        at = None if check.is_command else columns
        head, *tail = wrapped(check.detail, at, name, indent)
        if tail and len(check.name) > width:  # the whole detail below it
            head, *tail = name.rstrip(), *wrapped(check.detail, columns, indent, indent)
        line = Text(head)
        line.stylize(_STYLES[check.state], 2, 2 + states)
        yield line
        if check.remedy:
            tail += wrapped(check.remedy, columns, f"{indent}do: ", f"{indent}    ")
        yield from map(Text, tail)
