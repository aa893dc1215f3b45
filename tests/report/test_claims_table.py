import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pytest_asperf.analysis.facts import ComparedVariants
from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.results import JudgedFigure
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.report.claims_table import (
    Screen,
    brief_text,
    claim_lines,
    duration_text,
    legend_lines,
    note_line,
    tally,
    undecided_lines,
)
from pytest_asperf.report.lines import Line
from tests.report import sample_reports as samples

TEXT = st.text(max_size=80)
NAME = st.from_regex(r"[a-z0-9:_.]{1,90}", fullmatch=True)
OUTCOMES = st.sampled_from(["PASS", "FAIL", "INCONCLUSIVE", "INVALID"])
#: The longest figures that there are: baseline, candidate, the change and its interval.
FIGURES = st.sampled_from(
    ["98 → 61 tok/s, +62 % slower [50, 74]", "1110.99 tok/s [1110.86, 1111.11]", "+0 %"]
)


def claim(outcome: str = "PASS", test: str = "a.py::test_it", **changed: Any) -> Line:
    """A verdict's line."""
    record = Verdict(outcome=Outcome(outcome), subject="tg8 m:Q8_0")
    fields: dict[str, Any] = {
        "record": record,
        "subject": "tg8 m:Q8_0",
        "measured": "in many words",
        "basis": "5 runs of one load",
        "threshold": "at least 10 tok/s",
        "brief": "12 tok/s [11, 13]",
        "bound": "≥ 10",
        "outcome": outcome,
    } | changed
    return Line(test=test, what=fields["subject"], **fields)


def estimate(point: float = 12.0) -> Estimate:
    """The estimate of a rate."""
    return Estimate(point, 11.0, 13.0, 5, method="by hand", unit="tok/s")


def measured(point: float = 12.0) -> Line:
    """A measurement's line."""
    return Line(
        record=samples.rates("m:Q8_0"),
        test="a.py::test_it",
        model="m:Q8_0",
        subject="tg8",
        what="tg8 m:Q8_0",
        measured="12.0 tok/s",
        basis="5 loads",
        brief=f"{point:g} tok/s [11, 13]",
        estimate=estimate(point),
    )


def ran_as(name: str, title: str) -> Verdict:
    """A verdict on a model's file."""
    ran = replace(samples.ran(name), spec=name, title=title, sha256="0123456789ab")
    compared = ComparedVariants(ran=(ran, ran))
    return Verdict(outcome=Outcome.PASS, subject="x", compared=compared)


def lines(*rows: Line, screen: Screen | None = None) -> list[str]:
    """The lines without their marks; the head first."""
    return [line.text for line in claim_lines(rows, screen or Screen(120))]


@given(
    rows=st.lists(st.tuples(OUTCOMES, NAME, FIGURES), min_size=1, max_size=6),
    test=NAME,
    width=st.sampled_from([70, 80, 99, 100, 120, 200]),
)
def test_no_line_is_wider_and_no_figure_is_cut(
    rows: list[tuple[str, str, str]], test: str, width: int
) -> None:
    """Names are shortened before figures, which are below the name if they are too long."""
    claims = [claim(word, test, subject=name, brief=brief) for word, name, brief in rows]
    found = claim_lines(claims, Screen(width))
    assert max(cell_len(line.text) for line in found) + 3 <= width
    for brief in {row.brief for row in claims}:
        assert any(brief in line.text for line in found)
    # A broken measurement has no figure to compare with a limit.
    decided = [row for row in claims if row.outcome != "INVALID"]
    assert sum("≥ 10" in line.text for line in found) >= len(decided)


@given(name=TEXT, brief=TEXT, bound=TEXT, note=TEXT, width=st.integers(40, 200))
def test_foreign_text_stays_text(name: str, brief: str, bound: str, note: str, width: int) -> None:
    """For any name, no control character reaches the terminal."""
    row = replace(
        claim("INCONCLUSIVE", f"{name}::{note}", subject=name, brief=brief, bound=bound, why=note),
        record=ran_as(name, note),
        facts=(("text", note),),
    )
    noted, screen = [row], Screen(width)
    shown = [line.text for line in claim_lines(noted, screen)]
    shown += [*legend_lines(noted, screen)]
    for text in undecided_lines(noted, screen):
        shown += screen.wrapped(text)
    assert all(c.isprintable() for line in shown for c in line)


@given(name=TEXT, outcome=OUTCOMES)
def test_a_file_that_is_no_utf_8_gets_ascii(name: str, outcome: str) -> None:
    """Marks and signs have spellings in ASCII, and the line keeps to the width with them."""
    screen = Screen(80, "ascii")
    (_, line) = claim_lines([claim(outcome, subject=f"ΔPPL {name}")], screen)
    assert f"{line.mark}{line.text}".isascii()
    assert line.mark == {"PASS": ".", "FAIL": "F", "INCONCLUSIVE": "I", "INVALID": "V"}[outcome]
    assert (">= 10" in line.text) or outcome == "INVALID"
    assert len(line.text) + 3 <= 80


