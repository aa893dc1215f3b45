"""An interruption while a process starts leaves none behind, however late the start returns."""

import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.builds.step import run_step
from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.engine_process.process import interrupts_later
from tests.processes import wait_for_end

pytestmark = pytest.mark.usefixtures("own_interpreters")

_SLEEPS = "#!/bin/sh\nexec sleep 600\n"


@pytest.fixture
def sleeper(tmp_path: Path) -> Path:
    """A program that does nothing and reads nothing."""
    path = tmp_path / "sleeper"
    path.write_text(_SLEEPS)
    path.chmod(0o755)
    return path


def _engine(program: Path) -> None:
    Worker(EngineBuild("scripted", program))


def _step(program: Path) -> None:
    log = program.with_name("log")
    run_step([program], cwd=program.parent, env={}, log=log, on_line=lambda _: None)


@pytest.mark.parametrize("start", [_engine, _step])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_of_a_start_leaves_no_process(
    sleeper: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: Callable[[Path], None],
    number: signal.Signals,
) -> None:
    """The signal comes when the process runs, and before any code has the object that ends it."""
    started: list[int] = []
    popen = subprocess.Popen

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        process = popen(*args, **kwargs)
        started.append(process.pid)
        signal.raise_signal(number)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start(sleeper)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
    (pid,) = started
    wait_for_end(pid)


def test_a_start_that_fails_restores_the_handlers(tmp_path: Path) -> None:
    """An error of the start is raised, and Ctrl-C works as before."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(OSError, match="nowhere"), interrupts_later():
        subprocess.Popen([tmp_path / "nowhere"])
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_delays_nothing() -> None:
    """Only the main thread may set handlers, and only there an interruption is raised."""
    ran = threading.Event()

    def work() -> None:
        with interrupts_later() as release:
            release()
        ran.set()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ran.is_set()
