"""The last screen of a session: a line for each assertion, and explanations of these lines."""

import codecs
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from rich.cells import cell_len

from pytest_asperf.analysis.outcome import NOT_RUN
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.errors import printable
from pytest_asperf.records.kinds import ran_of
from pytest_asperf.report.lines import Line
from pytest_asperf.report.report_data import OUTCOMES
from pytest_asperf.report.row_names import cut, tail_starts
from pytest_asperf.report.wrapping import wrapped

_MARKS: Final = {"PASS": "✓", "INCONCLUSIVE": "?", "INVALID": "!", "FAIL": "✗"}
#: The letters that pytest has for them.
_LETTERS: Final = {"PASS": ".", "INCONCLUSIVE": "I", "INVALID": "V", "FAIL": "F"}
_SIGNS: Final = str.maketrans(
    {"≥": ">=", "≤": "<=", "→": "->", "±": "+-", "…": "~", "Δ": "d", "·": "-"}
)
_GAP: Final = "  "
#: A wider column of figures shifts the columns after it, so that names have room.
_MOST_MEASURED: Final = 0.42
_WIDEST_MEASURED: Final = 44
_LEAST_NAME: Final = 16
#: Smallest share of the width that the test's name gets.
_TEST_SHARE: Final = 2 / 5
#: From these widths on a line has its basis; its time and its test.
_WITH_BASIS, _WITH_TEST = 70, 110
_SHORT_HASH: Final = 8
#: The difference between texts of one file: the number of chunks from its beginning.
_CHUNKS: Final = re.compile(r"(?<=chunks 1 to )\d+")


@dataclass(frozen=True, slots=True)
class ScreenLine:
    """One line, with the verdict that its mark is of; empty if it has none."""

    outcome: str
    mark: str
    text: str


@dataclass(frozen=True, slots=True)
class Screen:
    """A terminal, or a file in its place."""

    width: int  #: its columns
    encoding: str = "utf-8"  #: its character encoding

    @property
    def _is_utf8(self) -> bool:
        return codecs.lookup(self.encoding).name.startswith("utf")

    def legible(self, text: object) -> str:
        """A text from outside as one line that it can show."""
        line = printable(text)
        if self._is_utf8:
            return line
        return (
            line.translate(_SIGNS).encode(self.encoding, "backslashreplace").decode(self.encoding)
        )

    def wrapped(self, text: str) -> list[str]:
        """A remark, with the overflow below it."""
        return wrapped(self.legible(text), self.width, below="  ")

    def mark(self, outcome: str) -> str:
        """The sign of a verdict."""
        return (_MARKS if self._is_utf8 else _LETTERS).get(outcome, " ")


@dataclass(frozen=True, slots=True)
class _Cells:
    """The columns of a line."""

    outcome: str
    what: str
    measured: str
    limit: str
    basis: str
    time: str
    test: str


def claim_lines(lines: Sequence[Line], screen: Screen) -> list[ScreenLine]:
    """A head and a line for each assertion, the worst last; before them measurements without one.

    No line is wider than the screen. Names are cut in the middle for that, figures never.
    """
    rows = sorted(_shown(lines), key=lambda row: _rank(row.outcome))
    if not rows:
        return []
    names = _test_names([row.test for row in rows])
    cells = [_head(), *(_cells(row, names, screen) for row in rows)]
    machines = _machines(rows, screen)
    width = screen.width - cell_len(machines[0])
    widths = _widths(cells, width)
    starts = tail_starts((each.what for each in cells), widths[0])
    shown = []
    for machine, each in zip(machines, cells, strict=True):
        first, *below = _parts(each, widths, width - 3, starts[each.what])
        shown.append(_screen_line(each.outcome, machine + first, screen))
        shown += [_screen_line("", " " * cell_len(machine) + text, screen) for text in below]
    return shown


def _screen_line(outcome: str, text: str, screen: Screen) -> ScreenLine:
    return ScreenLine(outcome, screen.mark(outcome), screen.legible(text))


