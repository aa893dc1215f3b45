from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.conftest import Project

SOUND = "def test_sound():\n    pass\n"
SPEED = '@pytest.mark.quant("F16")\ndef test_it(throughput):\n    throughput("tg8").estimate\n'
LADDER = """
@pytest.mark.quant_ladder("Q8_0")
def test_level(perplexity):
    assert_ppl_delta(perplexity, below="3%")
"""
GATE = """
@pytest.mark.quant("F16")
def test_gate(gate):
    assert_no_regression(gate("ppl"))
"""


@pytest.fixture
def tooled(live: Project, tools: Path) -> Project:
    """A project that measures the shipped draft with real binaries, in two builds of one folder."""
    live.config(
        f"[builds.old]\ntools = {str(tools)!r}\n[builds.new]\ntools = {str(tools)!r}\n",
        engine="llama_tools",
        default_model="asperf-draft",
        repetitions=5,
        chunks=5,
        call_timeout_s=120,
        max_cv="1000%",
    )
    return live


def test_every_run_has_a_load(
    tooled: Project, tools: Path, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    """Binaries load for each run, so the interval covers loads; the report names their tokens."""
    tooled.test(SPEED)
    (row,) = rows(f"--asperf-tools={tools}")
    assert [run["load"] for run in row["runs"]] == [0, 1, 2, 3, 4]
    assert (row["loads"], row["warm_ups"]) == (5, [])
    assert "covers loads and runs" in row["estimate"]["method"]
    assert dict(row["facts"])["settings"].endswith(", random tokens")


def test_a_ladder_is_scored(tooled: Project, tools: Path) -> None:
    """Quantizations are made by llama-quantize and scored on one text."""
    tooled.test(LADDER)
    tooled.run(f"--asperf-tools={tools}").assert_outcomes(passed=1)


def test_two_folders_gate_each_other(tooled: Project) -> None:
    """Builds name their folders; the baseline's makes the models."""
    tooled.test(GATE)
    result = tooled.run("--asperf-baseline=old", "--asperf-candidate=new")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["✓ *gate ppl asperf-draft:F16 * < 1 %*"])


def test_programs_are_no_match_for_a_library(project: Project) -> None:
    """A folder against an interpreter raises: they feed and load differently."""
    (project.path / "llama-bench").touch()
    project.config('[builds.programs]\ntools = "."\n', default_model="fake:F16")
    project.test(GATE.replace('@pytest.mark.quant("F16")', ""))
    result = project.run("--asperf-baseline=current", "--asperf-candidate=programs")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the engine is scripted, and the build programs is */*", "*name two folders of *"]
    )


def test_no_folder_says_how_to_name_one(live: Project) -> None:
    """The engine's error without a folder names the option."""
    live.test(SPEED)
    result = live.run("--asperf-engine=llama_tools")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no folder '' of llama.cpp's binaries*", "*--asperf-tools*"])
