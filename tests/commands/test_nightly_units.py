"""`asperf nightly --print-unit`: each file is read by what it is for, as far as that is here."""

from __future__ import annotations

import plistlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml  # type: ignore[import-untyped]  # comes with gguf, without types

from pytest_asperf.commands.nightly import UNITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.commands.conftest import Ended

FOLDER = Path("/srv/50% my models")
WORDS = ["asperf", "nightly", "old==1", "--notify", 'mail -s "a $b" me', "--tolerance", "5%"]


def test_launchd_reads_the_agent() -> None:
    """The words stay one by one, and the Mac is kept awake."""
    agent = plistlib.loads(UNITS["launchd"](WORDS, FOLDER).encode())
    assert agent["ProgramArguments"] == ["/usr/bin/caffeinate", "-is", *WORDS]
    assert agent["WorkingDirectory"] == str(FOLDER)
    assert agent["StartCalendarInterval"] == {"Hour": 3, "Minute": 30}


def test_a_shell_reads_the_line_of_cron() -> None:
    """Cron takes a % for the end of the command unless a backslash is before it."""
    line = UNITS["cron"](WORDS, FOLDER)
    times, command = line.rstrip("\n").split(" * * * ")
    assert times == "30 3"
    assert not re.search(r"(?<!\\)%", command)
    words = shlex.split(command.replace("\\%", "%"))
    assert words == ["cd", str(FOLDER), "&&", *WORDS]


def test_the_workflow_is_yaml() -> None:
    """It runs every night on a machine of one's own, may only read, and ends at some time."""
    workflow = yaml.safe_load(UNITS["actions"](WORDS, FOLDER))
    assert workflow[True]["schedule"] == [{"cron": "30 3 * * *"}]
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    (step,) = job["steps"]
    assert (job["runs-on"], job["timeout-minutes"]) == (["self-hosted"], 240)
    assert shlex.split(step["run"]) == WORDS
    assert step["working-directory"] == str(FOLDER)


def test_systemd_reads_the_units(tmp_path: Path) -> None:
    """What has a meaning for systemd is escaped, and the timer catches up on a missed night."""
    text = UNITS["systemd"]([sys.executable, *WORDS[1:]], tmp_path)
    service, timer = text.split("\n\n# ~/.config")
    start = next(line for line in service.splitlines() if line.startswith("ExecStart="))
    assert start.endswith(r'old==1 --notify "mail -s \"a $$b\" me" --tolerance "5%%"')
    assert "Persistent=true" in timer
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed")
    (tmp_path / "asperf-nightly.service").write_text(service)
    (tmp_path / "asperf-nightly.timer").write_text(f"# {timer}")
    paths = sorted(map(str, tmp_path.glob("asperf-nightly.*")))
    done = subprocess.run(
        [verify, "verify", *paths], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("option", [("--print-unit", "cron"), ("--print-unit=cron",)])
def test_the_unit_repeats_the_command_as_typed(
    option: tuple[str, ...], run_asperf: Callable[..., Ended]
) -> None:
    """Without the option itself, and with the interpreter by its path."""
    done = run_asperf("nightly", "old==1", *option, "--store", "h.db")
    assert done.returncode == 0
    start = f"{sys.executable} -m pytest_asperf.cli nightly old==1 --store h.db\n"
    assert done.stdout.endswith(start)
