"""`asperf report`: a page of JSON reports."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_asperf.errors import Advice
from tests.commands.conftest import ScriptedCommand
from tests.report import sample_reports as samples


def test_a_page_is_made_of_several_reports(
    scripted_command: ScriptedCommand, tmp_path: Path
) -> None:
    """Each file has a part of its own, and the heading counts the assertions of all."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(samples.whole()))
    report = scripted_command("report")
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    done = report(*files, f"--report=html:{tmp_path / 'page.html'}")
    assert (done.exit_code, done.output) == (0, f"wrote {tmp_path / 'page.html'}\n")
    content = (tmp_path / "page.html").read_text("utf-8")
    (heading,) = re.findall(r"<h1>(.*)</h1>", content)
    assert re.sub("<[^>]*>", "", heading) == "6 FAIL, 2 INVALID, 2 INCONCLUSIVE, 4 PASS"
    assert "<h2>b.json</h2>" in content


def test_the_output_of_a_gate_becomes_a_page(
    scripted_command: ScriptedCommand, tmp_path: Path
) -> None:
    """The JSON report of `asperf gate` has its pairs."""
    gate = scripted_command("gate")
    gate.script()
    cells = ("--workload", "tg16", f"--report=json:{tmp_path / 'gate.json'}")
    assert gate("current", "current", *cells).exit_code == 0
    page = tmp_path / "page.html"
    done = scripted_command("report")(str(tmp_path / "gate.json"), f"--report=html:{page}")
    assert done.exit_code == 0, done.output
    assert "PASS: current against current" in page.read_text("utf-8")
    assert "evidence after each pair" in page.read_text("utf-8")


@pytest.mark.parametrize("form", ["md", "json", "html"])
def test_a_remedy_names_the_option_of_the_session(
    scripted_command: ScriptedCommand, form: str
) -> None:
    """A reader can add it to the command that repeats the test."""
    advice = Advice("measure 5 chunks", chunks=5)
    undecided = replace(samples.below("ΔPPL", 0.01, 0.01), advice=(advice,))
    Path("r.json").write_text(json.dumps(samples.report([("t", undecided)])))
    done = scripted_command("report", "r.json")("--report", f"{form}:-")
    assert done.exit_code == 0, done.output
    assert "measure 5 chunks: --asperf-chunks=5" in done.output


def test_other_formats_are_made_of_a_stored_report(
    scripted_command: ScriptedCommand, tmp_path: Path
) -> None:
    """Files are named as they are written; - is the terminal."""
    (tmp_path / "r.json").write_text(json.dumps(samples.whole()))
    report = scripted_command("report", str(tmp_path / "r.json"))
    done = report("--report", f"csv:{tmp_path / 'r.csv'}", "--report", "md:-")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "r.csv").stat().st_size
    assert done.output.startswith(f"wrote {tmp_path / 'r.csv'}\n### ❌ 3 FAIL, 1 INVALID")
    assert "Missing option '--report'" in report().output
    assert "did you mean 'csv'" in report("--report", "cvs:x").output


_EMPTY = json.dumps(samples.report([]))


@pytest.mark.parametrize(
    ("text", "page", "says"),
    [
        ("{}", "page.html", "it has no rows"),
        ('{"schema": 2, "rows": []}', "page.html", "has schema 2, and this version reads schema 3"),
        (_EMPTY, "none/page.html", "its folder does not exist"),
        (_EMPTY, ".", "it is a folder"),
    ],
)
def test_a_page_that_cannot_be_made_is_an_error(
    scripted_command: ScriptedCommand, tmp_path: Path, text: str, page: str, says: str
) -> None:
    """It names the file, and leaves no page."""
    (tmp_path / "r.json").write_text(text)
    done = scripted_command("report")(str(tmp_path / "r.json"), f"--report=html:{tmp_path / page}")
    assert says in done.output
    assert not (tmp_path / "page.html").exists()
