"""`asperf gate`: exit codes and output with the scripted engine, and once with the real one."""

import json
import os
import platform
import re
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_asperf.store import open_store
from tests.commands.conftest import Command, ScriptedCommand
from tests.report import sample_reports as samples


def _cell_lines(output: str) -> list[list[str]]:
    """The words of the checks' lines in the summary."""
    lines = [line.split() for line in output.splitlines() if line.startswith("  ")]
    return [words for words in lines if words[:1] in (["PASS"], ["FAIL"], ["INVALID"])]


@pytest.fixture
def gate(scripted_command: ScriptedCommand) -> Command:
    """The command, in a project with a model of its own."""
    return scripted_command("gate", settings="chunks = 6\nseed = 1\n")


def test_equal_builds_pass(gate: Command) -> None:
    """Each check has its line, run records show no difference, and the exit code is 0."""
    done = gate("current", "current", "--workload", "tg32,pp64,ppl,logits")
    assert done.exit_code == 0, done.output
    assert [words[1] for words in _cell_lines(done.output)] == ["tg32", "pp64", "ppl", "logits"]
    assert done.stdout.startswith("PASS: current against current, 4 PASS in ")
    assert "in any of 3 checks in at most 1 % of runs" in done.output
    assert "4 PASS in" in done.output
    assert "SCRIPT 1 MiB; 0/2 layers on a GPU, in both" in done.output


def test_times_of_one_model_take_turns(gate: Command) -> None:
    """A disturbance of seconds then meets all workloads, and a load serves them all."""
    log = gate.folder / "log"
    gate.script(log=str(log))
    assert gate("current", "current", "--workload", "tg32,pp64").exit_code == 0
    done = [line.split()[0] for line in log.read_text().splitlines()]
    timed = [op for op in done if op in {"generate", "prompt"}]
    assert "generate" in timed[timed.index("prompt") :]


def test_each_pair_has_processes_of_its_own(gate: Command) -> None:
    """Five pairs of checks that share them count ten, and all have ended with the gate."""
    log = gate.folder / "log"
    gate.script(log=str(log))
    assert gate("current", "current", "--workload", "tg32,tg32@d64,ppl,logits").exit_code == 0
    pids = {int(line.split()[1]) for line in log.read_text().splitlines()}
    assert len(pids) >= 10
    assert not any(map(psutil.pid_exists, pids))


@pytest.mark.parametrize("load", ["load", "reload"])
def test_loads_are_timed_in_pairs(gate: Command, load: str) -> None:
    """A slower load FAILs next to a check that shares no process with it; equal ones PASS."""
    words = ("--workload", f"{load},ppl")
    done = gate("current", "current", *words)
    assert done.exit_code == 0, done.output
    done = gate("current", "current,slow_by=0.5", *words)
    assert done.exit_code == 1, done.output
    cells = {words[1]: words for words in _cell_lines(done.output)}
    assert cells[load][0] == "FAIL"
    assert cells[load][2:6] == ["3.4", "→", "5.1", "ms,"]
    assert cells["ppl"][0] == "PASS"
    kind = {"load": "first of a fresh process", "reload": "again in one process"}[load]
    assert f"{kind}, file cache warm: at least 100 % of " in done.output


def test_a_slower_candidate_fails_with_its_note(gate: Command) -> None:
    """The note, Markdown and JSON have the difference; the job's summary is extended."""
    summary, data = gate.folder / "gate.md", gate.folder / "gate.json"
    words = ("--workload", "tg32", f"--report=md:{summary}", f"--report=json:{data}")
    done = gate("current", "current,slow_by=0.5", *words)
    assert done.exit_code == 1, done.output
    assert "the candidate is slower" in done.output
    assert "slow_by=0.5" in done.output.partition("what ran")[2]
    assert "| ❌ FAIL | tg32 fake\\:F16 in current" in summary.read_text()
    found = json.loads(data.read_text())
    samples.check_schema(found)
    (claim,) = found["assertions"]
    assert (found["gate"]["exit_code"], claim["outcome"]) == (1, "FAIL")
    assert claim["value"] > 1.4
    base, candidate = found["measurements"]
    assert base["value"] / candidate["value"] == pytest.approx(claim["value"], rel=0.1)
    assert found["meta"]["host"] == platform.node()
    assert found["meta"]["command"].startswith("asperf gate ")


