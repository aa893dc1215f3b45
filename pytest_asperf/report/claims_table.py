"""The last screen of a session: a line for each claim, and what explains these lines."""

from __future__ import annotations

import codecs
import re
import textwrap
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len

from pytest_asperf.errors import printable
from pytest_asperf.report.report_data import OUTCOMES
from pytest_asperf.report.row_names import cut, name_of, tail_starts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_asperf.report.rows import ReportRow

#: A row, with the test that noted it.
Noted = tuple[str, "ReportRow"]

_MARKS: Final = {"PASS": "✓", "INCONCLUSIVE": "?", "INVALID": "!", "FAIL": "✗"}
#: The letters that pytest has for them.
_LETTERS: Final = {"PASS": ".", "INCONCLUSIVE": "I", "INVALID": "V", "FAIL": "F"}
_SIGNS: Final = str.maketrans(
    {"≥": ">=", "≤": "<=", "→": "->", "±": "+-", "…": "~", "Δ": "d", "·": "-"}
)
_GAP: Final = "  "
#: A column of figures that is wider shifts what follows it, so that names have room.
_MOST_MEASURED: Final = 0.42
_WIDEST_MEASURED: Final = 44
_LEAST_NAME: Final = 16
#: Of what both have, the share that a test's name has at least.
_TEST_SHARE: Final = 2 / 5
#: From these widths on a line has what it rests on; its time and its test.
_WITH_BASIS, _WITH_TEST = 70, 110
_SHORT_HASH: Final = 8
#: What differs between texts of one file: how many chunks were taken from its beginning.
_CHUNKS: Final = re.compile(r"(?<=chunks 1 to )\d+")


@dataclass(frozen=True, slots=True)
class ScreenLine:
    """One line, with the verdict that its mark is of; empty where it has none."""

    outcome: str
    mark: str
    text: str


@dataclass(frozen=True, slots=True)
class Screen:
    """A terminal, or a file in its place.

    Attributes:
        width: its columns.
        encoding: what it is written in.
    """

    width: int
    encoding: str = "utf-8"

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
        """A remark, with what does not fit below it."""
        return textwrap.wrap(
            self.legible(text), self.width, subsequent_indent="  ", break_on_hyphens=False
        )

    def mark(self, outcome: str) -> str:
        """The sign of a verdict."""
        return (_MARKS if self._is_utf8 else _LETTERS).get(outcome, " ")


@dataclass(frozen=True, slots=True)
class _Cells:
    """What a line has."""

    outcome: str
    what: str
    measured: str
    limit: str
    basis: str
    time: str
    test: str


def claim_lines(noted: Sequence[Noted], screen: Screen) -> list[ScreenLine]:
    """A head and a line for each claim, the worst last; before them what nothing judged.

    No line is wider than the screen. Names are cut in the middle for that, figures never.
    """
    rows = sorted(_shown(noted), key=lambda each: _rank(each[1].outcome))
    if not rows:
        return []
    names = _test_names([test for test, _ in rows])
    head = _head([row for _, row in rows])
    cells = [head, *(_cells(test, row, names, screen) for test, row in rows)]
    machines = _machines([row for _, row in rows], screen)
    width = screen.width - cell_len(machines[0])
    widths = _widths(cells, width)
    starts = tail_starts((each.what for each in cells), widths[0])
    return [
        ScreenLine(
            each.outcome,
            screen.mark(each.outcome),
            machine + screen.legible(_line(each, widths, width - 3, starts[each.what])),
        )
        for machine, each in zip(machines, cells, strict=True)
    ]


