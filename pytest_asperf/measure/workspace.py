"""A project with the settings selected: where pytest's sessions and the commands measure.

Importing this loads no numpy and starts nothing: commands that measure nothing use it too.
"""

# ruff: noqa: PLC0415  # the docstring says why

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_asperf.config.build_sources import ServerUrl, ToolsFolder
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.hub_cache import shipped_corpus

if TYPE_CHECKING:
    from pytest_asperf.builds.build_cache import BuildCache
    from pytest_asperf.config.catalogue import Catalogue
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.progress import Notify
    from pytest_asperf.config.settings import Settings
    from pytest_asperf.config.spec import Build
    from pytest_asperf.engine_process import EngineBuild
    from pytest_asperf.hardware.machine import Bandwidth, Machine
    from pytest_asperf.hardware.machine_lock import MachineQueue
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.runner import MeasurementRunner


@dataclass(frozen=True)
class Workspace:
    """A project's models, builds and settings, and all that measures with them."""

    catalogue: Catalogue  #: models and builds, with the settings selected
    typed: frozenset[str] = frozenset()  #: the settings that were typed, and not read from a file

    @property
    def settings(self) -> Settings:
        """The settings selected."""
        return self.catalogue.settings

    @cached_property
    def cache(self) -> Path:
        """The folder for files that are made once; CacheError if it cannot be one."""
        return self.settings.cache or cache_root(os.environ)

    @cached_property
    def seed(self) -> int:
        """The seed of every random order: the one that was given, otherwise one that is drawn."""
        seed = self.settings.seed
        return secrets.randbelow(2**31) if seed is None else seed

    @property
    def gate_budget(self) -> Budget:
        """The budget of a gate, and the slowdown that it accepts."""
        from pytest_asperf.measure.ab_speed import Budget

        settings = self.settings
        return Budget(settings.tolerance, settings.max_pairs, settings.max_seconds, self.seed)

    def engine_build(self, engine: Engine) -> EngineBuild:
        """An engine in the interpreter, or folder of binaries, that the settings name."""
        from pytest_asperf.engine_process import EngineBuild

        return EngineBuild(
            engine,
            self.settings.python,
            self.settings.tools_of(engine),
            self.settings.url_of(engine),
            self.settings.api_key_variable,
            self.settings.nice,
        )

    def only_in_file(self, build: EngineBuild) -> Path | None:
        """The interpreter or folder of an engine that only the project's file names, if any.

        A folder that was cloned is not the user's own: commands that read start none of it.
        """
        if build.tools is not None and "tools" not in self.typed:
            return build.tools
        is_own = build.python == Path(sys.executable) or "python" in self.typed
        return None if is_own else build.python

    def queue(self, on_wait: Callable[[str], None]) -> MachineQueue:
        """The queue of measurements on this machine."""
        from pytest_asperf.hardware.machine_lock import MachineQueue, machine_lock_path

        return MachineQueue(machine_lock_path(), on_wait, self.settings.wait)

    def build_cache(self, notify: Notify) -> BuildCache:
        """The builds of engines that were installed or compiled."""
        from pytest_asperf.builds.build_cache import BuildCache
        from pytest_asperf.hardware.machine_lock import machine_lock_path

        return BuildCache(
            self.cache,
            lock_path=machine_lock_path(),
            notify=notify,
            wait_s=self.settings.wait,
            nice=self.settings.nice,
            python=self.settings.python,
        )

    def runner(
        self, engine: Engine, notify: Notify, *, seed: int = 0, baseline: Build | None = None
    ) -> MeasurementRunner:
        """The runner of an engine; no process is started before the first measurement.

        The binaries of a gate's `baseline` make the models if the settings name none; its server
        lists its models. Only gates are preceded by self-checks.
        """
        from pytest_asperf.hardware.machine_lock import machine_lock_path
        from pytest_asperf.measure.experiment import MeasurementPlan
        from pytest_asperf.measure.runner import MeasurementRunner

        settings, source = self.settings, baseline.source if baseline else None
        if settings.tools is None and isinstance(source, ToolsFolder):
            settings = replace(settings, tools=source.folder)
        if settings.url is None and isinstance(source, ServerUrl):
            settings = replace(settings, url=source.url)
        chosen = replace(self, catalogue=replace(self.catalogue, settings=settings))
        return MeasurementRunner(
            chosen.engine_build(engine),
            cache=self.cache,
            corpus=shipped_corpus(),
            plan=MeasurementPlan(
                repetitions=settings.repetitions,
                chunks=settings.chunks,
                seed=seed,
                call_timeout_s=settings.call_timeout_s,
                wait_s=settings.wait,
                self_check_every=settings.self_check if baseline else None,
            ),
            lock_path=machine_lock_path(),
            notify=notify,
        )

    def bandwidth(
        self, machine: Machine, on_wait: Callable[[str], None], *, remeasure: bool
    ) -> Bandwidth:
        """This machine's memory bandwidth; the highest value ever measured."""
        from pytest_asperf.hardware.bandwidth import bandwidth_in_turn

        return bandwidth_in_turn(self.cache, machine, self.queue(on_wait), remeasure=remeasure)