def test_the_summary_of_a_github_job_is_added_to(
    gate: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If GitHub names a file, its content stays."""
    step = gate.folder / "step.md"
    step.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    gate("current", "current", "--workload", "logits")
    assert step.read_text().startswith("before\n### ✅ 1 PASS\n\nPASS\\: current against")


def test_prefill_that_disagrees_with_decoding_in_both_builds_is_invalid(gate: Command) -> None:
    """Times are right, and PPL is equal in both builds: only this check sees it."""
    gate.script(noise_of_batches=2.0)
    done = gate("current", "current", "--workload", "tg32,ppl,logits")
    assert done.exit_code == 4, done.output
    words = [words[:2] for words in _cell_lines(done.output)]
    assert words == [["PASS", "tg32"], ["PASS", "ppl"], ["INVALID", "logits"]]
    assert "both have the fault" in done.output


def test_a_crash_is_invalid_and_no_pass(gate: Command) -> None:
    """A broken check does not keep the next from being decided; the exit code is 4."""
    gate.script(faults={"generate": "crash"})
    done = gate("current", "current", "--workload", "tg32,pp64")
    assert done.exit_code == 4, done.output
    assert "1 PASS, 1 INVALID" in done.output
    assert "SIGSEGV" in done.output


def test_what_an_engine_cannot_do_is_not_run_and_no_pass(gate: Command) -> None:
    """An error is printed with its reason, and the exit code is 4."""
    done = gate("current", "current", "--workload", "tg32,sd", "--draft", "ngram")
    assert done.exit_code == 4, done.output
    assert "2/2 NOT RUN sd ngram → fake:F16, k=4" in done.output
    assert "  NOT RUN  sd    " in done.output
    assert "cannot be stepped" in done.output


class _SlowTime:
    """A clock of pairs that advances a second at every call."""

    def __init__(self) -> None:
        self.perf_counter_ns = time.perf_counter_ns
        self._now_s = 0.0

    def monotonic(self) -> float:
        """The time."""
        self._now_s += 1.0
        return self._now_s


def test_an_undecided_cell_goes_on_where_it_stopped(
    gate: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decided checks' time goes to it: its pairs are added up to the most it may have."""
    monkeypatch.setattr("pytest_asperf.measure.ab_speed.time", _SlowTime())
    data = gate.folder / "gate.json"
    words = ("--workload", "tg32,ppl,logits", "--tolerance", "0.01%", f"--report=json:{data}")
    done = gate("current", "current", *words, "--max-pairs", "14", "--max-seconds", "60")
    told = re.search(r"tg32 fake:F16 is not decided by (\d+) pairs", done.output)
    assert told is not None, done.output
    assert int(told[1]) < 14
    claims = {
        claim["test"].split()[0]: claim for claim in json.loads(data.read_text())["assertions"]
    }
    assert claims["tg32"]["n"] == 14
    assert [claims[name]["outcome"] for name in ("ppl", "logits")] == ["PASS", "PASS"]


def test_cells_for_which_no_time_is_left_are_inconclusive(gate: Command) -> None:
    """A budget that the first check spends is no INVALID, and no error of the others."""
    gate.script(takes_s={"generate": 0.2}, tg_ns_per_token=1_000_000)
    done = gate("current", "current", "--workload", "tg32,ppl", "--max-seconds", "1")
    assert done.exit_code == 2, done.output
    assert "not begun: the budget of 1 s was spent" in done.output


def test_a_spent_budget_is_inconclusive(gate: Command) -> None:
    """Undecided is 2, and the note has the number of pairs that would decide it."""
    done = gate("current", "current,slow_by=0.03", "--workload", "tg32", "--max-pairs", "4")
    assert done.exit_code == 2, done.output
    assert "INCONCLUSIVE" in done.output


def test_default_cells_are_listed_and_nothing_is_run(gate: Command) -> None:
    """`--list` prints the checks, and those that the engine cannot run."""
    gate.script(log=str(gate.folder / "log"))
    done = gate("current", "current", "--list")
    assert done.exit_code == 0, done.output
    assert "logits       fake:F16 KV q8_0" in done.output
    assert "left out: speculation: " in done.output
    assert not (gate.folder / "log").exists()


def test_a_card_that_no_build_computes_on_deepens_no_check(
    gate: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor, 4,096 tokens before each run would cost more than all other checks."""
    reader = gate.folder / "nvidia-smi"
    reader.write_text("#!/bin/sh\necho H200, 141312, 580, Disabled, 0, 0x0\n")
    reader.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gate.folder}{os.pathsep}{os.environ['PATH']}")
    assert "tg128@d4096" in gate("current", "current", "--list").output
    done = gate("current", "current", "--max-seconds", "1")
    assert "tg128@d1024" in done.output
    assert "@d4096" not in done.output


def test_the_priority_of_engines_is_said_at_the_start(gate: Command) -> None:
    """The gate prints the system's permission before it measures, and the run record has it too."""
    nice = os.getpriority(os.PRIO_PROCESS, 0) or 4
    done = gate("current", "current", "--workload", "ppl", "--set", "nice=4")
    assert f"engines run at nice {nice}; to change that: --set nice=N" in done.stderr
    assert f"priority:  nice {nice}, in both" in done.stdout
    assert "engines run at" not in gate("current", "current", "--list").output
    assert gate("current", "current", "--set", "nice=-21").exit_code == 3


def test_ctrl_c_keeps_what_was_decided(gate: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decided checks are reported, and the exit code is 130."""

    def stopped(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_asperf.measure.ab_ppl.PplExperiment.run", stopped)
    done = gate("current", "current", "--workload", "tg32,ppl")
    assert done.exit_code == 130, done.output
    assert "1 PASS, 1 of 2 not measured" in done.output


def test_a_killed_gate_keeps_its_cells(gate: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check is stored when it is decided; a finished gate leaves itself and nothing else."""

    class KilledError(BaseException):
        """Nothing of ours handles it."""

    def killed(*_: Any) -> Any:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("pytest_asperf.measure.ab_ppl.PplExperiment.run", killed)
        with pytest.raises(KilledError):
            gate("current", "current", "--workload", "tg32,ppl", "--store", "h.db")
    assert gate("current", "current", "--workload", "tg32", "--store", "h.db").exit_code == 0
    with open_store("h.db") as store:
        sessions = store.sessions()
        (row,) = store.document(sessions[0].id)["rows"]
    assert [one.kind for one in sessions] == ["unfinished", "gate"]
    assert (row["outcome"], row["compared"]["timed"]) == ("PASS", "tg32")


def test_builds_of_the_configuration_are_the_default(gate: Command) -> None:
    """Without words the project's own baseline and candidate are gated."""
    config = gate.folder / "asperf.toml"
    config.write_text('candidate = "current,slow_by=0.5"\n' + config.read_text())
    done = gate("--workload", "tg32")
    assert done.exit_code == 1, done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("current", "curent"), "did you mean 'current'"),
        (("current", "current,slow=1"), "did you mean 'slow_by'"),
        (("current", "current", "--workload", "logit"), "did you mean 'logits'"),
        (("current", "current", "--model", "fak"), "did you mean 'fake'"),
        (("current", "current", "--draft", "asperf-drft"), "did you mean 'asperf-draft'"),
        (("current", "current", "--engine", "mxl"), "did you mean 'mlx'"),
        (("current", "mlx-lm==0.31.3", "--engine", "scripted"), "not two builds of scripted"),
        (("current", "current", "--tolerance", "5"), "tolerance takes"),
        (("current", "current", "--max-ppl-delta", "x"), "is not a usable limit"),
        (("current", "current", "--max-ppl-delta", "0.00001%"), "--max-ppl-delta: '0.00001%' is"),
        (("current", "current", "--report=md:/nowhere/x.md"), "cannot write"),
        (("current", "current", "--max-pairs", "0"), "max_pairs takes a whole number"),
        (("current", "current", "--nonesuch"), "No such option"),
        (("current",), "no build to judge"),
    ],
)
def test_what_is_not_usable_exits_with_3(gate: Command, words: tuple[str, ...], told: str) -> None:
    """A typo raises before anything is measured, with the nearest name."""
    gate.script(log=str(gate.folder / "log"))
    done = gate(*words)
    assert done.exit_code == 3, done.output
    assert told in done.output
    assert not (gate.folder / "log").exists()