def _machines(rows: Sequence[ReportRow], screen: Screen) -> list[str]:
    """What each line begins with: of several machines the name, below its head."""
    if not any(row.machine for row in rows):
        return [""] * (1 + len(rows))
    names = ["machine", *(cut(screen.legible(row.machine), screen.width // 5) for row in rows)]
    widest = max(map(cell_len, names))
    return [name + " " * (widest - cell_len(name)) + _GAP for name in names]


def tally(noted: Sequence[Noted]) -> str:
    """How many claims came to which verdict."""
    outcomes = [row.outcome for _, row in noted if row.outcome]
    counts = ((word, outcomes.count(word)) for word in ("PASS", "FAIL", "INCONCLUSIVE", "INVALID"))
    listed = ", ".join(f"{count} {word}" for word, count in counts if count)
    return f"{len(outcomes)} claim{'s' * (len(outcomes) != 1)}: {listed}" if listed else ""


def legend_lines(noted: Sequence[Noted], screen: Screen) -> Iterator[str]:
    """What the names in the lines stand for, and the texts that were scored."""
    yield from _joined((*_models(noted), *_builds(noted), *_texts(noted)), screen)


def _joined(entries: Iterable[str], screen: Screen) -> Iterator[str]:
    """As few lines as hold the entries, none of which is broken."""
    line = ""
    for entry in map(screen.legible, entries):
        joined = f"{line} {screen.legible('·')} {entry}" if line else entry
        if line and cell_len(joined) > screen.width:
            yield line
            joined = entry
        line = joined
    yield from [line] if line else []


def _models(noted: Iterable[Noted]) -> Iterator[str]:
    """Each file once: of several settings of it, or builds, the plainest name."""
    names: dict[tuple[str, str], list[str]] = {}
    for _, row in noted:
        builds = row.raw.get("builds", ())
        title, name = "", ""
        for label, text in row.ran:
            what = label.rpartition(" ")[2]
            if what == "model":
                title, name = "", text
                for build in builds:
                    name = name.removesuffix(f" in {build}")
            elif what == "title":
                title = text
            elif what == "sha256" and name:
                names.setdefault((title, text[:_SHORT_HASH]), []).append(name)
    for (title, digest), same in names.items():
        name = min(same, key=len)
        own, _, size = title.partition(", ")
        yield f"{name} = {', '.join(filter(None, (size if own in name else title, digest)))}"


def _builds(noted: Iterable[Noted]) -> Iterator[str]:
    builds = [row.raw["builds"] for _, row in noted if "builds" in row.raw]
    yield from (f"gate: {a} → {b}" for a, b in dict.fromkeys(map(tuple, builds)))


def _texts(noted: Iterable[Noted]) -> Iterator[str]:
    """Each text once: lines that were scored on fewer of its chunks say so."""
    longest: dict[str, str] = {}
    for text in (text for _, row in noted for label, text in row.ran if label == "text"):
        known = longest.setdefault(_CHUNKS.sub("", text), text)
        longest[_CHUNKS.sub("", text)] = max(known, text, key=lambda each: (len(each), each))
    yield from (f"text: {text}" for text in longest.values())


def notes_of(rows: Sequence[ReportRow]) -> list[str]:
    """Each remark once, those on the worst verdicts first."""
    judged = sorted(rows, key=lambda row: -_rank(row.outcome))
    return list(dict.fromkeys(line for row in judged for line in row.note.splitlines()))


def note_line(notes: Sequence[str], screen: Screen) -> str:
    """As many notes as one line holds, the last of them cut, and how many it leaves out."""
    text = tail = ""
    for left_out in range(len(notes)):
        tail = f" (+{left_out} with -v)" * bool(left_out)
        text = screen.legible(f"note: {' · '.join(notes[: len(notes) - left_out])}")
        if cell_len(text + tail) <= screen.width:
            return text + tail
    return screen.legible(_ended(text, screen.width - len(tail)) + tail)


def undecided_lines(
    noted: Sequence[Noted], screen: Screen, explained: Collection[str] = ()
) -> Iterator[str]:
    """Why each claim that is not decided is not, and what would decide it.

    Of the tests that are `explained` elsewhere, nothing.
    """
    names = _test_names([test for test, _ in noted])
    by_reason: dict[str, list[str]] = {}
    for test, row in noted:
        is_told = test in explained or row.source == "recorded"
        if row.outcome == "INCONCLUSIVE" and not is_told:
            reason = "; ".join(filter(None, (row.why, row.raw.get("advice", ""))))
            by_reason.setdefault(reason, []).append(f"{row.machine} {names[test]}".lstrip())
    for reason, tests in by_reason.items():
        yield f"{screen.mark('INCONCLUSIVE')} {', '.join(dict.fromkeys(tests))}: {reason}"


def brief_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """What a test measured, in a few words; of claims, if it made any."""
    chosen = [row for row in rows if row["outcome"]] or rows
    shown = (printable(row["brief"] or row["measured"], 80) for row in chosen)
    return "; ".join(dict.fromkeys(shown))


def whole_text(row: ReportRow) -> str:
    """All that a row has of its figures."""
    claim = f"{row.outcome} {row.finding} {row.statement}: " if row.finding else f"{row.outcome} "
    what = " ".join(filter(None, (row.subject, row.threshold, row.model)))
    published = f"; published {row.published}, recorded {row.recorded}" if row.finding else ""
    basis = f" ({row.basis})" if row.basis else ""
    return f"{claim}{what}: {row.measured}{basis}{published}".lstrip()


def duration_text(seconds: float | None) -> str:
    """A time in whole seconds or minutes; empty below half a second."""
    if seconds is None or seconds < 0.5:
        return ""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _shown(noted: Sequence[Noted]) -> Iterator[Noted]:
    """The claims, and what was measured of which none of them has the figure, each once."""
    judged = {
        (row.machine, _bounds(figure)) for _, row in noted for figure in row.raw.get("figures", ())
    }
    seen = set()
    for test, row in noted:
        if row.outcome:
            yield test, row
            continue
        estimate = next(filter(None, map(row.raw.get, ("estimate", "delta_ppl", "gain"))), None)
        # A measurement that several tests share is noted by each.
        key = row.machine, row.model, row.subject, row.measured, row.ran
        if estimate and (row.machine, _bounds(estimate)) not in judged and key not in seen:
            seen.add(key)
            yield test, row


def _bounds(estimate: Mapping[str, Any]) -> tuple[Any, ...]:
    return estimate["point"], estimate["low"], estimate["high"], estimate["unit"]


def _rank(outcome: str) -> int:
    """From what was only measured to the worst verdict."""
    return -1 if not outcome else len(OUTCOMES) - OUTCOMES.index(outcome)


def _head(rows: Sequence[ReportRow]) -> _Cells:
    source = "recorded" if {row.source for row in rows} == {"recorded"} else "measured"
    limit = "published" if all(row.finding for row in rows) else "limit"
    return _Cells("", "what", f"{source} [90 %]", limit, "from", "time", "test")


def _cells(test: str, row: ReportRow, names: Mapping[str, str], screen: Screen) -> _Cells:
    basis = row.basis.partition(" of ")[0]
    if row.source == "elsewhere":
        basis = f"elsewhere {basis}".strip()
    limit = row.bound or row.threshold
    if row.finding:
        # The command for findings lists all figures.
        first, *others = row.published.split(", ")
        limit = f"{first}, …" if others else first
    texts = (_what(row), row.brief or row.measured, limit, basis, duration_text(row.elapsed_s))
    return _Cells(row.outcome, *map(screen.legible, (*texts, names[test])))


def _what(row: ReportRow) -> str:
    return row.finding or name_of(row)


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


def _line(cells: _Cells, widths: Sequence[int], width: int, tail_at: int) -> str:
    """A line; what does not fit beside long figures is left out from the end."""
    texts = [cells.what, cells.measured, cells.limit, cells.basis, cells.time, cells.test]
    columns = list(zip_longest(texts[: len(widths)], widths))
    if len(columns) == len(texts):
        columns[-1] = (cut(cells.test, widths[-1]), 0)
    while True:
        columns[0] = (cut(cells.what, widths[0], tail_at), widths[0])
        line = _GAP.join(text + " " * (size - cell_len(text)) for text, size in columns).rstrip()
        if (excess := cell_len(line) - width) <= 0:
            return line
        if cells.outcome == "INVALID":  # words, of which the block and the reports have all
            return _ended(_GAP.join((columns[0][0], cells.measured)), width)
        if len(columns) > 3:  # name, figures and limit
            columns.pop()
        else:
            name = cut(cells.what, max(_LEAST_NAME // 2, widths[0] - excess), tail_at)
            return _ended(_GAP.join((name, cells.measured, cells.limit)), width)


def _ended(line: str, width: int) -> str:
    if cell_len(line) <= width:
        return line
    while cell_len(line) >= width:
        line = line[:-1]
    return f"{line}…"
