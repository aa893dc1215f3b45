"""How much of some files the system keeps in memory, and how to have them out of it."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import ElsewhereError
from pytest_asperf.hardware import probe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Of the bytes, what may stay in memory of files that count as not cached.
_COLD: Final = 0.01


def cached_share(files: Sequence[Path]) -> float | None:
    """The share of the files' pages that are in the file cache; None where that is not known."""
    mincore = getattr(ctypes.CDLL(None), "mincore", None)
    counts = [_pages(path, mincore) for path in files if path.stat().st_size]
    known = [pages for pages in counts if pages]
    if not known or len(known) < len(counts):
        return None
    return sum(cached for cached, _ in known) / sum(total for _, total in known)


def _pages(path: Path, mincore: ctypes._NamedFuncPointer | None) -> tuple[int, int] | None:
    """Pages of a file in the cache, and all; None where the system does not say."""
    # A private writable view has an address, and reads nothing by itself.
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        total = -(-len(view) // mmap.PAGESIZE)
        pages = (ctypes.c_ubyte * total)()
        start = ctypes.c_char.from_buffer(view)
        try:
            size = ctypes.c_size_t(len(view))
            failed = mincore is None or mincore(ctypes.byref(start), size, pages)
        finally:
            del start  # the view cannot be closed before
        return None if failed else (sum(page & 1 for page in pages), total)


def drop(files: Sequence[Path]) -> None:
    """Have files out of the file cache.

    Raises:
        ElsewhereError: this system does not allow it, or pages of them stay.
    """
    if hasattr(os, "posix_fadvise"):
        for path in files:
            with path.open("rb") as file:
                os.fsync(file.fileno())  # pages that are not written yet stay
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    elif not _purged():
        raise _kept(
            "only root may empty the file cache here",
            "run `sudo -v` first (the cache is emptied by `sudo purge`)",
        )
    share = cached_share(files)
    if share is not None and share > _COLD:
        raise _kept(
            f"{share:.0%} of {files[0].name} stays in the file cache",
            "end what else reads it, and keep it on a disk (tmpfs is memory)",
        )


def _purged() -> bool:
    """Whether macOS emptied its whole cache; without a password."""
    purge = ("/usr/bin/sudo", "-n", "/usr/sbin/purge")
    allowed = probe.run((*purge[:2], "-l", purge[2]))
    return platform.system() == "Darwin" and bool(allowed) and probe.run(purge, timeout_s=60) == ""


def _kept(what: str, remedy: str) -> ElsewhereError:
    return ElsewhereError(
        what,
        why="a load from the cache is no cold start",
        remedy=f'{remedy}, or measure latency("load")',
    )
