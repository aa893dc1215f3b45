"""The composite action: its steps, run by the shell that GitHub runs them with."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]  # comes with gguf, without types

from pytest_asperf.testing import write_script

BASH = shutil.which("bash")
_ROOT: Final = Path(__file__).parents[2]
ACTION: Final[dict[str, Any]] = yaml.safe_load((_ROOT / "action.yml").read_text("utf-8"))
_CONFIG: Final = """
engine = "scripted"
default_model = "fake:F16"
max_pairs = 8
[models.fake]
files = { F16 = "f16.json" }
"""
#: From run to run 1 %.
_NOISE: Final = [1_000_000, 1_010_000, 995_000]
#: GitHub runs a step of `shell: bash` as a file, with these options.
_SHELL: Final = ("--noprofile", "--norc", "-eo", "pipefail")

pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")


#: Has the test start `asperf` with these words and streams in this folder, and ends as it does.
_ASPERF: Final = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as test:
    test.connect({door!r})
    call = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)])
    socket.send_fds(test, [call.encode()], [0, 1, 2])
    sys.exit(int(test.recv(10)))
"""


def _start_asperf(door: socket.socket) -> None:
    """Start `asperf` for each call, as a fork where the system can."""
    with contextlib.suppress(OSError):  # the test is over
        while True:
            call, _ = door.accept()
            message, fds, *_ = socket.recv_fds(call, 1 << 17, 3)
            words, folder, environment = json.loads(message)
            stdin, stdout, stderr = fds
            done = subprocess.run(
                [sys.executable, "-m", "pytest_asperf.cli", *words],
                stdin=stdin, stdout=stdout, stderr=stderr,
                cwd=folder, env=environment, check=False,
            )  # fmt: skip
            for fd in fds:
                os.close(fd)
            call.send(str(done.returncode).encode())
            call.close()


