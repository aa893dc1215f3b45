"""The file with a project's settings: `[tool.asperf]` of pyproject.toml, or asperf.toml."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.table import CheckedTable
from pytest_asperf.config.text_file import parse_toml, read_toml_text
from pytest_asperf.errors import ConfigError, printable

if TYPE_CHECKING:
    from pathlib import Path

#: The file of our own, and the one in which other tools have their tables too.
OWN_FILE: Final = "asperf.toml"
_SHARED_FILE: Final = "pyproject.toml"
#: Folders that hold installed packages.
_INSTALLED: Final = {"site-packages", "dist-packages"}


def nearest_configuration(start: Path) -> Path | None:
    """The configuration file nearest to a folder: in it or above, up to its repository's root.

    None without one, and for the folders of an installed package, which belongs to no project.

    Raises:
        ConfigError: a pyproject.toml on the way cannot be read.
    """
    for folder in (start, *start.parents):
        if folder.name in _INSTALLED:
            return None
        own, shared = folder / OWN_FILE, folder / _SHARED_FILE
        if os.path.lexists(own):
            return own
        if _read_document(shared).values:
            return shared
        if os.path.lexists(folder / ".git"):  # a file in a submodule or worktree
            return None
    return None


def find_document(folder: Path) -> CheckedTable:
    """The table of a folder's configuration file, empty if no file has one."""
    documents = [
        document
        for file in (_SHARED_FILE, OWN_FILE)
        if (document := _read_document(folder / file)).values
    ]
    if len(documents) > 1:
        raise ConfigError(
            f"{folder}: both {_SHARED_FILE} ([tool.asperf]) and {OWN_FILE} hold settings",
            why="which of the two a run would follow is a guess",
            remedy="keep them in one of the two files",
        )
    return documents[0] if documents else CheckedTable(_SHARED_FILE, {})


def _read_document(path: Path) -> CheckedTable:
    content = _read_toml(path)
    document = CheckedTable(path.name, content)
    # A file of our own needs no [tool.asperf], but a table moved there may keep its name.
    own = path.name == OWN_FILE and content.keys() != {"tool"}
    for key in () if own else ("tool", "asperf"):
        document = document.inner(key, document.values.get(key, {}), separator=".")
    return document


def _read_toml(path: Path) -> dict[str, object]:
    if not os.path.lexists(path):
        return {}
    return parse_toml(read_toml_text(path), printable(path, 300))
