"""The composite action: its steps, run by the shell that GitHub runs them with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]  # comes with gguf, without types

from pytest_asperf.testing import write_script

BASH = shutil.which("bash")
ACTION: Final[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[2] / "action.yml").read_text("utf-8")
)
_CONFIG: Final = """
engine = "scripted"
default_model = "fake:F16"
max_pairs = 8
[models.fake]
files = { F16 = "f16.json" }
"""
#: What GitHub runs a step of `shell: bash` with.
_SHELL: Final = ("--noprofile", "--norc", "-eo", "pipefail", "-c")

pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")


#: This `asperf`, with a lock of its own: others may be measuring on this machine.
_ASPERF: Final = """#!{python}
from pathlib import Path
from pytest_asperf.cli import main
from pytest_asperf.hardware import machine_lock
machine_lock.machine_lock_path = lambda: Path({lock!r})
main()
"""


def _gate(folder: Path, program: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the step that gates, with this program as `asperf`."""
    (step,) = (step for step in ACTION["runs"]["steps"] if step.get("id") == "gate")
    known = {name: given.get("default", "") for name, given in ACTION["inputs"].items()} | inputs
    variables = {
        key: known[value.removeprefix("${{ inputs.").removesuffix(" }}")]
        for key, value in step["env"].items()
    }
    programs = folder / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    (programs / "asperf").write_text(program)
    (programs / "asperf").chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    github = {"GITHUB_OUTPUT": str(folder / "output"), "GITHUB_ACTIONS": "true"}
    own = {"PATH": path, "ASPERF_CACHE": str(folder / "cache")}
    environment = {**os.environ, **variables, **github, **own}
    return subprocess.run(
        [str(BASH), *_SHELL, step["run"]],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_no_input_is_pasted_into_a_script() -> None:
    """A branch may be named like a command: inputs are variables of the environment only."""
    steps = ACTION["runs"]["steps"]
    assert not [step["name"] for step in steps if "${{" in step["run"]]
    pasted = {value for step in steps for value in step["env"].values()}
    assert pasted == {f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]}


def test_a_slower_candidate_fails_the_job(tmp_path: Path) -> None:
    """Options are words as in a shell, reports are written, and the exit code is an output."""
    (tmp_path / "asperf.toml").write_text(_CONFIG)
    write_script(tmp_path / "f16.json", tg_ns_per_token=[1_000_000, 1_010_000, 995_000])
    options = "--workload tg16 --tolerance '7 %' --seed=1"
    words = {"baseline": "current", "candidate": "current,slow_by=0.5", "args": options}
    asperf = _ASPERF.format(python=sys.executable, lock=str(tmp_path / "lock"))
    done = _gate(tmp_path, asperf, **words, report="out $(touch hit)")
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "output").read_text() == "exit-code=1\n"
    assert "::error title=FAIL tg16 fake" in done.stdout
    reports = {path.name for path in (tmp_path / "out $(touch hit)").iterdir()}
    assert reports == {"gate.json", "gate.md", "gate.html"}
    found = json.loads((tmp_path / "out $(touch hit)" / "gate.json").read_text())
    assert found["claims"][0]["at_most"] == pytest.approx(1.07)
    assert not (tmp_path / "hit").exists()


@pytest.mark.parametrize(("undecided", "code"), [("warn", 0), ("fail", 2), ("maybe", 3)])
def test_an_undecided_gate_is_what_the_job_says(tmp_path: Path, undecided: str, code: int) -> None:
    """Its exit code is an output all the same; another word is refused before anything is run."""
    undecided_gate = '#!/bin/sh\nprintf "%s\\n" "$@" > given\nexit 2\n'
    words = {"baseline": "--evil", "candidate": "b c", "args": "--seed 1"}
    done = _gate(tmp_path, undecided_gate, undecided=undecided, **words)
    assert done.returncode == code, done.stderr
    if code == 3:
        assert "::error::undecided is fail or warn" in done.stdout
        return
    assert (tmp_path / "output").read_text() == "exit-code=2\n"
    given = (tmp_path / "given").read_text().splitlines()
    assert (given[:3], given[-3:]) == (["gate", "--seed", "1"], ["--", "--evil", "b c"])
