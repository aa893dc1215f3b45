"""Files that run `asperf nightly` every night: systemd, launchd, cron, GitHub Actions."""

from __future__ import annotations

import json
import plistlib
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OPTION: Final = "--print-unit"
_HOUR, _MINUTE = 3, 30
_LABEL: Final = "org.pytest-asperf.nightly"
#: Words that systemd takes as they are.
_SAFE: Final = re.compile(r"[\w@+=:,./-]+", re.ASCII)
_SYSTEMD: Final = """\
# ~/.config/systemd/user/asperf-nightly.service, then the timer below, then:
#   systemctl --user daemon-reload && systemctl --user enable --now asperf-nightly.timer
#   loginctl enable-linger    # also while you are logged out
[Unit]
Description=pytest-asperf: measure the current build against an anchor

[Service]
Type=oneshot
WorkingDirectory={folder}
ExecStart={command}

# ~/.config/systemd/user/asperf-nightly.timer
[Unit]
Description=pytest-asperf every night

[Timer]
OnCalendar=*-*-* {hour:02}:{minute:02}:00
Persistent=true

[Install]
WantedBy=timers.target
"""
_ACTIONS: Final = """\
# .github/workflows/nightly.yml, on a machine of your own, where the store stays.
name: nightly

on:
  schedule:
    - cron: "{minute} {hour} * * *"
  workflow_dispatch:

permissions:
  contents: read

concurrency:
  group: nightly

jobs:
  nightly:
    runs-on: [self-hosted]
    timeout-minutes: 240
    steps:
      - name: Measure against the anchor
        working-directory: {folder}
        run: {command}
"""


def show_unit(name: str) -> None:
    """Print the file that runs the command of this process, in its folder, every night."""
    click.echo(UNITS[name](_command(), Path.cwd()), nl=False)


def _systemd(command: list[str], folder: Path) -> str:
    words = " ".join(map(_systemd_word, command))
    place = _percent(str(folder), "%%")
    return _SYSTEMD.format(command=words, folder=place, hour=_HOUR, minute=_MINUTE)


def _cron(command: list[str], folder: Path) -> str:
    line = f"cd {shlex.quote(str(folder))} && {shlex.join(command)}"
    return f"{_MINUTE} {_HOUR} * * * {_percent(line, chr(92) + '%')}\n"


def _actions(command: list[str], folder: Path) -> str:
    # A JSON string is a YAML string.
    words, place = json.dumps(shlex.join(command)), json.dumps(str(folder))
    return _ACTIONS.format(command=words, folder=place, hour=_HOUR, minute=_MINUTE)


def _launchd(command: list[str], folder: Path) -> str:
    agent = {
        "Label": _LABEL,
        # Without it a Mac may sleep while it measures.
        "ProgramArguments": ["/usr/bin/caffeinate", "-is", *command],
        "WorkingDirectory": str(folder),
        "StartCalendarInterval": {"Hour": _HOUR, "Minute": _MINUTE},
        # Others may be put onto efficiency cores.
        "ProcessType": "Interactive",
        "StandardOutPath": str(folder / "asperf-nightly.log"),
        "StandardErrorPath": str(folder / "asperf-nightly.log"),
    }
    return plistlib.dumps(agent, sort_keys=False).decode()


def _command() -> list[str]:
    """The words of this process without the option, its program by its full path."""
    words = sys.argv[1:]
    at = next(i for i, word in enumerate(words) if word.split("=")[0] == _OPTION)
    del words[at : at + (1 if "=" in words[at] else 2)]
    return [sys.executable, "-m", "pytest_asperf.cli", *words]


def _systemd_word(word: str) -> str:
    escaped = _percent(word, "%%").replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return word if _SAFE.fullmatch(word) else f'"{escaped}"'


def _percent(text: str, escaped: str) -> str:
    return text.replace("%", escaped)


#: Files that run a command every night, by what reads them.
UNITS: Final[Mapping[str, Callable[[list[str], Path], str]]] = {
    "systemd": _systemd,
    "launchd": _launchd,
    "cron": _cron,
    "actions": _actions,
}
