import datetime as dt
import json
import os
import platform
import re
import statistics
from typing import Any

import pytest

from tests.plugin.conftest import Project

MEASURES = """
@pytest.mark.quant_ladder("Q8_0", "Q4_K_M")
def test_ladder(ladder):
    assert_monotonic(ladder, "kld")

@pytest.mark.quant("F16")
def test_speed(throughput):
    throughput("tg8").estimate
"""


def _strict(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def test_json_holds_the_raw_figures(project: Project) -> None:
    """Every row has its test, its run record, and the counts behind all figures."""
    project.test(MEASURES)
    result = project.run("--asperf-report=json:out/report.json")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["asperf: wrote *out/report.json"])
    document = _strict((project.path / "out" / "report.json").read_text("utf-8"))
    assert document["schema"] == 3
    assert document["headline"][1].startswith("asperf: live, engine scripted")
    kinds = [(row["test"], row["model"], row["outcome"]) for row in document["rows"]]
    assert kinds == [
        ("test_it.py::test_ladder", "fake:Q8_0", ""),
        ("test_it.py::test_ladder", "fake:Q4_K_M", ""),
        ("test_it.py::test_ladder", "", "PASS"),
        ("test_it.py::test_speed", "fake:F16", ""),
    ]
    level, _, verdict, speed = document["rows"]
    assert len(level["chunks"]) == 6
    assert level["chunks"][0].keys() == {
        "n_tokens",
        "nll_sum",
        "baseline_nll_sum",
        "kld_sum",
    }
    assert len(level["ran"]["sha256"]) == 64
    assert verdict["figures"][0]["estimate"]["confidence"] >= 0.9
    runs = [
        {"n_tokens": 8, "elapsed_ns": 8_000_000, "load": load, "requests": []} for load in range(5)
    ]
    assert speed["runs"] == speed["warm_ups"] == runs
    assert speed["ran"]["library"] == "scripted"


def test_a_page_is_written_beside_it(project: Project) -> None:
    """Both are of one session, and the page has the figures of the JSON report."""
    project.test(MEASURES + "    assert throughput('tg8') >= '1 tok/s'")
    options = ("--asperf-report=json:r.json", "--asperf-report=html:out/r.html", "--asperf-seed=5")
    project.run(*options, "--asperf-chunks=5", "-k", "test_").assert_outcomes(passed=2)
    document = _strict((project.path / "r.json").read_text("utf-8"))
    content = (project.path / "out" / "r.html").read_text("utf-8")
    for claim in document["assertions"]:
        assert f'<data value="{claim["value"]!r}">' in content
    repeat = "pytest test_it.py::test_speed --asperf-chunks=5 --asperf-seed=5"
    assert document["assertions"][1]["repeat"] == repeat
    assert repeat in re.sub("<[^>]+>", "", content)


def test_all_formats_are_written_and_github_is_told(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markdown, CSV and exports are of one session; its job has a summary and an annotation."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "step.md"))
    project.test(MEASURES + "    assert throughput('tg8') >= '9999 tok/s'")
    forms = ("md", "csv", "bencher", "github-benchmark")
    options = [f"--asperf-report={form}:out/{form}" for form in forms]
    result = project.run("-q", *options)
    result.assert_outcomes(passed=1, failed=1)
    text = (project.path / "out" / "md").read_text("utf-8")
    assert "❌ FAIL, at least 9999 tok/s" in text
    assert (project.path / "step.md").read_text("utf-8") == text
    assert {path.name for path in (project.path / "out").iterdir()} == set(forms)
    assert "9999" in (project.path / "out" / "csv").read_text("utf-8")
    result.stdout.fnmatch_lines(
        [
            "::error file=test_it.py,title=FAIL test_it.py%3A%3Atest_speed::*9999 tok/s*",
        ]
    )


def test_what_was_run_where_is_in_it(project: Project) -> None:
    """Version, command, time, host, seed and machine are those of this session."""
    project.test(MEASURES)
    project.run("--asperf-report=json:r.json", "--asperf-seed", "5", "-k", "speed")
    meta = _strict((project.path / "r.json").read_text("utf-8"))["meta"]
    assert meta["command"].endswith("--asperf-report=json:r.json --asperf-seed 5 -k speed")
    assert (meta["seed"], meta["options"]) == (5, ["--asperf-seed=5"])
    assert meta["host"] == platform.node()
    assert meta["machine"]["logical_cores"] == os.cpu_count()
    assert 0 < meta["duration_s"] < 600
    began = dt.datetime.fromisoformat(meta["time"])
    assert abs((dt.datetime.now(dt.UTC) - began).total_seconds()) < 600


def test_the_pairs_of_a_gate_are_in_it(project: Project) -> None:
    """Each pair has both times, from which its ratio follows, and each variant its rate."""
    project.test("""
@pytest.mark.quant("F16")
def test_gate(gate):
    assert_no_regression(gate("tg8", "ppl"))
""")
    project.run("--asperf-report=json:r.json", "--asperf-candidate=current,slow_by=1.5")
    speed, ppl = _strict((project.path / "r.json").read_text("utf-8"))["rows"]
    compared = speed["compared"]
    for pair in compared["pairs"]:
        turns = zip(pair["candidate"], pair["baseline"], strict=True)
        assert pair["ratio"] == pytest.approx(statistics.median(c / b for c, b in turns))
    base, candidate = compared["medians"]
    assert compared["unit"] == "tok/s"
    assert base / candidate == pytest.approx(speed["figures"][0]["estimate"]["point"], rel=0.2)
    assert speed["figures"][0]["at_most"] == pytest.approx(1.05)
    assert ppl["compared"]["delta_nll"]
    assert ppl["compared"]["text"] == "corpus.txt"


def test_a_broken_measurement_is_in_it(project: Project) -> None:
    """A failed measurement is a row too, under its test's full name."""
    project.script("f16", faults={"generate": "crash"})
    project.test(MEASURES)
    project.run("--asperf-report=json:report.json", "-k", "speed")
    (row,) = _strict((project.path / "report.json").read_text("utf-8"))["rows"]
    assert (row["subject"], row["outcome"]) == ("test_it.py::test_speed", "INVALID")
    assert "SIGSEGV" in row["measured"]


def test_nothing_measured_replaces_an_older_report(project: Project) -> None:
    """A program that reads the file must not find last week's figures."""
    (project.path / "report.json").write_text('{"rows": ["old"]}')
    project.test(MEASURES)
    project.run("--asperf-report=json:report.json", "--asperf-source=recorded")
    assert _strict((project.path / "report.json").read_text("utf-8"))["rows"] == []


def test_collecting_writes_nothing(project: Project) -> None:
    """`--collect-only` starts no engine and leaves reports alone."""
    project.test(MEASURES)
    project.run("--asperf-report=json:report.json", "--collect-only").assert_outcomes()
    assert not (project.path / "report.json").exists()


@pytest.mark.parametrize("place", ["corpus.txt/report.json", "."])
def test_an_unwritable_report_fails_the_session_and_loses_nothing(
    project: Project, place: str
) -> None:
    """The table is printed, then why there is no file; the session does not pass."""
    project.test(MEASURES)
    result = project.run(f"--asperf-report=json:{place}", "--asperf-report=json:sound.json")
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*tg8 fake:F16 *tok/s*",
            "asperf: wrote *sound.json",
            "asperf: the report * cannot be written: *",
            "  what to do: *",
            "*2 passed*",
        ]
    )
    assert "INTERNALERROR" not in result.stdout.str()
    assert (project.path / "sound.json").exists()
