"""Lines that annotate a job of GitHub's, and its summary."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.report import github
from tests.report import sample_reports as samples


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A job; the file of its summary."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    return tmp_path / "step.md"


def test_what_did_not_pass_is_annotated(job: Path) -> None:
    """FAIL and INVALID are errors, an undecided verdict is a warning, and a PASS is silent."""
    rows = [samples.claimed("m", limit) for limit in (10, 84, 9999)]
    noted: list[samples.Noting] = [("t/a.py::test[x,y]", row) for row in (*rows, samples.invalid())]
    failed, broken, open_ = github.tell(samples.read(noted))
    title = "t/a.py%3A%3Atest[x%2Cy]"
    assert open_.startswith(f"::warning file=t/a.py,title=INCONCLUSIVE {title}::tg16 m at least 84")
    assert failed.startswith(f"::error file=t/a.py,title=FAIL {title}::tg16 m at least 9999")
    assert broken.startswith("::error ")
    assert job.read_text().startswith("### ❌ 1 FAIL, 1 INVALID, 1 INCONCLUSIVE, 1 PASS\n")


def test_a_file_is_named_as_in_the_repository(
    job: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A project may be in a folder of it."""
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    report = samples.read([("t.py::t", samples.invalid())])
    assert github.tell(report, tmp_path / "sub" / "py")[0].startswith("::error file=sub/py/t.py,")
    assert github.tell(report, job.parent.parent)[0].startswith("::error file=t.py,")


def test_a_gates_cell_names_no_file(job: Path) -> None:
    """A finding and published figures are warnings: they fail no job."""
    recorded = Verdict(outcome=Outcome.FAIL, subject="a claim", problem="1 %", source="recorded")
    lines = github.tell(samples.read([("tg16 fake", samples.gate(1.3)), ("t.py::t", recorded)]))
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::warning"]
    assert lines[0].startswith("::error title=FAIL tg16 fake::")
    assert job.exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(max_size=40))
def test_a_name_is_no_command(job: Path, name: str) -> None:
    """A line stays one line, and each of its two parts stays where it is."""
    row = Verdict(outcome=Outcome.FAIL, subject=name, problem=name)
    (line,) = github.tell(samples.read([(f"{name}::t{name}", row)]))
    assert len(line.splitlines()) == 1
    head, _, text = line.removeprefix("::error ").partition("::")
    assert re.fullmatch(r"file=[^:,]*,title=[^:,]*", head)
    assert "%" not in text.replace("%25", "")
    assert job.exists()


def test_a_summary_is_as_long_as_github_takes(job: Path) -> None:
    """GitHub would reject a longer one as a whole; it ends with a whole line."""
    report = samples.read([("t", samples.below("m" * 300, 0.0, 0.01))])
    github.tell(replace(report, claims=report.claims * 3000))
    text = job.read_bytes()
    assert len(text) < 2**20
    assert text.endswith(b"|\n\nCut here: it was too long.\n")
    github.tell(report)  # as a second command of the same step
    assert len(job.read_bytes()) < 2**20


def test_a_fail_after_many_warnings_is_annotated(job: Path) -> None:
    """GitHub shows ten errors and ten warnings: neither replaces the other."""
    rows = [samples.claimed("m", 84)] * 25 + [samples.claimed("m", 9999)]
    lines = github.tell(samples.read([("t.py::t", row) for row in rows]))
    assert [line.partition(" ")[0] for line in lines] == ["::error", *["::warning"] * 10]
    assert job.exists()


def test_outside_of_a_job_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is neither a line nor a file."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    assert not github.is_job()
    assert github.tell(samples.read([("t", samples.invalid())])) == []


def test_a_summary_that_cannot_be_written_is_said(job: Path) -> None:
    """The measurements are not lost with it."""
    job.mkdir()
    first, *_ = github.tell(samples.read([("t", samples.invalid())]))
    assert re.match(r"asperf: .*step\.md could not be written: ", first)
