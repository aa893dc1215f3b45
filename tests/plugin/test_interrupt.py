"""A session that ends early: no worker stays behind, and its measurements are shown."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.plugin.conftest import Project
from tests.processes import wait_for_end

MEASURES = """
@pytest.mark.model("fake:Q8_0")
def test_first(throughput):
    throughput("tg8").estimate

@pytest.mark.model("fake:F16")
def test_hangs(throughput):
    throughput("tg8").estimate
"""


def _wait_for(log: Path, session: subprocess.Popen[str], n_runs: int = 1) -> int:
    """Return the engine process in the log, after that many runs."""
    while not log.exists() or log.read_text().count("generate") < n_runs:
        assert session.poll() is None, session.communicate()[0]
        time.sleep(0.05)
    return int(log.read_text().split()[-2])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_worker_stays_behind(
    project: Project, command: list[str], environment: dict[str, str], how: signal.Signals
) -> None:
    """However pytest ends, the engine's process ends with it, in the middle of a call too."""
    log = project.path / "log"
    project.script("f16", log=str(log), faults={"generate": "hang"})
    project.test(MEASURES)
    session = subprocess.Popen(
        command, cwd=project.path, env=environment, stdout=subprocess.PIPE, text=True
    )
    pid = _wait_for(log, session)
    session.send_signal(how)
    output, _ = session.communicate(timeout=60)
    wait_for_end(pid)
    if how != signal.SIGKILL:
        assert session.returncode == pytest.ExitCode.INTERRUPTED, output
        assert "tg8 fake:Q8_0 " in output
        assert "KeyboardInterrupt" in output


def test_a_gate_keeps_its_finished_pairs(
    project: Project, command: list[str], environment: dict[str, str]
) -> None:
    """Ctrl-C in a gate gives the finished pairs' result, and INCONCLUSIVE."""
    log = project.path / "log"
    project.config(default_model="fake:F16")
    project.script("f16", log=str(log), takes_s={"generate": 0.005})
    project.test('def test_gate(gate):\n    assert_no_regression(gate("tg8"), tolerance="0.1%")')
    options = ["--asperf-candidate=slow_by=0.0005", "--asperf-max-pairs=1000"]
    session = subprocess.Popen(
        [*command, *options], cwd=project.path, env=environment, stdout=subprocess.PIPE, text=True
    )
    # A pair has up to 25 run pairs with the work before each, and the rehearsal as many.
    _wait_for(log, session, n_runs=400)
    session.send_signal(signal.SIGINT)
    output, _ = session.communicate(timeout=60)
    assert session.returncode == pytest.ExitCode.INTERRUPTED
    assert "?  gate tg8 fake:F16  " in output
    assert " pairs" in output
