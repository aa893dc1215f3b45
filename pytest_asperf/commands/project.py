"""The project that a command runs in: its models, builds, settings and cache."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_asperf.commands.options import typed_settings
from pytest_asperf.config.build_sources import anchored
from pytest_asperf.config.catalogue import load_catalogue
from pytest_asperf.config.configuration_file import nearest_configuration
from pytest_asperf.config.settings import Settings, flag, parse_typed
from pytest_asperf.measure import compose
from pytest_asperf.modelfiles.shipped import shipped_models

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_asperf.config.catalogue import Catalogue
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.progress import Notify
    from pytest_asperf.config.spec import Build
    from pytest_asperf.engine_process import EngineBuild
    from pytest_asperf.hardware.machine_lock import MachineQueue
    from pytest_asperf.measure.runner import MeasurementRunner


@dataclass(frozen=True, slots=True)
class Project:
    """A project, as a command sees it: with the command's options over its settings.

    Attributes:
        typed: the settings that the command's options named.
    """

    catalogue: Catalogue
    cache: Path
    typed: frozenset[str] = frozenset()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.catalogue.settings

    def draw_seed(self) -> int:
        """The seed of every random order."""
        return compose.drawn_seed(self.settings)

    def engine_build(self, engine: Engine) -> EngineBuild:
        """An engine as this project runs it."""
        return compose.engine_build(self.settings, engine)

    def only_in_file(self, build: EngineBuild) -> Path | None:
        """The interpreter or folder of an engine that only the project's file names, if any.

        A folder that was cloned is not the user's own: commands that read start none of it.
        """
        if build.tools is not None and "tools" not in self.typed:
            return build.tools
        is_own = build.python == Path(sys.executable) or "python" in self.typed
        return None if is_own else build.python

    def queue(self, on_wait: Callable[[str], None]) -> MachineQueue:
        """Where a command waits for other measurements on this machine."""
        return compose.machine_queue(self.settings, on_wait)

    def runner(
        self, engine: Engine, notify: Notify, *, baseline: Build | None = None
    ) -> MeasurementRunner:
        """What measures on an engine.

        Only gates name a `baseline` and are preceded by self-checks: to a calibration or a
        bisection they would add gates that it does not use.
        """
        settings = self.settings if baseline else replace(self.settings, self_check=None)
        return compose.open_runner(settings, engine, notify, baseline=baseline)


def open_project(*, defaults: Mapping[str, object] | None = None, **given: object) -> Project:
    """The project of the working folder, with the typed settings over its configuration.

    The configuration file nearest to the working folder counts. Addresses on the command line start
    at the working folder. `defaults` are those of a command, below the file's settings, and `given`
    are its own, above what was typed.

    Raises:
        ConfigError: a setting is not usable.
        CacheError: the cache is not.
    """
    folder = Path.cwd()
    file = nearest_configuration(folder)
    start = replace(Settings(), **(defaults or {}))  # type: ignore[arg-type]  # keys of settings
    catalogue = load_catalogue(file.parent if file else folder, shipped_models(), start)
    typed = typed_settings()
    values = parse_typed(
        {key: value for key, (value, _) in typed.items()}
        | {key: value for key, value in given.items() if value is not None},
        where=lambda key: typed[key][1] if key in typed else flag(key),
        folder=folder,
    )
    # From here, a path in the file's builds would be another place's.
    own = catalogue.settings
    builds = {key: getattr(own, key) for key in ("baseline", "candidate") if getattr(own, key)}
    if catalogue.folder != folder:
        builds = {key: anchored(text, catalogue.folder) for key, text in builds.items()}
    settings = replace(own, **{**builds, **values})
    catalogue = replace(catalogue, folder=folder, settings=settings)
    return Project(catalogue, compose.cache_folder(settings), frozenset(values))
