"""`asperf bisect`, with the scripted engine and a lock of its own."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.commands.conftest import Command, ScriptedCommand

EQUAL, SLOW, SLOWER = "current,slow_by=0", "current,slow_by=0.2", "current,slow_by=0.6"
GONE = "./gone-1.0-py3-none-any.whl"


@pytest.fixture
def bisect(scripted_command: ScriptedCommand, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, in a project with a model that runs."""
    # Half of the pairs that a size is quoted from: the scripted times are exact.
    monkeypatch.setattr("pytest_asperf.bisect.run._PAIRS_OF_A_SIZE", 10)
    return scripted_command("bisect", "--workload", "tg8", "--set", "seed=5")


def over(bisect: Command, *builds: str) -> Result:
    """Bisect a list of builds, both ends among them."""
    return bisect(builds[0], builds[-1], "--builds", ",".join(builds))


def states(bisect: Command) -> list[Path]:
    """Return the files in which runs are kept."""
    return sorted((bisect.folder / "cache" / "bisections").glob("*.json"))


def rows(done: Result) -> list[str]:
    """Return the lines of the gates, without their seconds."""
    lines = re.findall(r"^(?:PASS|FAIL|INCONCLUSIVE|INVALID) .*$", done.stdout, re.MULTILINE)
    return [re.sub(r" \(\d+ s\)$", "", line) for line in lines]


def test_the_culprit_is_named_with_its_size_and_how_to_see_it_again(bisect: Command) -> None:
    """A line for each gate as it is decided, then the build, effect, cost and command."""
    done = over(bisect, EQUAL, EQUAL, EQUAL, SLOW, SLOW, SLOW)
    assert done.exit_code == 0, done.output
    assert "engines run at nice" in done.stderr
    assert "5 builds after current,slow_by=0, up to current,slow_by=0.2" in done.stdout
    assert "5 gates find it" in done.stdout
    assert [row.split()[0] for row in rows(done)] == ["FAIL", "FAIL", "PASS", "FAIL"]
    assert f"culprit: {SLOW}" in done.stdout
    assert re.search(r"effect  \+20\.0\d* % \[\d\d\.\d*, \d\d\.\d*\] in cost of tg8", done.stdout)
    assert "gates   4 of at most 7, " in done.stdout
    assert (
        "asperf gate current,slow_by=0 current,slow_by=0.2 --model fake:F16 --workload tg8 "
        "--tolerance 5% --seed 5"
    ) in done.stdout


def test_the_last_build_may_be_the_culprit(bisect: Command) -> None:
    """With nothing between the ends one gate decides."""
    done = bisect(EQUAL, SLOW, "--builds", f"{EQUAL},{SLOW}")
    assert done.exit_code == 0, done.output
    assert len(rows(done)) == 1


def test_several_steps_are_mapped(bisect: Command) -> None:
    """Two steps are reported as two, each with the command for it; no culprit is named."""
    done = over(bisect, EQUAL, EQUAL, SLOW, SLOW, SLOWER)
    assert done.exit_code == 2, done.output
    assert "no single culprit: more than one step" in done.stdout
    assert "builds that fail differ: the slowest against the fastest is FAIL" in done.stdout
    table = done.stdout[done.stdout.index("against the baseline") :].splitlines()
    marked = [line.split()[0] for line in table if line.rstrip().endswith("worse")]
    assert marked == [SLOW, SLOWER]
    assert done.stdout.count("again  asperf gate ") == 2


def test_a_map_shows_what_was_mended(bisect: Command) -> None:
    """Slow, then mended, then slow again in another way: up, down and up."""
    done = over(bisect, EQUAL, SLOWER, SLOWER, SLOWER, EQUAL, SLOW)
    assert done.exit_code == 2, done.output
    marks = re.findall(r"(?:PASS|FAIL) +(worse|better)$", done.stdout, re.MULTILINE)
    assert marks == ["worse", "better", "worse"]