#: Runs the step that gates, with the inputs of the action.
Step = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def gate(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Iterator[Step]:
    """Return a function that runs the step in a project of a scripted model."""
    (tmp_path / "asperf.toml").write_text(_CONFIG)
    (step,) = (step for step in ACTION["runs"]["steps"] if step.get("id") == "gate")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    path_of_door = str(tmp_path_factory.mktemp("door") / "door")
    (programs / "asperf").write_text(_ASPERF.format(python=sys.executable, door=path_of_door))
    (programs / "asperf").chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    github = {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_ACTIONS": "true"}
    folders = {"PATH": path, "ASPERF_CACHE": str(tmp_path / "cache")}
    (tmp_path / "step.sh").write_text(step["run"])

    def run(**inputs: str) -> subprocess.CompletedProcess[str]:
        defaults = {name: given.get("default", "") for name, given in ACTION["inputs"].items()}
        variables = {
            key: (defaults | inputs)[value.removeprefix("${{ inputs.").removesuffix(" }}")]
            for key, value in step["env"].items()
        }
        return subprocess.run(
            [str(BASH), *_SHELL, str(tmp_path / "step.sh")],
            cwd=tmp_path, env={**environment, **variables, **github, **folders},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(path_of_door)
        door.listen()
        threading.Thread(target=_start_asperf, args=(door,), daemon=True).start()
        yield run
        door.shutdown(socket.SHUT_RDWR)


def test_no_input_is_pasted_into_a_script() -> None:
    """A branch may be named like a command: inputs are variables of the environment only."""
    steps = ACTION["runs"]["steps"]
    assert not [step["name"] for step in steps if "${{" in step["run"]]
    pasted = {value for step in steps for value in step["env"].values()}
    assert pasted == {f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]}


def test_a_slower_candidate_fails_the_job(tmp_path: Path, gate: Step) -> None:
    """Options are words as in a shell, reports are written, and the exit code is an output."""
    write_script(tmp_path / "f16.json", tg_ns_per_token=_NOISE)
    options = "--workload tg16 --tolerance '7 %' --seed=1"
    words = {"baseline": "current", "candidate": "current,slow_by=0.5", "args": options}
    done = gate(**words, report="out $(touch hit)")
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "output").read_text() == "exit-code=1\n"
    assert "::error title=FAIL tg16 fake" in done.stdout
    reports = {path.name for path in (tmp_path / "out $(touch hit)").iterdir()}
    assert reports == {"gate.json", "gate.md", "gate.html"}
    found = json.loads((tmp_path / "out $(touch hit)" / "gate.json").read_text())
    assert found["assertions"][0]["at_most"] == pytest.approx(1.07)
    assert not (tmp_path / "hit").exists()


def _output(folder: Path) -> str:
    output = folder / "output"
    return output.read_text() if output.exists() else ""


@pytest.mark.parametrize(("undecided", "code"), [("warn", 0), ("fail", 2)])
def test_an_undecided_gate_is_what_the_job_says(
    tmp_path: Path, gate: Step, undecided: str, code: int
) -> None:
    """INCONCLUSIVE is red or only a warning, and its exit code is an output in both cases."""
    write_script(tmp_path / "f16.json", tg_ns_per_token=_NOISE, takes_s={"generate": 0.5})
    words = {"baseline": "current", "candidate": "current"}
    # The budget is spent before a pair is timed.
    done = gate(undecided=undecided, args="--workload tg16 --max-seconds 1", **words)
    assert "1 INCONCLUSIVE" in done.stdout, done.stderr
    assert (done.returncode, _output(tmp_path)) == (code, "exit-code=2\n")
    assert "::warning title=INCONCLUSIVE tg16" in done.stdout


@pytest.mark.parametrize(
    ("args", "faults", "told"),
    [
        ("--workload tg16", {"logits": "nan"}, "1 INVALID"),
        ("--workload tg16", {"generate": "crash"}, "1 INVALID"),
        ("--workload tg16,sd --draft ngram", {}, "1 NOT RUN"),
    ],
)
def test_a_gate_that_was_not_measured_is_red(
    tmp_path: Path, gate: Step, args: str, faults: dict[str, str], told: str
) -> None:
    """NaN logits, a crash and an error are no undecided gate."""
    write_script(tmp_path / "f16.json", tg_ns_per_token=_NOISE, faults=faults)
    done = gate(undecided="warn", baseline="current", candidate="current", args=args)
    assert told in done.stdout + done.stderr
    assert (done.returncode, _output(tmp_path)) == (4, "exit-code=4\n"), done.stdout


def test_a_candidate_that_cannot_be_installed_is_red(tmp_path: Path, gate: Step) -> None:
    """A build that pip rejects was not measured."""
    wheel = tmp_path / "llama_cpp_python-9.9-py3-none-any.whl"
    wheel.write_bytes(b"no archive")
    args = "--engine llama_cpp --model asperf-draft --workload tg16"
    words = {"baseline": str(wheel), "candidate": str(wheel), "args": args}
    done = gate(undecided="warn", **words)
    assert wheel.name in done.stderr
    assert (done.returncode, _output(tmp_path)) == (4, "exit-code=4\n"), done.stdout


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"args": "--tolerance '15 %"}, "::error::args cannot be split into words"),
        ({"args": "--tolerance 15\\"}, "::error::args cannot be split into words"),
        ({"undecided": "maybe"}, "::error::undecided is fail or warn"),
        ({"args": "--list"}, "::error::no gate was run"),
        ({"args": "--help"}, "::error::no gate was run"),
        ({"args": "current"}, "unexpected extra argument"),
        ({"baseline": "--evil"}, "BASE: "),
        ({"baseline": ""}, "BASE: '' is not usable"),
        ({"candidate": ""}, "CAND: '' is not usable"),
        ({"candidate": "current\n--tolerance=99%"}, "CAND: unknown build"),
        ({"args": "-- current"}, "unexpected extra argument"),
        ({"args": "--report json:other.json --no-such"}, "--no-such"),
        ({"report": ""}, "::error::report is no usable folder"),
        ({"report": "f16.json"}, "::error::report is no usable folder"),
        ({"undecided": "warn\n"}, "::error::undecided is fail or warn"),
    ],
)
def test_inputs_that_are_not_usable_fail_the_step(
    tmp_path: Path, gate: Step, inputs: dict[str, str], told: str
) -> None:
    """No gate with other options than those given, and no green step without a gate."""
    write_script(tmp_path / "f16.json", tg_ns_per_token=_NOISE)
    given = {"baseline": "current", "candidate": "current", "undecided": "warn", **inputs}
    (tmp_path / "asperf-gate").mkdir()
    (tmp_path / "asperf-gate" / "gate.json").write_text("{}")  # of an earlier step
    done = gate(**given)
    assert done.returncode == 3, done.stdout
    assert told in (done.stdout + done.stderr).replace("\n", " ")


def test_a_module_of_the_checkout_is_not_imported(tmp_path: Path, gate: Step) -> None:
    """A pull request's file named like a library's is none of the action's code."""
    write_script(tmp_path / "f16.json", tg_ns_per_token=_NOISE)
    (tmp_path / "shlex.py").write_text("open('hit', 'w')\n")
    done = gate(baseline="current", candidate="current", args="--workload tg16")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "hit").exists()


def test_words_reach_the_gate_as_in_a_shell(tmp_path: Path, gate: Step) -> None:
    """Quotes, lines and stars are the input's own: no shell expands them."""
    write_script(tmp_path / "f16.json", tg_ns_per_token=_NOISE)
    args = "--workload \\\n tg16\n--tolerance\t'15 %' --report 'md:* $(touch hit)'"
    done = gate(baseline="current", candidate="current", args=args)
    assert done.returncode == 0, done.stderr
    assert "Accepted: 15 % slower" in done.stderr
    assert not (tmp_path / "hit").exists()
