from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.report.rows import ReportRow
from pytest_asperf.report.tables import render_measurements, render_verdicts

TEXT = st.text(max_size=80)
OUTCOMES = st.sampled_from(["PASS", "FAIL", "INCONCLUSIVE", "INVALID"])


@given(name=TEXT, subject=TEXT, measured=TEXT, basis=TEXT, width=st.integers(40, 200))
def test_foreign_text_stays_text(
    name: str, subject: str, measured: str, basis: str, width: int
) -> None:
    """Whatever a name holds, no control character reaches the terminal but the line ends."""
    text = render_measurements([ReportRow(name, subject, measured, basis)], width, colour=False)
    assert all(c.isprintable() or c == "\n" for c in text)


@given(
    names=st.lists(st.from_regex(r"[a-z0-9:_.]{1,60}", fullmatch=True), min_size=1, max_size=4),
    width=st.integers(60, 200),
)
def test_no_line_is_wider_than_the_terminal(names: list[str], width: int) -> None:
    """Long names are folded, not run off the screen."""
    rows = [
        ReportRow(name, "tg128@d1024", "1110.99 tok/s [1110.86, 1111.11]", "5 samples")
        for name in names
    ]
    text = render_measurements(rows, width, colour=False)
    assert max(map(len, text.splitlines())) <= width


def test_markup_is_not_obeyed() -> None:
    """Rich's own markup in a name is printed as it stands."""
    row = ReportRow("[red]x[/red]", "tg8", "1 tok/s", "1 samples")
    assert "[red]x[/red]" in render_measurements([row], 100, colour=True)


@given(st.lists(OUTCOMES, min_size=1, max_size=20))
def test_verdicts_are_counted(outcomes: list[str]) -> None:
    """The last line has each outcome that there is, with its number."""
    rows = [ReportRow("", "claim", "1", "", threshold="below 2", outcome=word) for word in outcomes]
    last = render_verdicts(rows, 100, colour=False).splitlines()[-1]
    told = {part.split()[1]: int(part.split()[0]) for part in last.split(", ")}
    assert told == {word: outcomes.count(word) for word in outcomes}


def test_nothing_is_no_table() -> None:
    """Without rows there is no heading either."""
    assert render_measurements([], 80, colour=False) == ""
    assert render_verdicts([], 80, colour=False) == ""


def test_a_claim_without_a_threshold_has_no_gap() -> None:
    """A broken measurement is told as test and reason."""
    row = ReportRow("", "test_x.py::test_y", "it broke", "", outcome="INVALID")
    assert "INVALID  test_x.py::test_y: it broke" in render_verdicts([row], 100, colour=False)