def test_a_model_that_is_missing_exits_with_3(gate: Command) -> None:
    """Its file is looked for before anything is measured."""
    (gate.folder / "f16.json").unlink()
    done = gate("current", "current")
    assert done.exit_code == 3, done.output
    assert "there is no file" in done.output


@pytest.fixture
def real(
    gate: Command,
    short_text: None,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
    session_cache: Path,
) -> Command:
    """The same with llama.cpp and the shipped models."""
    monkeypatch.setenv("ASPERF_CACHE", str(session_cache))
    (gate.folder / "asperf.toml").write_text(
        f'call_timeout_s = 120\nchunks = 5\nseed = 1\npython = "{sys.executable}"\n'
    )
    return gate


@pytest.mark.live
def test_llama_cpp_against_itself(real: Command) -> None:
    """Nothing FAILs: computed checks pass, and timed ones are decided or open."""
    done = real(
        *("current", "current", "--model", "asperf-draft:Q8_0", "--workload", "tg32,ppl,logits"),
        *("--max-pairs", "8", "--tolerance", "50%"),
    )
    assert done.exit_code in {0, 2}, done.output
    cells = {words[1]: words[0] for words in _cell_lines(done.output)}
    assert "FAIL" not in cells.values()
    assert (cells["ppl"], cells["logits"]) == ("PASS", "PASS")


