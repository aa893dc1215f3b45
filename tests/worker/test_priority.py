"""An engine comes before other work where it may, and keeps a nice value that was named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_asperf.config.settings import Settings
from pytest_asperf.engine_process import EngineBuild, engine_priority
from pytest_asperf.worker import priority

#: Starts an engine in a process of a nice value, and shows the engine's own.
_NAMED = """
import os, sys
from pathlib import Path
from pytest_asperf.engine_process import EngineBuild, Worker
named, asked = map(int, sys.argv[1:])
os.setpriority(os.PRIO_PROCESS, 0, named)
with Worker(EngineBuild("scripted", Path(sys.executable), nice=asked)) as worker:
    session = Path(f"/proc/{worker.pid}/autogroup")
    nice = os.getpriority(os.PRIO_PROCESS, worker.pid)
    print(worker.describe().priority)
    print(nice)
    print(session.read_text().split()[-1] if session.exists() else nice)
"""


def _may(nice: int) -> bool:
    command = [sys.executable, "-c", f"import os; os.setpriority(os.PRIO_PROCESS, 0, {nice})"]
    return not subprocess.run(command, capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    ("named", "asked", "has"),
    [(0, -5, -5), (0, -20, -20), (0, 4, 4), (0, 0, 0), (3, -20, 3), (-7, -5, -7), (3, 0, 3)],
)
def test_an_engine_runs_as_asked(named: int, asked: int, has: int) -> None:
    """Process and session have the requested value, or the one that the user named."""
    if not _may(min(named, asked)):
        pytest.skip("this user may not raise a priority")
    command = [sys.executable, "-c", _NAMED, str(named), str(asked)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    assert shown[:3] == [f"nice {has}" if has else "None", str(has), str(has)]


def test_a_modest_priority_is_the_default() -> None:
    """Without an option an engine has at most -5: other work of the machine goes on."""
    assert EngineBuild("scripted", Path(sys.executable)).nice == Settings().nice == -5


@pytest.mark.parametrize("nice", [-5, 4, 0])
def test_the_priority_is_known_before_an_engine_starts(nice: int) -> None:
    """A process that sets it reports the system's permission."""
    named = os.getpriority(os.PRIO_PROCESS, 0)
    expected = f"nice {named or nice}" if named or nice else None
    if not named and not _may(nice):
        expected = f"nice 0, as {nice} needs root's rights"
    assert engine_priority(nice) == expected


#: Gives up the right to raise a priority, PR_CAPBSET_DROP of CAP_SYS_NICE, and starts an engine.
_UNPRIVILEGED = """
import ctypes, os, sys
from pathlib import Path
from pytest_asperf.engine_process import EngineBuild, Worker, engine_priority
os.setpriority(os.PRIO_PROCESS, 0, 0)
ctypes.CDLL(None).prctl(24, 23, 0, 0, 0)
with Worker(EngineBuild("scripted", Path(sys.executable), nice=int(sys.argv[1]))) as worker:
    print(worker.describe().priority)
print(engine_priority(int(sys.argv[1])))
"""


@pytest.mark.parametrize(
    ("asked", "shown"),
    [(-5, "nice 0, as -5 needs root's rights"), (4, "nice 4"), (0, "None")],
)
def test_a_priority_that_is_not_permitted_is_told(asked: int, shown: str) -> None:
    """Without root's rights the engine's run record and the gate name the value that is missing."""
    if sys.platform != "linux" or (os.getuid() and _may(-5)):
        pytest.skip("this user keeps the right to raise a priority")
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        pytest.skip("the tests run at a nice value that was named")
    command = [sys.executable, "-c", _UNPRIVILEGED, str(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == [shown] * 2


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
    """Run record has the session's value where only the process's could be set."""
    (tmp_path / "autogroup").write_text(session)
    monkeypatch.setattr(priority, "_SESSION", tmp_path / "autogroup")
    monkeypatch.setattr(os, "getpriority", lambda *_: nice)
    assert priority.priority() == shown


def test_waits_for_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two engines started together tries again: the kernel accepts one in 0.1 s."""
    written: list[str] = []
    answers = [BlockingIOError(), BlockingIOError(), None]

    class Session:
        """The kernel's file; it never limits a privileged user."""

        def write_text(self, text: str) -> None:
            """Raise twice."""
            written.append(text)
            if answer := answers[len(written) - 1]:
                raise answer

    monkeypatch.setattr(priority, "_SESSION", Session())
    monkeypatch.setattr(os, "setpriority", lambda *_: None)
    monkeypatch.setattr(os, "getpriority", lambda *_: 0)
    priority.take_priority(-5)
    assert written == ["-5"] * 3
