"""Markdown for a pull request."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.results import Words
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.errors import Advice, printable
from pytest_asperf.records.kinds import AnyRecord
from pytest_asperf.report.markdown import escape, markdown
from tests.report import sample_reports as samples


def _markdown(*rows: AnyRecord) -> str:
    return markdown([samples.read([("test_a.py::test_it", row) for row in rows])]).decode()


def _cells(line: str) -> list[str]:
    """Split a row of a table as GitHub does, and remove its escapes."""
    cells = re.findall(r"((?:\\.|[^|\\])*)\|", line.removeprefix("|"))
    return [re.sub(r"\\(.)", r"\1", cell).strip() for cell in cells]


def test_rates_have_the_columns_of_llama_bench() -> None:
    """Then interval and verdict; a rate's assertion is in its row."""
    lines = _markdown(samples.rates("m"), samples.claimed("m", 10)).splitlines()
    head, _, row = [line for line in lines if line.startswith("|")][:3]
    assert _cells(head)[:7] == ["model", "size", "params", "backend", "threads", "test", "t/s"]
    first = ["SmolLM2 135M (m)", "93.94 MiB", "134.52 M", "CPU", "2", "tg16", "84.30"]
    assert _cells(row) == [*first, "78.50 to 84.90", "✅ PASS, at least 10 tok/s"]


def test_the_sides_of_a_gate_are_rates_and_its_claim_follows() -> None:
    """Both rates, the ratio, the reason of its failure, the differences, and the run record."""
    text = _markdown(samples.gate(1.3))
    marks = [
        "tg16 baseline",
        "tg16 candidate",
        "❌ FAIL | tg16 fake in b",
        "differs: engine",
    ]
    assert sorted(marks, key=text.index) == marks
    assert "| engine \\(differs\\) | a 1 | a 2 |" in text
    assert text.startswith("### ❌ 1 FAIL\n")


def test_a_session_without_claims_has_its_figures() -> None:
    """It states that nothing was judged."""
    text = _markdown(samples.rates("m"))
    assert text.startswith("### ❔ no assertion was judged\n")
    assert "84.30" in text


def test_a_finding_says_what_it_states_and_where_its_figures_are_from() -> None:
    """Published figures never pass for measured ones."""
    row = Verdict(
        outcome=Outcome.FAIL,
        subject="q4-size",
        result=Words(measured="69 %", rests_on="1 figure", threshold="at least 73 %"),
        source="recorded",
        about={"statement": "Q4 is a quarter of F16"},
    )
    text = _markdown(row)
    what = "q4-size; statement\\: Q4 is a quarter of F16"
    assert f"| {what} | 69 % | at least 73 % | 1 figure, recorded |" in text


def test_what_is_no_rate_has_a_table_of_its_own() -> None:
    """PPL of a quantization, once though two tests note it, and a rate in neither."""
    text = _markdown(samples.level("m:Q8_0", 0.01), samples.level("m:Q8_0", 0.01))
    assert text.count("| m\\:Q8\\_0 | PPL vs F16 |") == 1
    assert "t/s" not in text
    assert "| value |" not in _markdown(samples.rates("m"))


def test_several_reports_follow_one_another() -> None:
    """Each under its name, escaped."""
    gates = {"a_b": 1.0, "c": 1.3}
    reports = [samples.read([("t", samples.gate(by))], name=name) for name, by in gates.items()]
    assert re.findall("^### .*", markdown(reports).decode(), re.MULTILINE) == [
        "### ✅ a\\_b\\: 1 PASS",
        "### ❌ c\\: 1 FAIL",
    ]


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=60), st.text(min_size=1, max_size=60))
def test_foreign_text_stays_in_its_cell(name: str, told: str) -> None:
    """For any name of a model or an engine, a row has its columns, and shows the text."""
    said = Words(measured=told, rests_on="7 pairs")
    row = Verdict(outcome=Outcome.FAIL, subject=name or "m", result=said)
    (line,) = (line for line in _markdown(row).splitlines() if line.startswith("| ❌"))
    cells = _cells(line)
    assert len(cells) == 5
    assert cells[1] == printable(name or "m").strip()
    assert cells[2].startswith(printable(told).strip()[:300])


@given(st.text(max_size=80))
def test_escaped_text_is_no_markup(text: str) -> None:
    """Nothing that begins markup, a link or a tag is without its escape."""
    bare = re.sub(r"\\.", "", escape(text))
    assert not set(bare) & set("`*_[]<>|#~&")
    assert "\n" not in escape(text)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=80))
def test_a_note_cannot_end_its_block(text: str) -> None:
    """An engine's log stays inside of the indented block, and begins no tag of its own."""
    row = Verdict(
        outcome=Outcome.FAIL,
        subject=f"</summary>{text}",
        problem=text,
        advice=(Advice(f"</details>{text}"),),
        details=(f"</details>{text}",),
    )
    lines = _markdown(row).splitlines()
    assert lines.count("</details>") == 1
    (head,) = (line for line in lines if line.startswith("<details>"))
    assert head.count("<") == 3


def test_only_the_worst_claims_have_notes() -> None:
    """A page of notes would hide the tables; only their number is printed."""
    details = tuple(map(str, range(99)))
    row = Verdict(outcome=Outcome.FAIL, subject="m", problem="z", details=details)
    text = _markdown(*[row] * 40)
    assert text.count("<details>") == 30
    assert "10 more assertions did not pass." in text
    assert "    60" in text
    assert "    59" not in text
