"""What the folder that a command runs in decides: models, settings, interpreter, cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_asperf.catalogue import load_catalogue
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.shipped import shipped_models
from pytest_asperf.settings import parse_values

if TYPE_CHECKING:
    from pytest_asperf.catalogue import Catalogue
    from pytest_asperf.settings import Settings


@dataclass(frozen=True, slots=True)
class Project:
    """A project, as a command sees it.

    Attributes:
        catalogue: its models, builds and settings.
        python: the interpreter that the engine runs in.
        cache: the cache folder.
    """

    catalogue: Catalogue
    python: Path
    cache: Path

    @property
    def settings(self) -> Settings:
        """The settings of its configuration file."""
        return self.catalogue.settings


def open_project(python: str | None) -> Project:
    """Read the configuration of the working folder, and an option over it.

    Raises:
        ConfigError: the configuration or the option is not usable.
        CacheError: the cache folder's name is not.
    """
    folder = Path.cwd()
    catalogue = load_catalogue(folder, shipped_models())
    given = {} if python is None else {"python": python}
    values = parse_values(given, where=lambda key: f"--{key}", folder=folder)
    return Project(
        catalogue,
        python=values.get("python", catalogue.settings.python),
        cache=catalogue.settings.cache or cache_root(os.environ),
    )
