"""The facts that a locator learns of its build, and how often it starts an engine for them."""

import sys
from pathlib import Path

import pytest

from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.modelfiles.locate import ModelLocator


@pytest.mark.parametrize("runs_already", [False, True])
def test_a_worker_that_runs_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, runs_already: bool
) -> None:
    """An engine that is slow to start is not started once more to describe itself."""
    build = EngineBuild("scripted", Path(sys.executable))
    locator = ModelLocator(build, cache=tmp_path, call_timeout_s=20)
    with Worker(build) as worker:
        started: list[Worker] = []
        start = Worker._start

        def noted(new: Worker) -> None:
            started.append(new)
            start(new)

        monkeypatch.setattr(Worker, "_start", noted)
        facts = locator.describe(worker if runs_already else None)
        assert facts == worker.describe()
    assert locator.describe() is facts
    assert len(started) == (not runs_already)
