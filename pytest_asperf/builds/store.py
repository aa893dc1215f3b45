"""The store of made builds: a folder each in the cache, complete once its record is written.

`<cache>/builds/NAME-KEY/` has one build; its output while it was made is `.log`, its lock `.lock`,
in the parent folder. The record, `made.json` in the folder, is written last: a folder without one
is of a killed process.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_asperf.modelfiles.cache import BUILDS_FOLDER, explained, locked, read_json, write_json

#: Raised if a result of one recipe has changed.
_FORMAT: Final = 2
_RECORD: Final = "made.json"
_KEPT: Final = ("title", "facts", "found", "nbytes", "made_at")
_KEY_DIGITS: Final = 12
_SLUG_CHARS: Final = 48
#: The end of a folder's name.
_OWN: Final = re.compile(rf"-[0-9a-f]{{{_KEY_DIGITS}}}$")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides a build: equal facts are one build, for any title."""

    title: str
    facts: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The first digits of a hash over all that decides it."""
        content = json.dumps({"format": _FORMAT, **self.facts}, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:_KEY_DIGITS]

    def folder(self, cache: Path) -> Path:
        """The folder that it is kept in."""
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", self.title).strip("-.")[:_SLUG_CHARS]
        return cache / BUILDS_FOLDER / f"{slug}-{self.key}"


@dataclass(frozen=True, slots=True)
class MadeBuild:
    """A build in the cache; times are seconds since 1970."""

    folder: Path
    title: str  #: its name; the folder's name for an unfinished one
    facts: Mapping[str, Any]  #: the facts that decide it
    found: Mapping[str, Any]  #: its packages or binaries
    nbytes: int
    made_at: float | None  #: None of an unfinished one
    used_at: float


def finished(folder: Path) -> MadeBuild | None:
    """A build that is whole, None for one that is not."""
    record = read_json(folder / _RECORD)
    nbytes, made_at = record.get("nbytes"), record.get("made_at")
    if not isinstance(nbytes, int) or not isinstance(made_at, float):
        return None
    facts, found = _table(record.get("facts")), _table(record.get("found"))
    used_at = (folder / _RECORD).stat().st_mtime
    return MadeBuild(folder, str(record.get("title")), facts, found, nbytes, made_at, used_at)


def note_use(folder: Path) -> None:
    """Keep when a build was last used, where the cache can be written to."""
    with suppress(OSError):
        os.utime(folder / _RECORD)


def finish(folder: Path, recipe: Recipe, found: Mapping[str, Any]) -> MadeBuild:
    """Write the record that makes a build whole."""
    now = time.time()
    made = MadeBuild(folder, recipe.title, recipe.facts, found, _size(folder), now, now)
    record = {key: getattr(made, key) for key in _KEPT}
    with explained(folder.parent):
        write_json(folder / _RECORD, record, owner=folder / _RECORD)
    return made


def made_builds(cache: Path) -> Iterator[MadeBuild]:
    """Yield every build in the cache, and the remains of unfinished ones.

    The cache may be any folder: one whose name no recipe has given, or a link, is left alone.
    """
    root = cache / BUILDS_FOLDER
    with explained(root):
        found = sorted(root.iterdir()) if root.exists() else []
    for folder in found:
        if _OWN.search(folder.name) and folder.is_dir() and not folder.is_symlink():
            yield finished(folder) or _unfinished(folder)


def discard(made: MadeBuild, on_wait: Callable[[str], None] | None = None) -> None:
    """Remove a build, so that it is made again when needed; waits for a process that makes it."""
    with locked(made.folder, on_wait):
        if made.made_at is None and finished(made.folder):
            return  # it has been finished meanwhile
        empty(made.folder)
        made.folder.with_name(f"{made.folder.name}.log").unlink(missing_ok=True)


def empty(folder: Path) -> None:
    """Remove a build's folder, its record first."""
    with explained(folder.parent):
        (folder / _RECORD).unlink(missing_ok=True)
        if folder.exists():
            shutil.rmtree(folder)


def _unfinished(folder: Path) -> MadeBuild:
    return MadeBuild(folder, folder.name, {}, {}, _size(folder), None, folder.stat().st_mtime)


def _size(folder: Path) -> int:
    """The bytes of a folder's files; links count as nothing."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(at, name)).st_size  # noqa: PTH118  # many files
    return total


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
