"""The findings of a session: statement, published figures, and the results here."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from _pytest.terminal import TerminalReporter
from rich.cells import cell_len

from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.errors import printable
from pytest_asperf.plugin.summary import MARKUP, screen_of
from pytest_asperf.records.kinds import Noted
from pytest_asperf.report.claims_table import Screen, ended
from pytest_asperf.report.lines import Line, first_line
from pytest_asperf.report.report_data import OUTCOMES
from pytest_asperf.report.row_names import cut
from pytest_asperf.report.wrapping import say

_GAP: Final = "  "
_INDENT: Final = 3
#: The last column has a line of its own on a narrower screen.
_WIDE: Final = 110
_LONGEST_CLAIM: Final = 20
_HEAD: Final = ("", "verdict", "claimed", "figure [90 %]", "of")
_PUBLISHED: Final = "published"
#: The columns of a line: verdict, document, verdict as a word, assertion, figure, scope.
_Row = tuple[str, tuple[str, str, str, str, str]]


def print_findings(terminal: TerminalReporter, noted: list[Noted]) -> None:
    """Print the findings among records; all records of their tests are removed from the list."""
    shown = [line for line in map(first_line, noted) if line.outcome and "finding" in line.about]
    tests = {(line.machine, line.test) for line in shown}
    noted[:] = [each for each in noted if (each.machine, each.test) not in tests]
    if not shown:
        return
    screen = screen_of(terminal)
    for outcome, text in finding_lines(shown, screen):
        markup = {MARKUP[outcome]: True} if outcome in MARKUP else {}
        terminal.write(screen.mark(outcome), **markup)
        terminal.write(f"  {text}".rstrip() + "\n")
    if any(line.source == "recorded" for line in shown):
        say(terminal, "verdicts on published figures fail no test; asperf findings ID explains one")


def print_untried(terminal: TerminalReporter) -> None:
    """Name each finding that was not tried, and why."""
    for report in terminal.stats.get("skipped", ()):
        if hasattr(report, "asperf_untried"):
            id_, reason = report.asperf_untried
            say(terminal, f"not tried: {printable(id_)}: {printable(reason)}")


def finding_lines(lines: Sequence[Line], screen: Screen) -> Iterator[tuple[str, str]]:
    """The outcome and the text of each line of the table, the worst findings last."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line.machine, line.about["finding"]), []).append(line)
    groups = sorted(found.values(), key=lambda rows: -min(map(_rank, rows)))
    tables = [(rows, [*map(_here, rows), *_as_published(rows)]) for rows in groups]
    cells = [_HEAD, *(cells for _, table in tables for _, cells in table)]
    legible = [tuple(map(screen.legible, row)) for row in cells]
    widths = [max(cell_len(row[column]) for row in legible) for column in range(3)]
    widths[2] = min(widths[2], _LONGEST_CLAIM)
    narrow = replace(screen, width=screen.width - _INDENT)
    yield "", _line(_HEAD, widths, screen)
    for rows, table in tables:
        first = rows[0]
        name = f"{first.about['statement']} ({first.about['finding']})"
        named = f"{first.machine}: {name}" if first.machine else name
        yield from (("", line) for line in narrow.wrapped(named))
        for outcome, row in table:
            yield outcome, _line(row, widths, screen)
            if row[4] and screen.width < _WIDE:
                room = screen.width - _INDENT - widths[0] - len(_GAP)
                of = cut(screen.legible(row[4]), room)
                yield "", f"{' ' * widths[0]}{_GAP}{of}"
        yield from (("", line) for text in _remarks(first) for line in narrow.wrapped(text))


def _remarks(line: Line) -> Iterator[str]:
    """The assertion of a test that replaces the statement, and the reason why it fails no test."""
    instead, is_live = line.about.get("asserted here", ""), line.source != "recorded"
    if instead:
        yield f"asserted here: {instead}"
    if line.excused and is_live and line.outcome != "PASS":
        yield f"fails no test: {line.excused}"
    elif line.source == "out of scope":
        yield f"out of scope: {line.excused}"


def _rank(line: Line) -> int:
    return OUTCOMES.index(line.outcome)


def _here(line: Line) -> _Row:
    if line.source == "recorded":
        printed = line.about[_PUBLISHED]
        of = f"as published: {printed}" if printed else ""
        return line.outcome, (_PUBLISHED, line.outcome, _claim(line), line.brief, of)
    whose = "here" if line.source == "live" else line.source
    of = line.what if isinstance(line.record, Verdict) else ""
    return line.outcome, (whose, line.outcome, _claim(line), line.brief, of)


def _claim(line: Line) -> str:
    """The assertion, with its unit if it fits."""
    return line.threshold if len(line.threshold) <= _LONGEST_CLAIM else line.bound


def _as_published(rows: Sequence[Line]) -> Iterator[_Row]:
    about = rows[0].about
    if all(line.source != "recorded" for line in rows):
        outcome = about["verdict on the published figures"]
        yield outcome, (_PUBLISHED, outcome, "", about[_PUBLISHED], "")


def _line(cells: Sequence[str], widths: Sequence[int], screen: Screen) -> str:
    """The columns of a line; an assertion that is too long shifts the figure."""
    *fixed, figure, of = map(screen.legible, cells)
    texts = [
        text + " " * (width - cell_len(text)) for text, width in zip(fixed, widths, strict=True)
    ]
    texts += [figure, of] if screen.width >= _WIDE and of else [figure]
    return screen.legible(ended(_GAP.join(texts), screen.width - _INDENT)).rstrip()
