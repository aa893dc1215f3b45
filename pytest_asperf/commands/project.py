"""The project that a command runs in: its models, builds, settings and cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pytest_asperf.config.build_sources import anchored
from pytest_asperf.config.catalogue import load_catalogue
from pytest_asperf.config.configuration_file import nearest_configuration
from pytest_asperf.config.settings import Settings, flag, parse_typed
from pytest_asperf.measure.workspace import Workspace
from pytest_asperf.modelfiles.shipped import shipped_models

if TYPE_CHECKING:
    from collections.abc import Mapping


def typed_settings() -> dict[str, tuple[object, str]]:
    """The settings that were typed, each with the option that it was typed in."""
    context = click.get_current_context(silent=True)  # none while a shell completes words
    return {} if context is None else context.find_root().ensure_object(dict)


def open_project(*, defaults: Mapping[str, object] | None = None, **given: object) -> Workspace:
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
    workspace = Workspace(catalogue, frozenset(values))
    workspace.cache  # noqa: B018  # one that cannot be used is an error now
    return workspace
