"""From settings to what measures: pytest's sessions and the commands both open it here.

Importing this loads no numpy and starts nothing: commands that measure nothing use it too.
"""

# ruff: noqa: PLC0415  # the docstring says why

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_asperf.config.build_sources import ServerUrl, ToolsFolder
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.shipped import shipped_corpus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_asperf.builds.build_cache import BuildCache
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.progress import Notify
    from pytest_asperf.config.settings import Settings
    from pytest_asperf.config.spec import Build
    from pytest_asperf.engine_process import EngineBuild
    from pytest_asperf.hardware.machine import Bandwidth, Machine
    from pytest_asperf.hardware.machine_lock import MachineQueue
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.runner import MeasurementRunner


def cache_folder(settings: Settings) -> Path:
    """The folder for files that are made once."""
    return settings.cache or cache_root(os.environ)


def drawn_seed(settings: Settings) -> int:
    """The seed of every random order: the one that was given, else a new one at each call."""
    return secrets.randbelow(2**31) if settings.seed is None else settings.seed


def gate_budget(settings: Settings, seed: int) -> Budget:
    """What a gate may cost, and the slowdown that it accepts."""
    from pytest_asperf.measure.ab_speed import Budget

    return Budget(settings.tolerance, settings.max_pairs, settings.max_seconds, seed)


def engine_build(settings: Settings, engine: Engine) -> EngineBuild:
    """An engine in the interpreter, or folder of programs, that the settings name."""
    from pytest_asperf.engine_process import EngineBuild

    return EngineBuild(
        engine,
        settings.python,
        settings.tools_of(engine),
        settings.url_of(engine),
        settings.api_key_variable,
        settings.nice,
    )


def machine_queue(settings: Settings, on_wait: Callable[[str], None]) -> MachineQueue:
    """Where measurements on this machine wait for one another."""
    from pytest_asperf.hardware.machine_lock import MachineQueue, machine_lock_path

    return MachineQueue(machine_lock_path(), on_wait, settings.wait)


def build_cache(settings: Settings, notify: Notify) -> BuildCache:
    """The builds of engines that were installed or compiled."""
    from pytest_asperf.builds.build_cache import BuildCache
    from pytest_asperf.hardware.machine_lock import machine_lock_path

    return BuildCache(
        cache_folder(settings),
        lock_path=machine_lock_path(),
        notify=notify,
        wait_s=settings.wait,
        nice=settings.nice,
        python=settings.python,
    )


def open_runner(
    settings: Settings,
    engine: Engine,
    notify: Notify,
    *,
    seed: int = 0,
    baseline: Build | None = None,
) -> MeasurementRunner:
    """What measures on an engine; no process is started before the first measurement.

    The folder of programs of a gate's `baseline` makes the models if the settings name none; its
    server says which models there are.
    """
    from pytest_asperf.hardware.machine_lock import machine_lock_path
    from pytest_asperf.measure.plan import MeasurementPlan
    from pytest_asperf.measure.runner import MeasurementRunner

    if settings.tools is None and baseline and isinstance(baseline.source, ToolsFolder):
        settings = replace(settings, tools=baseline.source.folder)
    if settings.url is None and baseline and isinstance(baseline.source, ServerUrl):
        settings = replace(settings, url=baseline.source.url)
    return MeasurementRunner(
        engine_build(settings, engine),
        cache=cache_folder(settings),
        corpus=shipped_corpus(),
        plan=MeasurementPlan(
            repetitions=settings.repetitions,
            chunks=settings.chunks,
            seed=seed,
            call_timeout_s=settings.call_timeout_s,
            wait_s=settings.wait,
            self_check_every=settings.self_check,
        ),
        lock_path=machine_lock_path(),
        notify=notify,
    )


def measured_bandwidth(
    settings: Settings, machine: Machine, on_wait: Callable[[str], None], *, remeasure: bool
) -> Bandwidth:
    """This machine's memory bandwidth; the highest value ever measured."""
    from pytest_asperf.hardware.bandwidth import bandwidth_in_turn

    queue = machine_queue(settings, on_wait)
    return bandwidth_in_turn(cache_folder(settings), machine, queue, remeasure=remeasure)
