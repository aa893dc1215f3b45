"""The faults of the cache's folder, as errors with a remedy."""

from __future__ import annotations

import errno
import resource
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import CacheError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_FULL_BELOW_BYTES: Final = 64 * 1024


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn an `OSError` of the cache's own work into the error a user can act on."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(folder) from error
        if error.errno == errno.EFBIG:
            raise _cut_off(folder, error) from error
        raise CacheError(
            f"the cache folder {folder} cannot be used: {error}",
            why="what a measurement needs is made once and kept there",
            remedy="make it a folder that you may write to, or set ASPERF_CACHE to another one",
        ) from error


def disk_full(folder: Path) -> CacheError:
    """The error for a cache folder on a disk without space."""
    return CacheError(
        f"the disk of the cache folder {folder} is full",
        why="what is measured has to be complete before that",
        remedy="free some space, or set ASPERF_CACHE to a folder on a larger disk",
    )


def no_room(error: Exception, temporary: Path) -> CacheError | None:
    """The error for a half file that had no room to become whole, None for other causes."""
    folder = temporary.parent
    says_full = isinstance(error, OSError) and error.errno in _FULL
    # llama.cpp and numpy report a failed write without saying why.
    if says_full or shutil.disk_usage(folder).free < _FULL_BELOW_BYTES:
        return disk_full(folder)
    return _cut_off(folder, error) if _is_cut_off(error, temporary) else None


def _is_cut_off(error: Exception, temporary: Path) -> bool:
    # numpy reports a write that was cut short as an OSError without a number, an engine in its own
    # words; the file then ends at the limit.
    if isinstance(error, OSError) and error.errno in {None, errno.EFBIG}:
        return True
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    files = files_of(temporary) if temporary.exists() else []
    return limit != resource.RLIM_INFINITY and any(f.stat().st_size >= limit for f in files)


def _cut_off(folder: Path, error: Exception) -> CacheError:
    return CacheError(
        f"a file in the cache folder {folder} could not be written whole: {printable(error)}",
        why="what is measured has to be complete before that",
        remedy="raise the limit on the size of files (ulimit -f) or the quota, or set ASPERF_CACHE"
        " to a folder without one",
    )


def files_of(path: Path) -> list[Path]:
    """A model's files: itself, or everything in its folder, sorted."""
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
