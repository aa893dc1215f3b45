"""A forked worker equals a started one, for its parent process."""

import os
import signal
import sys
from pathlib import Path

import pytest

from pytest_asperf.engine_process import EngineBuild, Worker, WorkerError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")

SCRIPTED = EngineBuild("scripted", Path(sys.executable))


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_it_is_a_fork_and_a_child_of_this_process() -> None:
    """Its command is that of the process that forked it; its end is seen here, with the signal."""
    with Worker(SCRIPTED) as worker:
        assert b"forked()" in Path(f"/proc/{worker.pid}/cmdline").read_bytes()
        assert (_parent(worker.pid), os.getpgid(worker.pid)) == (os.getpid(), worker.pid)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="was ended by SIGKILL"):
            worker.describe()


def test_it_has_the_environment_and_folder_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes since the engine was imported count."""
    with Worker(SCRIPTED) as worker:
        assert worker.describe().version == "1"
    monkeypatch.setenv("ASPERF_SCRIPT_VERSION", "7")
    monkeypatch.chdir(tmp_path)
    with Worker(SCRIPTED) as worker:
        assert worker.describe().version == "7"
        assert Path(f"/proc/{worker.pid}/cwd").readlink() == tmp_path


@pytest.mark.usefixtures("own_interpreters")
def test_a_test_can_have_interpreters_of_its_own() -> None:
    """The fixture `own_interpreters` starts each worker as users have it."""
    with Worker(SCRIPTED) as worker:
        assert b"forked()" not in Path(f"/proc/{worker.pid}/cmdline").read_bytes()
