"""Processes stay between comparisons, and only those that never failed."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.engine_process import (
    EngineBuild,
    EngineRefusedError,
    Worker,
    WorkerError,
    usable_cores,
)
from pytest_asperf.measure.idle_workers import IdleWorkers
from pytest_asperf.testing import write_script

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTED = EngineBuild("scripted", Path(sys.executable))


@pytest.fixture
def idle() -> Iterator[IdleWorkers]:
    """The idle processes, ended after the test."""
    workers = IdleWorkers()
    yield workers
    workers.close()


def loaded(idle: IdleWorkers, tmp_path: Path, **script: Any) -> Worker:
    """A process with a model."""
    path = write_script(tmp_path / "model.json", **script)
    worker = idle.take(SCRIPTED, 60)
    worker.load("model", path, EngineSettings())
    return worker


def test_a_process_serves_the_next_arm_with_nothing_loaded(
    idle: IdleWorkers, tmp_path: Path
) -> None:
    """It takes the next arm's deadline, runs on all cores again, and keeps what it reported."""
    first = loaded(idle, tmp_path)
    described = first.describe()
    if cores := usable_cores():
        first.confine(cores[:1])
    idle.give_back(first)
    again = idle.take(SCRIPTED, 7)
    assert (again.pid, again.call_timeout_s) == (first.pid, 7)
    assert again.describe() is described
    if cores:
        assert os.sched_getaffinity(again.pid) == set(cores)
    with pytest.raises(EngineRefusedError, match="no model 'model' is loaded"):
        again.unload("model")
    again.close()


def test_one_build_has_as_many_processes_as_arms(idle: IdleWorkers) -> None:
    """Two arms that run at once never share one."""
    first = idle.take(SCRIPTED, 60)
    idle.give_back(first)
    arms = [idle.take(SCRIPTED, 60) for _ in range(2)]
    assert len({arm.pid for arm in arms}) == 2
    for arm in arms:
        idle.give_back(arm)


@pytest.mark.parametrize("fault", ["refuse", "crash", "garbage"])
def test_a_process_that_failed_is_ended(idle: IdleWorkers, tmp_path: Path, fault: str) -> None:
    """Whether it refused, died or answered nonsense, and whatever it answered afterwards."""
    worker = loaded(idle, tmp_path, faults={"generate": fault})
    with pytest.raises((EngineRefusedError, WorkerError)):
        worker.generate("model", [0] * 8, 0)
    if fault == "refuse":
        assert worker.tokenize("model", "ab")
    idle.give_back(worker)
    assert_ended(worker)


def test_a_process_that_was_interrupted_is_ended(
    idle: IdleWorkers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is still to come, and would be read as that to the next request."""
    worker = loaded(idle, tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(worker, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            worker.generate("model", [0] * 8, 0)
    idle.give_back(worker)
    assert_ended(worker)


def test_a_process_that_died_while_idle_is_replaced(idle: IdleWorkers) -> None:
    """As when the kernel ended it for its memory."""
    worker = idle.take(SCRIPTED, 60)
    idle.give_back(worker)
    os.kill(worker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    again = idle.take(SCRIPTED, 60)
    assert again.pid != worker.pid
    idle.give_back(again)


def test_builds_share_no_process(idle: IdleWorkers) -> None:
    """A process of another build is not taken, and ends before what is compared next."""
    other = replace(SCRIPTED, tools=Path("/nonexistent"))
    worker = idle.take(SCRIPTED, 60)
    worker.build = other
    idle.give_back(worker)
    own = idle.take(SCRIPTED, 60)
    assert own.pid != worker.pid
    idle.give_back(own)
    idle.keep_only({SCRIPTED})
    assert_ended(worker)
    assert own.alive
    idle.close()
    assert_ended(own)


def test_what_was_logged_is_not_the_next_arms(draft_gguf: Path) -> None:
    """An error would show the log of a model that is not loaded any more."""
    build = EngineBuild("llama_cpp", Path(sys.executable))
    with Worker(build) as worker:
        worker.load("model", draft_gguf, EngineSettings(threads=1))
    assert worker.log_tail
    with Worker(build) as worker:
        worker.load("model", draft_gguf, EngineSettings(threads=1))
        worker.clear()
    assert not worker.log_tail  # the thread that reads it has ended


def assert_ended(worker: Worker) -> None:
    """No process is left of it."""
    assert not worker.alive
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)