def test_a_build_that_cannot_be_made_is_passed_over(bisect: Command) -> None:
    """Its neighbour is gated instead, and it costs no gate."""
    done = over(bisect, EQUAL, EQUAL, GONE, SLOW, SLOW)
    assert done.exit_code == 2, done.output
    assert re.search(r"^INVALID .*gone-1\.0", done.stdout, re.MULTILINE)
    assert "no single culprit: one of 2 builds" in done.stdout
    assert "no build between the two could be judged" in done.stdout
    assert ", 1 not judged, " in done.stdout
    done = over(bisect, EQUAL, EQUAL, GONE, EQUAL, SLOW)
    assert done.exit_code == 0, done.output
    assert f"before  {EQUAL} passes" in done.stdout


def test_what_could_not_be_made_is_tried_again(bisect: Command) -> None:
    """The command again keeps judged builds, and makes the others anew."""
    builds = (EQUAL, EQUAL, GONE, SLOW, SLOW)
    first = over(bisect, *builds)
    again = over(bisect, *builds)
    assert "builds that failed are tried again" in again.stderr
    assert sorted(rows(again)) == sorted(rows(first))


def test_quality_is_bisected_too(bisect: Command) -> None:
    """With `ppl` a probe is a gate on the same file's PPL."""
    bisect.script(noise_by_type_k={"q4_0": 0.5})
    words = [EQUAL, EQUAL, EQUAL, "current,type_k=q4_0", "current,type_k=q4_0"]
    done = bisect(words[0], words[-1], "--builds", ",".join(words), "--workload", "ppl")
    assert done.exit_code == 0, done.output
    assert "culprit: current,type_k=q4_0" in done.stdout
    assert "in PPL of fake:F16" in done.stdout


def test_a_candidate_that_passes_is_not_bisected(bisect: Command) -> None:
    """One gate, and the command reports that there is nothing to find."""
    done = over(bisect, EQUAL, EQUAL, EQUAL)
    assert done.exit_code == 1, done.output
    assert "nothing to bisect" in done.stdout
    assert "the candidate is PASS against the baseline" in done.stdout
    assert len(rows(done)) == 1


def test_a_candidate_that_cannot_be_made_is_an_error(bisect: Command) -> None:
    """There is nothing to bisect without it, and its own error has the reason."""
    done = over(bisect, EQUAL, EQUAL, GONE)
    assert done.exit_code == 4, done.output
    assert "gone-1.0" in done.output


def test_a_crash_of_both_is_broken(bisect: Command) -> None:
    """If the ends cannot be measured, the exit code shows it."""
    bisect.script(faults={"generate": "crash"})
    done = over(bisect, EQUAL, EQUAL, SLOW)
    assert done.exit_code == 4, done.output
    assert "the candidate cannot be judged" in done.stdout


