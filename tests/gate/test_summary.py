"""The result and the words of a gate, as functions of results."""

from dataclasses import replace

import pytest

from pytest_asperf.analysis.outcome import ExitCode
from pytest_asperf.analysis.results import JudgedFigure, Words
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Outcome, Subject
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.errors import Advice, ModelError
from pytest_asperf.gate.cells import CellResult, GateCell, parse_gated
from pytest_asperf.gate.plan import GatePlan, LeftOut
from pytest_asperf.gate.summary import GateOutcome, facts, noted
from pytest_asperf.records.kinds import BrokenRecord, facts_of_builds
from pytest_asperf.report.gate_text import error_budget, notes, summary_rows, text_lines
from pytest_asperf.report.markdown import markdown
from tests.report import sample_reports as samples

#: Run records of two builds that differ in one fact.
RAN = (
    ("baseline model", "m in old"),
    ("baseline engine", "lib 1"),
    ("baseline device", "CPU"),
    ("candidate model", "m in new"),
    ("candidate engine", "lib 2"),
    ("candidate device", "CPU"),
)
RATIO = Estimate(1.2, 1.1, 1.3, 7, method="bets", unit="", counted="pairs")


def _cell(workload: str = "tg128", name: str = "m") -> GateCell:
    return GateCell(ModelRef(ModelSpec(name)), parse_gated(workload, where="test"))


def _result(
    outcome: Outcome = Outcome.PASS, cell: GateCell | None = None, told: str = "1.2 [1.1, 1.3]"
) -> CellResult:
    subject = Subject("tg128 m in new / m in old", "live", RAN)
    verdict = subject.verdict(
        outcome,
        Words(threshold="within +5 %", measured=told),
        figures=(JudgedFigure("tg128", RATIO),),
        advice=(Advice("look"),),
    )
    return CellResult(cell or _cell(), 3.0, verdict)


def _outcome(*results: CellResult, builds: tuple[str, str] = ("old", "new")) -> GateOutcome:
    cells = tuple(result.cell for result in results)
    plan = GatePlan(cells, (LeftOut("speculation", "cannot"),))
    return GateOutcome(builds, plan, "Accepted: 5 % slower.", results, 9.0)


def _markdown(outcome: GateOutcome) -> str:
    made = samples.report(noted(outcome), gate=facts(outcome))
    return markdown([samples.shown(made, "asperf gate")]).decode()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["PASS", "PASS"], 0),
        (["PASS", "FAIL"], 1),
        (["INVALID", "FAIL", "INCONCLUSIVE", "NOT RUN"], 1),
        (["PASS", "INCONCLUSIVE"], 2),
        (["PASS", "INVALID"], 4),
        (["INCONCLUSIVE", "INVALID"], 4),
        (["INCONCLUSIVE", "NOT RUN"], 4),
        (["PASS", "NOT RUN"], 4),
    ],
)
def test_only_passes_exit_with_0(words: list[str], code: int) -> None:
    """A FAIL decides; INVALID and NOT RUN differ from INCONCLUSIVE, and none is a pass."""
    assert ExitCode.of(words) == code


def test_a_cell_that_could_not_run_says_why() -> None:
    """It is in line, note, Markdown and document with the error's own words."""
    error = ModelError("m has no file", why="w", remedy="make one")
    result = CellResult(_cell(), 0.2, error=error)
    outcome = _outcome(_result(), result)
    assert outcome.exit_code == 4
    assert outcome.headline == "1 PASS, 1 NOT RUN in 9 s"
    assert summary_rows(outcome)[1].measured == "m has no file"
    assert outcome.answer == "NOT MEASURED: new against old, 1 PASS, 1 NOT RUN in 9 s"
    assert "make one" in notes(outcome.results)[0]
    assert "NOT RUN | tg128 m | m has no file |" in _markdown(outcome)
    assert "what to do: make one" in _markdown(outcome)
    one = noted(outcome)[1]
    assert isinstance(one.record, BrokenRecord)
    assert (one.test, one.record.outcome) == ("tg128 m", "NOT RUN")
    assert one.record.found == "m has no file"


def test_a_stopped_gate_exits_with_130_and_keeps_what_was_decided() -> None:
    """The headline has the number of missing checks."""
    plan = GatePlan((_cell(), _cell("pp512")))
    outcome = GateOutcome(("a", "b"), plan, "", (_result(),), 2.0, interrupted=True)
    assert outcome.exit_code == 130
    assert outcome.headline == "1 PASS, 1 of 2 not measured in 2 s"
    assert outcome.answer.startswith("STOPPED: b against a, 1 PASS")


