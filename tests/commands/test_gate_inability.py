"""A candidate that cannot do the baseline's work, in every kind of check."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.engine_process import Worker
from tests.commands.conftest import Command, ScriptedCommand
from tests.harmful_interpreter import write_interpreter

#: Every request that computes something meets the harm.
_ALWAYS = """
def chosen(request):
    computes = request.get("op") in {{"generate", "prompt", "score", "pair_generate"}}
    return {harm!r} if computes else ""
"""
#: The same, the first time in any process.
_ONCE = """
def chosen(request):
    if request.get("op") != "generate":
        return ""
    try:
        os.close(os.open({flag!r}, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return ""
    return "crashes"
"""
_REAL = """
call_timeout_s = 120
chunks = 4
seed = 1
engine = "llama_cpp"
default_model = "asperf-draft:Q8_0"
python = "{python}"
"""


@pytest.fixture
def gate(scripted_command: ScriptedCommand, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, in a project with a model of its own; a harmful build gets 1 s to generate."""
    call = Worker.call

    def hurried(worker: Worker, op: str, *, timeout_s: float | None = None, **args: Any) -> Any:
        late = op == "generate" and worker.build.python.name == "harmful"
        return call(worker, op, timeout_s=1 if late else timeout_s, **args)

    monkeypatch.setattr(Worker, "call", hurried)
    return scripted_command("gate", settings="chunks = 6\nseed = 1\n")


def _harmful(folder: Path, harm: str) -> str:
    return str(write_interpreter(folder / "harmful", _ALWAYS.format(harm=harm)))


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("crashes", "crashed twice (SIGSEGV)"),
        ("killed", "crashed twice (SIGKILL)"),
        ("exits", "crashed twice (exited with status 0)"),
        ("aborts", "crashed twice (SIGABRT)"),
        ("hangs", "hung twice (no answer within 1 s)"),
        ("out_of_memory", "ran out of memory twice"),
        ("garbage", "answered nonsense twice (not JSON"),
        ("refuses", "refused twice (this build cannot)"),
    ],
)
def test_a_candidate_that_cannot_run_fails(gate: Command, harm: str, told: str) -> None:
    """It is a FAIL with the observation, with exit code 1, and nothing else is lost."""
    _require_fails(gate, "tg8", harm, told)


def test_what_is_not_timed_fails_alike(gate: Command) -> None:
    """PPL and logits are tried with each build, too."""
    _require_fails(gate, "ppl,logits", "crashes", "crashed twice (SIGSEGV)")


def _require_fails(gate: Command, cells: str, harm: str, told: str, *words: str) -> None:
    data = gate.folder / "gate.json"
    words = ("--workload", cells, f"--report=json:{data}", *words)
    done = gate("current", _harmful(gate.folder, harm), *words)
    assert done.exit_code == 1, done.output
    found = json.loads(data.read_text())["assertions"]
    assert [(claim["test"].split()[0], claim["outcome"]) for claim in found] == [
        (name, "FAIL") for name in cells.split(",")
    ]
    for claim in found:
        assert told in claim["measured"]
        assert "baseline ran twice in between" in claim["measured"]


def test_a_baseline_that_cannot_run_either_is_invalid(gate: Command) -> None:
    """An inability of both builds shows no regression."""
    harmful = _harmful(gate.folder, "crashes")
    done = gate(harmful, harmful, "--workload", "tg8")
    assert done.exit_code == 4, done.output
    assert "the baseline crashed (SIGSEGV) too" in done.output
    done = gate(harmful, "current", "--workload", "tg8")
    assert "1 INVALID" in done.output


def test_what_happens_once_is_invalid(gate: Command) -> None:
    """A crash that does not come again is no regression that could be found."""
    code = _ONCE.format(flag=str(gate.folder / "crashed"))
    once = str(write_interpreter(gate.folder / "once", code))
    done = gate("current", once, "--workload", "tg8")
    assert done.exit_code == 4, done.output
    assert "both builds ran when they were tried again" in done.output


def test_other_cells_are_decided(gate: Command) -> None:
    """If decoding crashes, prompts of the same group pass."""
    code = 'def chosen(request):\n    return "crashes" if request["op"] == "generate" else ""'
    harmful = str(write_interpreter(gate.folder / "harmful", code))
    done = gate("current", harmful, "--workload", "tg8,pp64")
    assert done.exit_code == 1, done.output
    assert "1 PASS, 1 FAIL" in done.output


def test_an_engine_that_is_not_installed_is_not_run(gate: Command) -> None:
    """That is the user's to mend, and shows no regression of a build."""
    engines = "sys.modules['asperf_worker.main'].ENGINES"
    missing = f"sys.meta_path.clear()\n{engines}['scripted'] = ('.no', '')"
    bare = str(write_interpreter(gate.folder / "bare", "chosen = str", missing))
    done = gate("current", bare, "--workload", "tg8")
    assert done.exit_code == 4, done.output
    assert "1 NOT RUN" in done.output


@pytest.mark.usefixtures("few_prompts")
@pytest.mark.live
@pytest.mark.parametrize(
    ("cells", "harm", "told"),
    [
        ("tg8,sd", "crashes", "crashed twice (SIGSEGV"),
        ("tg8", "out_of_memory", "ran out of memory twice"),
    ],
)
def test_every_cell_of_a_real_engine(
    scripted_command: ScriptedCommand,
    monkeypatch: pytest.MonkeyPatch,
    session_cache: Path,
    *,
    cells: str,
    harm: str,
    told: str,
) -> None:
    """Times and speculation FAIL alike, with the log's last words in the note."""
    gate = scripted_command("gate")
    monkeypatch.setenv("ASPERF_CACHE", str(session_cache))
    (gate.folder / "asperf.toml").write_text(_REAL.format(python=sys.executable))
    _require_fails(gate, cells, harm, told, "--draft", "asperf-draft:Q8_0")
