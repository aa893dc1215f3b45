"""The two sides of a gate: a build and a model file each, in a process each."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.errors import ConfigError
from pytest_asperf.host import EngineBuild, Worker
from pytest_asperf.measure.results import Ran
from pytest_asperf.measure.vetting import require_path

if TYPE_CHECKING:
    from pytest_asperf.engines import Engine
    from pytest_asperf.measure.files import LocatedModel
    from pytest_asperf.spec import Build, EngineSettings

#: What the model is called inside a side's process.
MODEL: Final = "model"


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a gate, before it runs.

    Attributes:
        name: what a reader calls it: the model, and the build where that tells it apart.
        build: its engine and interpreter.
        settings: engine settings of the model in this arm.
        model: the model file.
    """

    name: str
    build: EngineBuild
    settings: EngineSettings
    model: LocatedModel


def engine_build(build: Build, engine: Engine) -> EngineBuild:
    """Return what a worker on a build is started from.

    Args:
        build: the build.
        engine: the engine that the model runs on.

    Raises:
        ConfigError: programs for an engine that is a library, or the other way round.
    """
    if (build.tools is not None) != (engine == "llama_tools"):
        raise ConfigError(
            f"the engine is {engine}, and the build {build.name} is {build.tools or build.python}",
            why="programs feed random tokens and load for each run; what they time is comparable "
            "with each other's alone",
            remedy="name two folders of programs with --asperf-engine=llama_tools, or two "
            "interpreters without",
        )
    return EngineBuild(engine, build.python, build.tools)


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
        self.worker = Worker(arm.build, call_timeout_s=timeout_s)
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
            )
        )