def test_the_answer_stands_first_then_cells_then_what_ran() -> None:
    """Text and Markdown have equal content in equal order, and each check once."""
    cells = [_cell(), _cell("tg128", "other"), _cell("pp512")]
    told = "98 → 81 tok/s, +21 % slower [10, 30]"
    outcome = _outcome(*(_result(Outcome.FAIL, cell, told) for cell in cells))
    text = list(text_lines(outcome, None))
    assert text[0] == "FAIL: new against old, 3 FAIL in 9 s"
    assert text[3:6] == [
        "m",
        "  FAIL  tg128  98 → 81 tok/s, +21 % slower [10, 30]  (7 pairs, 3 s)",
        "  FAIL  pp512  98 → 81 tok/s, +21 % slower [10, 30]  (7 pairs, 3 s)",
    ]
    page = _markdown(outcome)
    assert page.startswith("### ❌ 3 FAIL\n")
    marks = ["❌ FAIL | tg128 m in new / m in old", "<details>", "engine \\(differs\\)"]
    assert sorted(marks, key=page.index) == marks
    lines = ["other", "FAIL: the assertion is shown false", "what ran"]
    assert sorted(lines, key=text.index) == lines


def test_a_long_line_is_wrapped_below_itself_on_a_terminal() -> None:
    """At 80 columns a check's line keeps its columns; in a file it stays whole."""
    told = "mean KLD 0.0032 nats (0.0032 in the baseline), largest 0.027 at position 1000"
    outcome = _outcome(_result(Outcome.PASS, told=told))
    wrapped = list(text_lines(outcome, 80))[4:6]
    assert wrapped[0].startswith("  PASS  tg128  mean KLD")
    assert wrapped[1].startswith(" " * 15)
    assert max(map(len, wrapped)) <= 80
    assert any(told in line for line in text_lines(outcome, None))


def test_notes_begin_with_failures_and_leave_passes_out() -> None:
    """Faults come first, with their lab notes."""
    given_results = [_result(Outcome.PASS), _result(Outcome.INVALID), _result(Outcome.FAIL)]
    found = notes(given_results)
    assert [note.splitlines()[1].partition(":")[0] for note in found] == ["FAIL", "INVALID"]


def test_a_note_that_cells_share_stands_once() -> None:
    """An engine that does not start is one reason, with every check that it stopped."""
    error = ModelError("m has no file", why="w", remedy="make one")
    results = [CellResult(_cell(name), 0.2, error=error) for name in ("tg128", "pp512")]
    (note,) = notes(results)
    assert note.splitlines()[:3] == [
        "tg128 m, pp512 m",
        "NOT RUN: m has no file",
        "  why it matters: w",
    ]


def test_proof_of_path_is_told_once_with_what_differs() -> None:
    """Facts of the check are left out, and equal ones are marked as such."""
    facts = [_result().unbroken().facts] * 2
    assert facts_of_builds(facts) == [("engine", "lib 1", "lib 2"), ("device", "CPU", "CPU")]
    assert "| engine \\(differs\\) | lib 1 | lib 2 |" in _markdown(_outcome(_result()))
    assert "  device:    CPU, in both" in text_lines(_outcome(_result()), None)


def test_a_fact_of_both_builds_is_named() -> None:
    """The text of PPL names no build, and is printed once; a missing fact has its meaning."""
    text, absent = "a.txt, chunks 1 to 5", "not by asperf, which uses the build as it is"
    missing = (
        ("candidate made", "today"),
        ("candidate priority", "nice -5"),
        ("baseline gpu", "M2"),
    )
    assert facts_of_builds([(("text", text), *missing)]) == [
        ("text", text, text),
        ("made", absent, "today"),
        ("priority", "nice 0", "nice -5"),
        ("gpu", "M2", "not reported"),
    ]


def test_the_error_is_shared_by_all_cells() -> None:
    """Fourteen checks have a fourteenth each."""
    assert "FAIL by time in any of 14 checks in at most 1 % of runs" in error_budget(14)
    assert "in any" not in error_budget(1)
    assert "slower PASSes in at most 5 %" in error_budget(1)


def test_figures_of_the_same_chunks_count_them_once() -> None:
    """Mean KLD may be decided before the share of changed tokens; prompts are another count."""
    counts = ((8, "chunks"), (7, "chunks"), (5, "prompts"))
    figures = tuple(
        JudgedFigure(
            f"{n} {counted}", Estimate(1.0, 0.9, 1.1, n, method="t", unit="", counted=counted)
        )
        for n, counted in counts
    )
    result = _result()
    assert result.verdict is not None
    several = replace(result, verdict=replace(result.verdict, figures=figures))
    assert several.counted == "5 prompts, 8 chunks"