@pytest.fixture
def stopped(bisect: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The same command, stopped by Ctrl-C in its third gate."""
    from pytest_asperf.bisect import run as bisect_run
    from pytest_asperf.gate.judge import judge_cells

    count = iter(range(100))

    def judge(*args: Any, **kwargs: Any) -> Any:
        if next(count) == 2:
            raise KeyboardInterrupt
        return judge_cells(*args, **kwargs)

    monkeypatch.setattr(bisect_run, "judge_cells", judge)
    return bisect


BUILDS = (EQUAL, EQUAL, EQUAL, EQUAL, SLOW, SLOW, SLOW)


def test_an_interrupted_run_goes_on(stopped: Command) -> None:
    """Ctrl-C prints the results so far; the same command measures only the remaining ones."""
    done = over(stopped, *BUILDS)
    assert done.exit_code == 130
    assert len(rows(done)) == 2
    assert (
        f"stopped after 2 gates: if one build made it fail, it is one of 3 behind {EQUAL}, up to "
        f"{SLOW}; the same command goes on from here"
    ) in done.stderr
    done = over(stopped, *BUILDS)
    assert done.exit_code == 0, done.output
    assert "gates kept from an earlier run: 2 (--fresh ignores them)" in done.stderr
    assert len(rows(done)) == 5
    whole = json.loads(states(stopped)[0].read_text())
    assert [gate["outcome"] for gate in whole["gates"]] == [row.split()[0] for row in rows(done)]


def test_fresh_begins_anew(bisect: Command) -> None:
    """The stored results are deleted."""
    assert over(bisect, EQUAL, SLOW).exit_code == 0
    assert (
        "gates kept from an earlier run: 1 (--fresh ignores them)"
        in over(bisect, EQUAL, SLOW).stderr
    )
    done = bisect("--fresh", EQUAL, SLOW, "--builds", f"{EQUAL},{SLOW}")
    assert done.exit_code == 0, done.output
    assert "kept" not in done.stderr
    assert len(rows(done)) == 1


def test_another_question_has_another_state(bisect: Command) -> None:
    """The facts that decide a run decide which earlier run is gone on with: here the weights."""
    over(bisect, EQUAL, SLOW)
    bisect.script(tg_ns_per_token=[30_100_000, 30_000_000])
    assert "kept" not in over(bisect, EQUAL, SLOW).stderr
    assert len(states(bisect)) == 2


def test_other_programs_in_a_folder_have_another_state(bisect: Command) -> None:
    """A folder of programs has no version: its files are what is bisected."""
    for name in "ab":
        (bisect.folder / name).mkdir()
        for program in ("llama-bench", "llama-perplexity", "llama-quantize"):
            path = bisect.folder / name / program
            path.write_text("#!/bin/sh\nexit 1\n")
            path.chmod(0o755)
    words = ("./a", "./b", "--builds", "./a,./b", "--model", "asperf-draft:F16")
    engine = ("--engine", "llama_tools")
    bisect(*words, *engine)
    bisect(*words, *engine)
    assert len(states(bisect)) == 1
    (bisect.folder / "b" / "llama-bench").write_text("#!/bin/sh\nexit 2\n")
    bisect(*words, *engine)
    assert len(states(bisect)) == 2


def test_builds_of_a_file(bisect: Command) -> None:
    """A list may be a file with a build a line, with remarks."""
    lines = ["# the builds of May", EQUAL, "", f"{SLOW}  # merged on Monday", SLOW]
    (bisect.folder / "may.txt").write_text("\n".join(lines))
    done = bisect(EQUAL, SLOW, "--builds", "may.txt")
    assert done.exit_code == 0, done.output
    assert f"culprit: {SLOW}" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("curent", SLOW), "did you mean 'current'"),
        ((EQUAL, SLOW), "they differ in engine settings"),
        ((EQUAL, EQUAL), "no index, folder or checkout has both"),
        ((EQUAL, SLOW, "--builds", "nowhere.txt"), "nowhere.txt cannot be read"),
        ((EQUAL, SLOW, "--builds", ","), "names none"),
        ((EQUAL, SLOW, "--builds", "current,thread=1"), "did you mean 'threads'"),
        ((EQUAL, SLOW, "--builds", EQUAL, "--workload", "tg"), "not a workload"),
        ((EQUAL, SLOW, "--builds", EQUAL, "--model", "fkae"), "fake"),
        ((EQUAL, SLOW, "--builds", EQUAL, "--tolerance", "5"), "tolerance takes"),
        ((EQUAL, SLOW, "--builds", EQUAL, "--max-ppl-delta", "x"), "--max-ppl-delta"),
        ((EQUAL, SLOW, "--builds", EQUAL, "--engine", "mlxx"), "mlx"),
        ((EQUAL, SLOW, "--builds", EQUAL, "--set", "python=/nowhere"), "--set python"),
        (("mlx-lm==0.32.2", "mlx-lm==0.31.1", "--engine", "mlx"), "0.32.2 is not before 0.31.1"),
        (("mlx-lm>=0.31", "mlx-lm==0.32.2", "--engine", "mlx"), "only NAME==VERSION"),
        (("mlx-lm==0.31.1", "llama-cpp-python==0.3.36"), "not two builds of one engine"),
    ],
)
def test_what_is_not_usable_is_refused(bisect: Command, words: tuple[str, ...], told: str) -> None:
    """A mistake ends with 3 before anything is measured, and the message has the remedy."""
    done = bisect(*words)
    assert done.exit_code == 3, done.output
    assert told in done.stderr
    assert "what to do" in done.stderr
    assert states(bisect) == []
