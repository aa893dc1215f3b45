"""The room that files take on a disk, what is shared counted once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_asperf.errors import ModelError, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Bytes of `st_blocks`' unit, whatever the file system's blocks are.
_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class DiskUse:
    """What a set of files takes.

    Attributes:
        allocated: bytes on the disk; less than apparent where a file has holes or is compressed.
        apparent: sum of the lengths.
        n_files: files, each counted once.
        n_shared: further names of these files: hard links, and links to one blob.
    """

    allocated: int
    apparent: int
    n_files: int
    n_shared: int


def files_of(paths: Iterable[Path]) -> list[tuple[Path, os.stat_result]]:
    """All files at and below paths, links followed; a file of several names has several entries.

    Raises:
        ModelError: there is no such path, or a link to nothing.
    """
    found = []
    for path in paths:
        try:
            names = sorted(_below(path)) if path.is_dir() else [path]
            found += [(name, name.stat()) for name in names]
        except OSError as error:
            raise ModelError(
                f"cannot read the size of {printable(error.filename or path)}: {error.strerror}",
                why="a file that is left out takes room too",
                remedy="name files and folders that exist, and mend links that lead nowhere",
            ) from error
    return found


def _below(folder: Path) -> Iterable[Path]:
    """Every file below a folder; of folders that links lead to each once."""
    seen: set[tuple[int, int]] = set()
    for parent, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        stat = Path(parent).stat()
        if (stat.st_dev, stat.st_ino) in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add((stat.st_dev, stat.st_ino))
        yield from (Path(parent, name) for name in names)


def _refuse(error: OSError) -> None:
    raise error


def disk_use(paths: Iterable[Path]) -> DiskUse:
    """The room that files and folders take together.

    Raises:
        ModelError: there is no such path, or a link to nothing.
    """
    found = files_of(paths)
    files = {(stat.st_dev, stat.st_ino): stat for _, stat in found}
    allocated = sum(_BLOCK_BYTES * stat.st_blocks for stat in files.values())
    apparent = sum(stat.st_size for stat in files.values())
    names = {os.path.abspath(path) for path, _ in found}  # noqa: PTH100  # links stay apart
    return DiskUse(allocated, apparent, len(files), len(names) - len(files))
