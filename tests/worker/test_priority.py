"""An engine comes before other work where it may, and keeps a nice value that was named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.worker import priority

_SESSION = Path("/proc/self/autogroup")
_MAY = "import os; os.setpriority(os.PRIO_PROCESS, 0, -20)"
#: Starts an engine in a process whose nice value is named, and shows what it has itself.
_NAMED = """
import os, sys
from pathlib import Path
from pytest_asperf.engine_process import EngineBuild, Worker
os.nice(int(sys.argv[1]))
with Worker(EngineBuild("scripted", Path(sys.executable))) as worker:
    session = Path(f"/proc/{worker.pid}/autogroup")
    print(worker.describe().priority)
    print(os.getpriority(os.PRIO_PROCESS, worker.pid))
    print(session.read_text().split()[-1] if session.exists() else sys.argv[1])
"""


def test_comes_first() -> None:
    """Process and session of an engine have the highest priority, and the proof of path says so."""
    if os.getpriority(os.PRIO_PROCESS, 0):
        pytest.skip("the tests run at a nice value that was named")
    if subprocess.run([sys.executable, "-c", _MAY], capture_output=True, check=False).returncode:
        pytest.skip("this user may not raise a priority")
    with Worker(EngineBuild("scripted", Path(sys.executable))) as worker:
        assert worker.describe().priority == "nice -20"
        assert os.getpriority(os.PRIO_PROCESS, worker.pid) == -20
        if _SESSION.exists():
            assert Path(f"/proc/{worker.pid}/autogroup").read_text().split()[-1] == "-20"


def test_named_value_stays() -> None:
    """Under `nice -n 3` an engine runs at 3, its session too, whoever the user is."""
    command = [sys.executable, "-c", _NAMED, "3"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.split("\n")[:3] == ["nice 3", "3", "3"]


@pytest.mark.parametrize(
    ("nice", "session", "shown"),
    [
        (-20, "/autogroup-7 nice -20\n", "nice -20"),
        (-20, "/autogroup-7 nice 0\n", "nice -20, its session 0"),
        (3, "", "nice 3"),
        (0, "/autogroup-7 nice 0\n", None),
    ],
)
def test_a_session_that_stays_behind_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nice: int, session: str, shown: str | None
) -> None:
    """Proof of path has the session's value where only the process's could be set."""
    (tmp_path / "autogroup").write_text(session)
    monkeypatch.setattr(priority, "_SESSION", tmp_path / "autogroup")
    monkeypatch.setattr(os, "getpriority", lambda *_: nice)
    assert priority.priority() == shown


def test_waits_for_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two engines started together the second asks again: the kernel takes one in 0.1 s."""
    written: list[str] = []
    answers = [BlockingIOError(), BlockingIOError(), None]

    class Session:
        """The kernel's file; who may do anything is never refused by it."""

        def write_text(self, text: str) -> None:
            """Refuse twice."""
            written.append(text)
            if answer := answers[len(written) - 1]:
                raise answer

    monkeypatch.setattr(priority, "_SESSION", Session())
    monkeypatch.setattr(os, "setpriority", lambda *_: None)
    monkeypatch.setattr(os, "getpriority", lambda *_: 0)
    priority.take_priority()
    assert written == ["-20"] * 3
