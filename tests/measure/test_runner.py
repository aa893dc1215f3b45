"""The end of a measurement, as its observer sees it."""

import sys
from pathlib import Path

import pytest

from pytest_asperf.config.progress import NOTHING_YET, Notify, SoFar
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import EngineBuild, WorkerError
from pytest_asperf.measure.experiment import MeasurementPlan
from pytest_asperf.measure.runner import MeasurementRunner
from pytest_asperf.testing import write_script


class Observer(Notify):
    """Notes the calls that show, and remove, the line of a measurement."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def progress(self, label: str, done: int, total: int, so_far: SoFar = NOTHING_YET) -> None:
        """Note a step."""
        del so_far
        self.seen.append(f"{label} {done}/{total}")

    def done(self) -> None:
        """Note the end."""
        self.seen.append("done")

    def wait(self, reason: str) -> None:
        """Note a pause."""
        self.seen.append(reason)

    def say(self, text: str) -> None:
        """Note a line."""
        self.seen.append(text)


@pytest.mark.parametrize("fault", [{}, {"generate": "crash"}, {"load": "crash"}])
def test_a_measurement_that_fails_clears_its_line(tmp_path: Path, fault: dict[str, str]) -> None:
    """The end is the last that an observer sees, and it comes if the engine breaks too."""
    script = write_script(tmp_path / "model.json", faults=fault)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("def area(width):\n    return width\n")
    observer = Observer()
    runner = MeasurementRunner(
        EngineBuild("scripted", Path(sys.executable)),
        cache=tmp_path,
        corpus=corpus,
        plan=MeasurementPlan(repetitions=2),
        lock_path=tmp_path / "lock",
        notify=observer,
    )
    ref = ModelRef(ModelSpec("it", gguf=script))
    with runner:
        if fault:
            with pytest.raises(WorkerError):
                runner.throughput(ref, Workload("tg", 8))
        else:
            runner.throughput(ref, Workload("tg", 8))
    assert observer.seen.count("done") == 1
    assert observer.seen[-1] == "done"
