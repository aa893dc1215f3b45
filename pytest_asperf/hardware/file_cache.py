"""How much of some files the system keeps in memory, and how to have them out of it."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import ElsewhereError
from pytest_asperf.hardware import probe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Of the bytes, what may stay in memory of files that count as not cached.
_COLD: Final = 0.01
#: Empties macOS' whole cache, without asking for a password.
_PURGE: Final = ("/usr/bin/sudo", "-n", "/usr/sbin/purge")


def cached_share(files: Sequence[Path]) -> float | None:
    """The share of the files' pages that are in the file cache; None where that is not known."""
    pages = bytearray()
    for path in files:
        if path.stat().st_size:
            pages += _pages(path)
    # The other bits are the system's own.
    return sum(page & 1 for page in pages) / len(pages) if pages else None


def _pages(path: Path) -> bytes:
    """For each page of a file a byte whose last bit says that it is cached; none if not known."""
    mincore = getattr(ctypes.CDLL(None), "mincore", None)
    # A private writable view has an address, and reads nothing by itself.
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        pages = (ctypes.c_ubyte * -(-len(view) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(view)
        size = ctypes.c_size_t(len(view))
        failed = mincore is None or mincore(ctypes.byref(start), size, pages)
        del start  # the view cannot be closed before
        return b"" if failed else bytes(pages)


def drop(files: Sequence[Path]) -> None:
    """Have files out of the file cache.

    Raises:
        ElsewhereError: this system does not allow it, or pages of them stay.
    """
    if hasattr(os, "posix_fadvise"):
        for path in files:
            with path.open("rb") as file:
                with suppress(OSError):  # of a file system that nobody can write to
                    os.fsync(file.fileno())  # pages that are not written yet stay
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    elif not probe.run((*_PURGE[:2], "-l", _PURGE[2])) or probe.run(_PURGE, timeout_s=60) is None:
        raise _kept("only root may empty the file cache here", "run `sudo -v` first")
    if (share := cached_share(files) or 0.0) > _COLD:
        remedy = "end what else reads it, and keep it on a disk (tmpfs is memory)"
        raise _kept(f"{share:.0%} of {files[0].name} stays in the file cache", remedy)


def _kept(what: str, remedy: str) -> ElsewhereError:
    why = "a load from the cache is no cold start"
    return ElsewhereError(what, why=why, remedy=f'{remedy}, or measure latency("load")')