@pytest.mark.live
@pytest.mark.usefixtures("few_prompts")
def test_a_slower_llama_cpp_fails(real: Command) -> None:
    """With a draft, time alone FAILs: as much is accepted, and the output is the target's."""
    models = ("--model", "asperf-draft:F16", "--draft", "asperf-draft:Q4_0")
    done = real("current", "current,slow_by=2", "--workload", "sd", "--max-pairs", "20", *models)
    assert done.exit_code == 1, done.output
    (line,) = (line for line in done.output.splitlines() if line.startswith("  FAIL  "))
    accepted = re.search(r"fails in 1 of 3; time .*; accepted (\d+/\d+), (\d+/\d+)", line)
    assert accepted is not None, line
    assert accepted[1] == accepted[2]


def test_a_gain_is_claimed(gate: Command) -> None:
    """With --faster-by a check passes if it is faster by that much; equal builds fail."""
    words = ("--workload", "tg32", "--faster-by", "10%")
    done = gate("current,slow_by=0.3", "current", *words)
    assert done.exit_code == 0, done.output
    assert "Required: faster by 10 % or more, ΔPPL below 1 %." in done.output
    assert re.search(r"tg32 +0\.7\d+x \[", done.output), done.output
    assert gate("current", "current", *words).exit_code == 1
    assert (
        "--faster-by: 'x' is not a usable limit"
        in gate("current", "current", "--faster-by=x").output
    )
