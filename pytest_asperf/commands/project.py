"""The project that a command runs in: its models, builds, settings and cache; and its store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_asperf.commands.console import print_text, stderr_console
from pytest_asperf.config.build_sources import anchored
from pytest_asperf.config.catalogue import load_catalogue
from pytest_asperf.config.settings import Settings, flag, parse_typed
from pytest_asperf.config.text_file import nearest_configuration
from pytest_asperf.errors import AsperfError, ConfigError, printable
from pytest_asperf.hardware.profiles import find_bins
from pytest_asperf.measure.workspace import Workspace
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.report.json_report import document
from pytest_asperf.store import open_store
from pytest_asperf.store.unsent import GrowingReport

if TYPE_CHECKING:
    from pytest_asperf.gate.summary import GateOutcome
    from pytest_asperf.records.report import Report
    from pytest_asperf.store.records import Store


def typed_settings() -> dict[str, tuple[object, str]]:
    """The settings that were typed, each with the option that it was typed in."""
    context = click.get_current_context(silent=True)  # none while a shell completes words
    return {} if context is None else context.find_root().ensure_object(dict)


def open_project(*, defaults: Mapping[str, object] | None = None, **given: object) -> Workspace:
    """The project of the working folder, with the typed settings over its configuration.

    The configuration file nearest to the working folder counts. Paths on the command line start at
    the working folder. `defaults` are those of a command, below the file's settings, and `given`
    are its own, above the typed ones.

    Raises:
        ConfigError: a setting is not usable.
        HardwareNameError: the hardware is not known.
        CacheError: the cache is not usable.
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
    workspace = Workspace(catalogue, frozenset(values))
    workspace.cache  # noqa: B018  # one that cannot be used is an error now
    if settings.hardware != "auto":
        find_bins(settings.hardware)  # an unknown one is an error before any measurement
    return workspace


def store_address() -> str:
    """The address of the store in an option or the project's configuration."""
    address = open_project().settings.store
    if address is None:
        raise ConfigError(
            "no history is named", remedy="give --store FILE, or set `store` in [tool.asperf]"
        )
    return address


def history_of(*, create: bool = False) -> Store:
    """The store that is named, opened."""
    return open_store(store_address(), create=create)


class GateHistory:
    """Keeps a gate in the project's history, check by check; does nothing without one."""

    def __init__(self, project: Workspace, made: Callable[[GateOutcome], Report]) -> None:
        address, keep_days = project.settings.store, project.settings.store_keep
        self._growing = GrowingReport(address, project.cache, keep_days) if address else None
        self.made = made  #: gives the report of an outcome

    def update(self, outcome: GateOutcome) -> None:
        """Store the checks so far; if that fails, the end of the gate reports it."""
        if self._growing:
            with suppress(AsperfError):
                self._growing.update(document(self.made(outcome)))

    def store(self, report: Report, *, kind: str) -> None:
        """Store the whole report, and print its place."""
        if self._growing is None:
            return
        kept = self._growing.finish(document(report), kind=kind)
        console = stderr_console()
        for line in (*kept.lines(), kept.complaint):
            if line:
                print_text(console, printable(line))
        if kept.error is not None and not kept.error.may_pass:
            raise kept.error