@given(st.lists(OUTCOMES, min_size=1, max_size=20))
def test_the_tally_adds_up_and_the_worst_is_last(outcomes: list[str]) -> None:
    """Each assertion is one line and counted once; FAIL is nearest to the prompt."""
    noted = [claim(word) for word in outcomes]
    total, *counts = map(int, re.findall(r"\d+", tally([*noted, measured()])))
    assert total == len(outcomes) == sum(counts)
    order = [line.outcome for line in claim_lines(noted, Screen(80))[1:]]
    worst_last = ["PASS", "INCONCLUSIVE", "INVALID", "FAIL"]
    assert order == sorted(outcomes, key=worst_last.index)


def test_a_line_has_what_measured_limit_from_time_and_test() -> None:
    """At 120 columns all of it, at 80 the figures without time and test."""
    row = claim(elapsed_s=3.2)
    assert lines(row) == [
        "what        measured [90 %]    limit  from    time  test",
        "tg8 m:Q8_0  12 tok/s [11, 13]  ≥ 10   5 runs  3 s   test_it",
    ]
    assert lines(row, screen=Screen(80))[1] == "tg8 m:Q8_0  12 tok/s [11, 13]  ≥ 10   5 runs"


def test_a_long_name_loses_its_middle() -> None:
    """The quantity and the quantization at the end stay."""
    (_, line) = lines(claim(subject=f"tg8 {'x' * 90}:Q8_0"), screen=Screen(80))
    assert re.match(r"tg8 x+…x+:Q8_0 ", line)


def test_a_figure_stands_once() -> None:
    """A measurement is a line of its own if no assertion has its figure, and once."""
    about = claim(figures=(JudgedFigure("tg8", estimate()),))
    assert len(lines(measured(), about)) == 2
    found = lines(measured(), about, measured(12.5), measured(12.5))
    assert [line.split("  ")[0] for line in found] == ["what", "tg8 m:Q8_0", "tg8 m:Q8_0"]
    assert "12.5 tok/s" in found[1]


def test_tests_of_one_name_are_told_apart() -> None:
    """Two modules with the same test keep their names."""
    noted = [claim(test="a.py::test_it"), claim(test="b.py::test_it")]
    found = [line.text for line in claim_lines(noted, Screen(120))]
    assert [line.rpartition("  ")[2] for line in found[1:]] == ["a.py::test_it", "b.py::test_it"]


def test_the_legend_names_each_file_once() -> None:
    """With the plainest of its names, its own name and hash; texts and builds follow."""
    facts = (("text", "t.txt, sha256 ab"),)
    records = [ran_as(name, "Own, 7M") for name in ("m:Q8_0 KV q8_0", "m:Q8_0")]
    records[1] = replace(records[1], builds=("old", "new"))
    rows = [claim(record=record, facts=facts) for record in records]
    assert list(legend_lines(rows, Screen(80))) == [
        "m:Q8_0 = Own, 7M, 01234567 · gate: old → new · text: t.txt, sha256 ab"
    ]


def test_the_legend_says_nothing_twice() -> None:
    """A name that the model's own repeats, and a text's chunks, which each line counts."""
    record = ran_as("own:Q8_0", "own, 7M")
    texts = [f"t.txt, sha256 ab, chunks 1 to {n} of 20, of 512 tokens" for n in (4, 16, 8)]
    noted = [claim(record=record, facts=(("text", text),)) for text in texts]
    assert list(legend_lines(noted, Screen(120))) == [f"own:Q8_0 = 7M, 01234567 · text: {texts[1]}"]


@given(notes=st.lists(NAME, min_size=1, max_size=9), width=st.integers(20, 200))
def test_notes_take_one_line(notes: list[str], width: int) -> None:
    """As many as there is room for, the first cut if it must be; the others are counted."""
    line = note_line(notes, Screen(width))
    assert cell_len(line) <= width
    shown, _, left_out = line.removeprefix("note: ").removesuffix(" with -v)").partition(" (+")
    assert len(shown.split(" · ")) + int(left_out or 0) == len(notes)
    assert shown.removesuffix("…") in " · ".join(notes)


def test_what_is_undecided_says_why_and_what_to_type() -> None:
    """Tests with one reason share a line; verdicts that fail no test have none."""
    advice, why = "measure more: --asperf-chunks=8", "4 chunks give no interval"
    noted = [claim("INCONCLUSIVE", f"a.py::test_{n}", why=why, advice=advice) for n in "ab"]
    noted += [claim("INCONCLUSIVE", "a.py::test_c", advice=advice, excused="it is recorded")]
    assert list(undecided_lines(noted, Screen(80))) == [
        "? test_a, test_b: 4 chunks give no interval; measure more: --asperf-chunks=8"
    ]
    assert not list(undecided_lines(noted, Screen(80), {"a.py::test_a", "a.py::test_b"}))


def test_nothing_is_no_table() -> None:
    """Without rows there is no heading and no count."""
    assert claim_lines([], Screen(80)) == []
    assert tally([]) == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (0.4, ""), (0.6, "1 s"), (99, "99 s"), (137, "2 min")]
)
def test_times_are_whole(seconds: float | None, text: str) -> None:
    """A duration of 0 is not printed."""
    assert duration_text(seconds) == text


def test_beside_a_test_stands_what_it_claims() -> None:
    """The measurement of a test without an assertion."""
    rows = [measured(), claim()]
    assert brief_text(rows) == "12 tok/s [11, 13]"
    assert brief_text(rows[:1]) == "12 tok/s [11, 13]"
    assert brief_text([]) == ""
