"""The two sides of a gate: a build and a model file each, in a process each."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.builds.workshop import ReadyBuild
from pytest_asperf.errors import EngineError
from pytest_asperf.host import Worker
from pytest_asperf.measure.results import Ran
from pytest_asperf.measure.vetting import require_path

if TYPE_CHECKING:
    from pytest_asperf.builds.workshop import Workshop
    from pytest_asperf.host import EngineBuild
    from pytest_asperf.measure.files import LocatedModel, ModelShelf
    from pytest_asperf.spec import Build, EngineSettings, ModelRef

#: What the model is called inside a side's process.
MODEL: Final = "model"


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a gate, before it runs.

    Attributes:
        name: what a reader calls it: the model, and the build where that tells it apart.
        build: its engine, ready to be started.
        settings: engine settings of the model in this arm.
        model: the model file.
    """

    name: str
    build: ReadyBuild
    settings: EngineSettings
    model: LocatedModel


class Armoury:
    """Fits out the two sides of gates: their builds made, and one model file for both.

    Args:
        own: the build that measures what is no gate.
        shelf: its models.
        workshop: makes the builds that gates name.
    """

    def __init__(self, own: EngineBuild, shelf: ModelShelf, workshop: Workshop) -> None:
        self._own = own
        self._workshop = workshop
        self._shelves = {own: shelf}

    def own_arm(self, ref: ModelRef) -> Arm:
        """Return a side that is a model under the own build."""
        model = self._shelves[self._own].locate(ref)
        return Arm(ref.title, ReadyBuild(self._own), ref.spec.settings, model)

    def arms(self, ref: ModelRef, builds: tuple[Build, Build]) -> tuple[Arm, Arm]:
        """Return the sides that hold two builds against each other on one model.

        Raises:
            AsperfError: a build or the model cannot be made.
        """
        ready = [self._workshop.ready(build, self._own.engine) for build in builds]
        model = self._shelf(ready[0].engine).locate(ref)
        base, candidate = (
            Arm(
                f"{ref.title} in {build.name}",
                each,
                ref.spec.settings.merged(build.settings),
                model,
            )
            for build, each in zip(builds, ready, strict=True)
        )
        return base, candidate

    def _shelf(self, baseline: EngineBuild) -> ModelShelf:
        """Return what makes models: the own engine, or the baseline where there is none."""
        own = self._shelves[self._own]
        try:
            own.describe()
        except EngineError:
            return self._shelves.setdefault(baseline, own.on(baseline))
        return own


class Side:
    """One arm at work: its process, with the model loaded.

    Args:
        arm: what runs.
        timeout_s: deadline of one call to the engine.

    Attributes:
        worker: the process.
        loaded: what the last load resolved to.
    """

    def __init__(self, arm: Arm, timeout_s: float) -> None:
        self._arm = arm
        self.worker = Worker(arm.build.engine, call_timeout_s=timeout_s)
        try:
            self._described = self.worker.describe()
            self.load()
        except BaseException:
            self.worker.close()
            raise

    def load(self) -> float:
        """Load the model, and return how long that took in seconds."""
        began = time.perf_counter()
        self.loaded = self.worker.load(MODEL, self._arm.model.path, self._arm.settings)
        elapsed_s = time.perf_counter() - began
        self.ran({})
        return elapsed_s

    def reload(self) -> float:
        """Load the model anew, and return how long that took in seconds."""
        self.worker.unload(MODEL)
        return self.load()

    def ran(self, context: dict[str, Any]) -> Ran:
        """Return the proof of path.

        Args:
            context: what the last run's context resolved to.

        Raises:
            MeasurementError: the engine says that it did something else than was asked.
        """
        return require_path(
            Ran(
                self._arm.name,
                self._arm.model.path,
                self._arm.model.sha256,
                self._described,
                self.loaded,
                context,
                self._arm.settings.as_dict(),
                self._arm.build.rows(),
            )
        )
