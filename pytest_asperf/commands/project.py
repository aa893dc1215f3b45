"""What the folder that a command runs in decides: models, settings, interpreter, cache."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_asperf.config.catalogue import load_catalogue
from pytest_asperf.config.settings import parse_values, read_word
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.shipped import shipped_models

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.status import Status

    from pytest_asperf.config.catalogue import Catalogue
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.settings import Settings
    from pytest_asperf.engine_process import EngineBuild
    from pytest_asperf.hardware.machine_lock import MachineQueue
    from pytest_asperf.measure.runner import MeasurementRunner


@dataclass(frozen=True, slots=True)
class Project:
    """A project, as a command sees it.

    Attributes:
        catalogue: its models and builds, and its settings with the command's options over them.
        cache: the cache folder.
    """

    catalogue: Catalogue
    cache: Path

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.catalogue.settings

    def draw_seed(self) -> int:
        """Return the seed of every random order: the one given, else a new one."""
        given = self.settings.seed
        return secrets.randbelow(2**31) if given is None else given

    def engine_build(self, engine: Engine) -> EngineBuild:
        """Return an engine as this project runs it."""
        from pytest_asperf.engine_process import EngineBuild  # noqa: PLC0415  # with what it brings

        return EngineBuild(engine, self.settings.python, self.settings.tools_of(engine))

    def queue(self, on_wait: Callable[[str], None]) -> MachineQueue:
        """Return where a command waits for measurements on this machine, and says so."""
        from pytest_asperf.hardware.machine_lock import (  # noqa: PLC0415  # with what it brings
            MachineQueue,
            machine_lock_path,
        )

        return MachineQueue(machine_lock_path(), on_wait, self.settings.wait)

    def runner(self, engine: Engine, console: Console, status: Status) -> MeasurementRunner:
        """Return what measures on an engine.

        Args:
            engine: the engine.
            console: where it says why it waits.
            status: where it says how far it is.
        """
        from pytest_asperf.commands.console import StatusNotify  # noqa: PLC0415  # with what it brings
        from pytest_asperf.hardware.machine_lock import machine_lock_path  # noqa: PLC0415
        from pytest_asperf.measure.plan import MeasurementPlan  # noqa: PLC0415
        from pytest_asperf.measure.runner import MeasurementRunner  # noqa: PLC0415
        from pytest_asperf.modelfiles.shipped import shipped_corpus  # noqa: PLC0415

        settings = self.settings
        return MeasurementRunner(
            self.engine_build(engine),
            cache=self.cache,
            corpus=shipped_corpus(),
            plan=MeasurementPlan(
                chunks=settings.chunks,
                call_timeout_s=settings.call_timeout_s,
                wait_s=settings.wait,
            ),
            lock_path=machine_lock_path(),
            notify=StatusNotify(console, status),
        )


def open_project(**options: object) -> Project:
    """Read the configuration of the working folder, and options over it.

    Args:
        options: by the setting that each overrides; None where it was not given.

    Raises:
        ConfigError: the configuration or an option is not usable.
        CacheError: the cache folder's name is not.
    """
    folder = Path.cwd()
    catalogue = load_catalogue(folder, shipped_models())
    given = {key: read_word(key, value) for key, value in options.items() if value is not None}
    values = parse_values(given, where=lambda key: f"--{key.replace('_', '-')}", folder=folder)
    settings = replace(catalogue.settings, **values)
    return Project(
        replace(catalogue, settings=settings), cache=settings.cache or cache_root(os.environ)
    )
