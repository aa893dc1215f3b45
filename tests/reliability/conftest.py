"""Sessions in processes of their own, and the search for their remains."""

import os
import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

#: Names the session in the environment of every process that it starts.
_MARK = "ASPERF_TEST_SESSION"


@dataclass(frozen=True)
class Session:
    """A finished session of pytest.

    Attributes:
        status: its exit status.
        output: its output.
        outcomes: by test, the words that were reported of it, in their order.
    """

    status: int
    output: str
    outcomes: dict[str, list[str]] = field(default_factory=dict)

    def require_clean(self) -> None:
        """Assert that nothing of it looks like a defect of the plugin."""
        for word in ("INTERNALERROR", "Traceback (most recent call last)"):
            assert word not in self.output, self.output


def outcomes_of(output: str) -> dict[str, list[str]]:
    """Return the words that `pytest -v` printed, by test."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        alone = re.match(r"(\S+::\S+) ([A-Z]+)\b", line)
        shared = re.match(r"\[gw\d\] \[ *\d+%\] ([A-Z]+)\b.* (\S+::\S+)", line)
        if alone:
            found.setdefault(alone[1].partition("::")[2], []).append(alone[2])
        elif shared:
            found.setdefault(shared[2].partition("::")[2].partition("@")[0], []).append(shared[1])
    return found


@dataclass(frozen=True)
class Sessions:
    """Runs pytest in a folder.

    Attributes:
        folder: the project.
        command: the command of pytest.
        environment: its environment.
    """

    folder: Path
    command: list[str]
    environment: dict[str, str]

    def begin(self, *options: str) -> subprocess.Popen[str]:
        """Start a session, in a process group of its own."""
        return subprocess.Popen(
            [*self.command, "-v", *options],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self, process: subprocess.Popen[str]) -> Session:
        """Wait for a session."""
        output, _ = process.communicate(timeout=300)
        return Session(process.returncode, output, outcomes_of(output))

    def run(self, *options: str) -> Session:
        """Run one to its end."""
        return self.end(self.begin(*options))

    def left_behind(self) -> list[int]:
        """Return the processes of these sessions that are still there after a while."""
        mark = self.environment[_MARK]
        until = time.monotonic() + 120
        while (left := _marked(mark)) and time.monotonic() < until:
            time.sleep(0.05)
        return left


def _marked(mark: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == mark:
                found.append(process.pid)
        except psutil.Error:  # gone, or not ours
            continue
    return [pid for pid in found if pid != os.getpid()]


@pytest.fixture(scope="module")
def sessions(
    tmp_path_factory: pytest.TempPathFactory,
    command: list[str],
    environment: dict[str, str],
    own_lock: str,
) -> Iterator[Sessions]:
    """Sessions in a new folder, of which no process may be left at the end."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "conftest.py").write_text(own_lock)
    found = Sessions(folder, command, {**environment, _MARK: uuid.uuid4().hex})
    yield found
    assert found.left_behind() == []
