"""`--asperf-findings`, and the table of findings at the session's end."""

from collections.abc import Callable
from typing import Any

import pytest

from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.published.findings import load_findings
from tests.findings.test_findings import MEASURES, SUITE, write
from tests.plugin.conftest import Project

_THERE = '["m4max-40"]'
#: 100,000 tok/s of a script that generates 1,000.
_WRONG = MEASURES.replace(">= 100", ">= 1e5")


def about(project: Project, parameters: str) -> None:
    """Have the project's finding be about models of so many parameters."""
    write(project)
    path = project.path / "mine.toml"
    path.write_text(path.read_text().replace("topic =", f"parameters = {parameters}\ntopic ="))
    project.test(_WRONG)


def test_a_finding_about_other_hardware_is_not_tried(project: Project) -> None:
    """One line for all has the reason; `-v` names it."""
    write(project, hardware=_THERE, expected="INCONCLUSIVE")
    project.test(_WRONG)
    result = project.run()
    result.assert_outcomes(skipped=1)
    why = "the finding is about m4max-40, this is *"
    result.stdout.fnmatch_lines([f"asperf: 1 finding skipped: {why}"])
    project.run("-v").stdout.fnmatch_lines([f"not tried: ours: {why}"])


@pytest.mark.parametrize(("source", "word"), [(_WRONG, "FAIL"), (MEASURES, "PASS")])
def test_all_findings_are_tried_and_reported_as_out_of_scope(
    project: Project, rows: Callable[..., list[dict[str, Any]]], source: str, word: str
) -> None:
    """A measurement on other hardware fails no test, and is no verdict of the finding's own."""
    write(project, hardware=_THERE, expected="INCONCLUSIVE")
    project.test(source)
    result = project.run("--asperf-findings=all", "-v")
    assert result.ret == pytest.ExitCode.OK
    expected = ["test_it.py::test_it FAIL (out of scope)*"] if word == "FAIL" else []
    end = "fails no test" if word == "FAIL" else "out of scope"
    result.stdout.fnmatch_lines(
        [
            *expected,
            "   Our model generates 100 tok/s (ours)",
            f"{'✗' if word == 'FAIL' else '✓'}  out of scope  {word} * tok/s [[]*]  tg8 fake:F16",
            "[?]  published     INCONCLUSIVE * 900 tok/s",
            f"   {end}: the finding is about m4max-40, this is *",
            f"1 assertion: 1 {word}*; exit code 0: no test failed",
        ]
    )
    verdicts = [row for row in rows("--asperf-findings=all") if row["outcome"]]
    assert [(row["outcome"], row["source"]) for row in verdicts] == [(word, "out of scope")]
    assert verdicts[0]["about"]["verdict on the published figures"] == "INCONCLUSIVE"
    assert verdicts[0]["excused"].startswith("the finding is about m4max-40")


def test_an_open_question_out_of_scope_is_no_failure_either(project: Project) -> None:
    """For any value of `--asperf-inconclusive`."""
    write(project, hardware=_THERE)
    project.test(MEASURES.replace(">= 100", ">= 1000"))
    project.script("f16", tg_ns_per_token=[900_000, 1_000_000, 1_100_000])
    result = project.run("--asperf-findings=all", "-v")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["test_it.py::test_it INCONCLUSIVE (out of scope)*"])


def test_a_finding_about_another_size_is_not_tried(project: Project) -> None:
    """The size that it is about, and that of the model measured; a script has none."""
    about(project, "[3e9, 5e9]")
    result = project.run("-rs")
    told = "the finding is about models of 3B to 5B parameters, fake has an unknown number"
    result.stdout.fnmatch_lines([f"asperf: 1 finding skipped: {told}", f"SKIPPED*{told}"])
    project.run("--asperf-findings=all").stdout.fnmatch_lines(["   fails no test: *models of 3B *"])


def test_sizes_have_no_say_where_nothing_is_measured(project: Project) -> None:
    """Published figures are of the document's models."""
    about(project, "[3e9, 1e12]")
    project.run("--asperf-source=recorded").assert_outcomes(passed=1)


def test_levels_of_another_engine_are_not_tried(project: Project) -> None:
    """Findings on llama.cpp's quantizations are not about MLX's, and MLX does not measure them."""
    target = f"--asperf-role=target={shipped_models()[0].hf_folder}"
    result = project.run(*SUITE, "--asperf-engine=mlx", target, "-rs", "-k", "test_quantisation")
    assert {"skipped"} == result.parseoutcomes().keys() - {"deselected"}
    result.stdout.fnmatch_lines_random(
        [
            "asperf: * findings skipped: *the finding is about llama_cpp, this is mlx*",
            "SKIPPED*mlx has no quantization Q8_0; did you mean '8bit'*",
        ]
    )


def test_the_shipped_suite_on_models_of_ones_own(project: Project) -> None:
    """Each finding has one line: judged on the named model, or not tried for a reason."""
    project.script("q8", noise=0.0001)
    options = ("--asperf-role=target=fake", "--asperf-max-pairs=6")
    topics = "quantisation or speculation or published or qat"
    result = project.run(*SUITE, *options, "-v", "-k", topics)
    assert "error" not in result.parseoutcomes()
    text = result.stdout.str()
    chosen = [f for f in load_findings().findings if not f.live or "quant" in f.live + f.topic]
    assert [f.id for f in chosen if f.id not in text] == []
    result.stdout.fnmatch_lines_random(
        [
            "   Q8_0 costs less than 1 % of PPL (q8-near-lossless)",
            "not tried: *: no model is the draft (*): --asperf-role draft=MODEL",
            "not tried: *: no model is the moe (a mixture of experts): --asperf-role moe=MODEL",
            "not tried: *: model 'fake' has no file for quantization Q6_K; name another model: *",
            "not tried: *: nothing measures it live; *",
        ]
    )
