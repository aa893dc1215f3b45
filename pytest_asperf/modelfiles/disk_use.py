"""The room that files take on a disk, what is shared counted once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import ModelError, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Bytes of `st_blocks`' unit, whatever the file system's blocks are.
_BLOCK_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The disk space of a set of files.

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


def files_of(paths: Iterable[Path]) -> list[Path]:
    """All files at and below paths, links followed; one of several names has several entries.

    Raises:
        OSError: there is no such path, or a link leads nowhere or in a circle.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
        for parent, _, names in os.walk(path, followlinks=True, onerror=_refuse):
            found += [Path(parent, name) for name in names]
    return found


def _refuse(error: OSError) -> None:
    # A path that is a file, or none, is no folder.
    if not isinstance(error, NotADirectoryError | FileNotFoundError):
        raise error


def disk_use(paths: Iterable[Path]) -> DiskUse:
    """The room that files and folders take together; a ModelError names what cannot be read."""
    try:
        stats = {os.path.abspath(path): path.stat() for path in files_of(paths)}  # noqa: PTH100  # links stay apart
    except OSError as error:
        raise ModelError(
            f"cannot read the size of {printable(error.filename)}: {error.strerror}",
            remedy="name files and folders that exist, and correct links that lead nowhere",
        ) from error
    files = {(stat.st_dev, stat.st_ino): stat for stat in stats.values()}.values()
    allocated = sum(_BLOCK_BYTES * stat.st_blocks for stat in files)
    apparent = sum(stat.st_size for stat in files)
    return DiskUse(allocated, apparent, len(files), len(stats) - len(files))
