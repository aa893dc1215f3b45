"""The recipes of docs/nightly-timers.md: each is read by what it is for, as far as that is here."""

import plistlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # comes with gguf, without types

from pytest_asperf.commands.nightly import nightly

PAGE = Path(__file__).parents[2] / "docs" / "nightly-timers.md"
WORDS = ["nightly", "llama-cpp-python==0.3.35", "--store", "history.db"]


def recipe(language: str) -> str:
    """Return the one block of the page in this language."""
    (found,) = re.findall(f"```{language}\\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    return str(found)


def test_launchd_reads_the_agent() -> None:
    """It starts the command every night, and keeps the Mac awake."""
    agent = plistlib.loads(recipe("xml").encode())
    program, options, asperf, *words = agent["ProgramArguments"]
    assert (program, options, words) == ("/usr/bin/caffeinate", "-is", WORDS)
    assert Path(asperf).is_relative_to(agent["WorkingDirectory"])
    assert agent["StartCalendarInterval"] == {"Hour": 3, "Minute": 30}


def test_a_shell_reads_the_line_of_cron() -> None:
    """Cron ends the command at a % unless a backslash is before it."""
    times, command = recipe("cron").rstrip("\n").split(" * * * ")
    assert times == "30 3"
    assert not re.search(r"(?<!\\)%", command)
    assert shlex.split(command)[-len(WORDS) :] == WORDS


def test_the_workflow_is_yaml() -> None:
    """It runs every night on a machine of one's own, may only read, and ends at some time."""
    workflow = yaml.safe_load(recipe("yaml"))
    assert workflow[True]["schedule"] == [{"cron": "30 3 * * *"}]
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    (step,) = job["steps"]
    assert (job["runs-on"], job["timeout-minutes"]) == (["self-hosted"], 240)
    assert shlex.split(step["run"])[1:] == WORDS


def test_systemd_reads_the_units(tmp_path: Path) -> None:
    """The timer catches up on a missed night, and systemd accepts both files."""
    service, timer = recipe("systemd").split("\n\n# asperf-nightly.timer\n")
    assert "Persistent=true" in timer
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed")
    here = service.replace("/srv/models/.venv/bin/asperf", sys.executable)
    (tmp_path / "asperf-nightly.service").write_text(here.replace("/srv/models", str(tmp_path)))
    (tmp_path / "asperf-nightly.timer").write_text(timer)
    paths = sorted(map(str, tmp_path.glob("asperf-nightly.*")))
    done = subprocess.run(
        [verify, "verify", *paths], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_the_command_takes_these_words() -> None:
    """The command accepts the recipes' options."""
    given = nightly.make_context("nightly", WORDS[1:]).params
    assert given["base"] == WORDS[1]