def _machines(rows: Sequence[Line], screen: Screen) -> list[str]:
    """The beginning of each line: the name, below its head, if there are several machines."""
    if not any(row.machine for row in rows):
        return [""] * (1 + len(rows))
    names = ["machine", *(cut(screen.legible(row.machine), screen.width // 5) for row in rows)]
    widest = max(map(cell_len, names))
    return [name + " " * (widest - cell_len(name)) + _GAP for name in names]


def tally(lines: Sequence[Line]) -> str:
    """The number of assertions for each verdict, and how many of these fail no test."""
    outcomes = [row.outcome for row in lines if row.outcome]
    words = ("PASS", "FAIL", "INCONCLUSIVE", "INVALID", NOT_RUN)
    listed = ", ".join(f"{n} {word}" for word in words if (n := outcomes.count(word)))
    others = [row for row in lines if row.outcome not in {"", "PASS"}]
    excused, n = sum(bool(row.excused) for row in others), len(outcomes)
    told = f"; {excused} of {len(others)} that did not pass fail no test" if excused else ""
    return f"{n} assertion{'s' * (n != 1)}: {listed}{told}" if listed else ""


def legend_lines(lines: Sequence[Line], screen: Screen) -> Iterator[str]:
    """The meaning of the names in the lines, and the texts that were scored."""
    yield from _joined((*_models(lines), *_builds(lines), *_texts(lines)), screen)


def _joined(entries: Iterable[str], screen: Screen) -> Iterator[str]:
    """The entries on the smallest number of lines, none of them broken."""
    line = ""
    for entry in map(screen.legible, entries):
        joined = f"{line} {screen.legible('·')} {entry}" if line else entry
        if line and cell_len(joined) > screen.width:
            yield line
            joined = entry
        line = joined
    yield from [line] if line else []


def _models(lines: Iterable[Line]) -> Iterator[str]:
    """Each file once: of several settings of it, or builds, the plainest name."""
    names: dict[tuple[str, str], dict[str, None]] = {}
    for ran in (ran for line in lines for ran in ran_of(line.record)):
        if ran.sha256:
            names.setdefault((ran.title, ran.sha256[:_SHORT_HASH]), {})[ran.spec] = None
    for (title, digest), same in names.items():
        name = min(same, key=len)
        own, _, size = title.partition(", ")
        yield f"{name} = {', '.join(filter(None, (size if own in name else title, digest)))}"


def _builds(lines: Iterable[Line]) -> Iterator[str]:
    builds = dict.fromkeys(line.builds for line in lines if line.builds)
    yield from (f"gate: {a} → {b}" for a, b in builds)


def _texts(lines: Iterable[Line]) -> Iterator[str]:
    """Each text once: lines that were scored on fewer of its chunks show it."""
    longest: dict[str, str] = {}
    for text in (text for row in lines for label, text in row.facts if label == "text"):
        known = longest.setdefault(_CHUNKS.sub("", text), text)
        longest[_CHUNKS.sub("", text)] = max(known, text, key=lambda each: (len(each), each))
    yield from (f"text: {text}" for text in longest.values())


def notes_of(rows: Sequence[Line]) -> list[str]:
    """Each remark once, those on the worst verdicts first."""
    judged = sorted(rows, key=lambda row: -_rank(row.outcome))
    return list(dict.fromkeys(line for row in judged for line in row.note.splitlines()))


def note_line(notes: Sequence[str], screen: Screen) -> str:
    """As many notes as fit on one line, the last of them cut, and the number of those left out."""
    text = tail = ""
    for left_out in range(len(notes)):
        tail = f" (+{left_out} with -v)" * bool(left_out)
        text = screen.legible(f"note: {' · '.join(notes[: len(notes) - left_out])}")
        if cell_len(text + tail) <= screen.width:
            return text + tail
    return screen.legible(ended(text, screen.width - len(tail)) + tail)


def undecided_lines(
    lines: Sequence[Line], screen: Screen, explained: Collection[str] = ()
) -> Iterator[str]:
    """The reason for each undecided assertion, and the way to decide it.

    Tests that are `explained` above are left out.
    """
    names = _test_names([row.test for row in lines])
    by_reason: dict[str, list[str]] = {}
    for row in lines:
        is_told = row.test in explained or row.excused
        if row.outcome == "INCONCLUSIVE" and not is_told:
            reason = "; ".join(filter(None, (row.why, row.advice)))
            by_reason.setdefault(reason, []).append(f"{row.machine} {names[row.test]}".lstrip())
    for reason, tests in by_reason.items():
        yield f"{screen.mark('INCONCLUSIVE')} {', '.join(dict.fromkeys(tests))}: {reason}"


def brief_text(rows: Sequence[Line]) -> str:
    """The measurements of a test, in a few words; its assertions, if it made any."""
    chosen = [row for row in rows if row.outcome] or rows
    return "; ".join(dict.fromkeys(printable(row.brief, 80) for row in chosen))


def whole_text(row: Line) -> str:
    """All that a row has of its figures."""
    what = " ".join(filter(None, (row.outcome, row.subject, row.threshold, row.model)))
    basis = f" ({row.basis})" if row.basis else ""
    about = "".join(f"; {name}: {text}" for name, text in list(row.about.items())[:1])
    return f"{what}: {row.measured}{basis}{about}"


def duration_text(seconds: float | None) -> str:
    """A time in whole seconds or minutes; empty below half a second."""
    if seconds is None or seconds < 0.5:
        return ""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _shown(lines: Sequence[Line]) -> Iterator[Line]:
    """The assertions, then the measurements that no assertion used."""
    judged = {(row.machine, _bounds(figure.estimate)) for row in lines for figure in row.figures}
    seen = set[tuple[object, ...]]()
    for row in lines:
        if row.outcome:
            yield row
            continue
        # A measurement that several tests share is noted by each.
        key = row.machine, row.model, row.subject, row.measured, row.facts
        estimate = row.estimate
        is_judged = estimate is None or (row.machine, _bounds(estimate)) in judged
        if not is_judged and key not in seen:
            seen.add(key)
            yield row


def _bounds(of: Estimate) -> tuple[float | str, ...]:
    return of.point, of.low, of.high, of.unit


def _rank(outcome: str) -> int:
    """From measurements without a verdict to the worst verdict."""
    return -1 if not outcome else len(OUTCOMES) - OUTCOMES.index(outcome)


def _head() -> _Cells:
    return _Cells("", "what", "measured [90 %]", "limit", "from", "time", "test")


def _cells(row: Line, names: Mapping[str, str], screen: Screen) -> _Cells:
    basis = row.basis.partition(" of ")[0]
    texts = (row.what, row.brief, row.bound, basis, duration_text(row.elapsed_s))
    return _Cells(row.outcome, *map(screen.legible, (*texts, names[row.test])))


def _test_names(tests: Sequence[str]) -> dict[str, str]:
    """The names of tests without their modules, unless two would be one."""
    short = {test: test.rpartition("::")[2] for test in tests}
    return short if len(set(short.values())) == len(short) else {test: test for test in tests}


def _widths(cells: Sequence[_Cells], width: int) -> list[int]:
    """The widths of the columns that there is room for."""

    def widest(column: str, most: int) -> int:
        # Why a measurement is broken is words, which are cut.
        sizes = [cell_len(getattr(each, column)) for each in cells if each.outcome != "INVALID"]
        return max(size for size in sizes if size <= most)

    fixed = [
        widest("measured", min(int(_MOST_MEASURED * width), _WIDEST_MEASURED)),
        widest("limit", width // 8),
    ]
    fixed += [widest("basis", width // 8)] if width >= _WITH_BASIS else []
    fixed += [widest("time", width)] if width >= _WITH_TEST else []
    natural = max(cell_len(each.what) for each in cells)
    room = width - 3 - sum(fixed) - len(_GAP) * len(fixed)
    test = []
    if width >= _WITH_TEST:
        rest = room - len(_GAP) - natural
        longest = max(cell_len(each.test) for each in cells)
        test = [min(longest, max(int(_TEST_SHARE * room), rest))]
        room -= test[0] + len(_GAP)
    return [min(natural, max(room, _LEAST_NAME)), *fixed, *test]


def _parts(cells: _Cells, widths: Sequence[int], width: int, tail_at: int) -> list[str]:
    """A line, without the last columns if these do not fit; long figures are below the name."""
    texts = [cells.what, cells.measured, cells.limit, cells.basis, cells.time, cells.test]
    columns = list(zip_longest(texts[: len(widths)], widths))
    if len(columns) == len(texts):
        columns[-1] = (cut(cells.test, widths[-1]), 0)
    columns[0] = (cut(cells.what, widths[0], tail_at), widths[0])
    while True:
        line = _GAP.join(text + " " * (size - cell_len(text)) for text, size in columns).rstrip()
        if cell_len(line) <= width:
            return [line]
        if cells.outcome == "INVALID":  # words, of which the block and the reports have all
            return [ended(_GAP.join((columns[0][0], cells.measured)), width)]
        if len(columns) == 3:  # name, figures and limit
            below = _GAP.join(("", cells.measured, cells.limit))
            return [cut(cells.what, width), ended(below, width)]
        columns.pop()


def ended(line: str, width: int) -> str:
    """A line without its end if it is too wide."""
    if cell_len(line) <= width:
        return line
    while cell_len(line) >= width:
        line = line[:-1]
    return f"{line}…"
