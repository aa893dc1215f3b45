"""Files as they are on a disk: their room, their part in memory, and whether they changed."""

import ctypes
import mmap
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_asperf.errors import ElsewhereError, ModelError, printable
from pytest_asperf.hardware import probe
from pytest_asperf.modelfiles.cache import file_sha256, folder_sha256
from pytest_asperf.modelfiles.gguf_read import gguf_parts
from pytest_asperf.modelfiles.mlx_read import hashed_files

#: Bytes of `st_blocks`' unit, independent of the file system's blocks.
_BLOCK_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The disk space of a set of files."""

    allocated: int  #: bytes on the disk; less than apparent where a file has holes or is compressed
    apparent: int  #: sum of the lengths
    n_files: int  #: files, each counted once
    n_shared: int  #: further names of these files: hard links, and links to one blob


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
    """The disk space of files and folders together; a ModelError names an unreadable one."""
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


#: Share of the bytes that may stay in memory of files that count as not cached.
_COLD: Final = 0.01
#: Empties macOS' whole cache, without a prompt for a password.
_PURGE: Final = ("/usr/bin/sudo", "-n", "/usr/sbin/purge")


def cached_share(files: Sequence[Path]) -> float | None:
    """The share of the files' pages that are in the file cache; None if unknown."""
    pages = bytearray()
    for path in files:
        if path.stat().st_size:
            pages += _pages(path)
    # The other bits are the system's own.
    return sum(page & 1 for page in pages) / len(pages) if pages else None


def _pages(path: Path) -> bytes:
    """For each page of a file a byte whose last bit means that it is cached; empty if unknown."""
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
                with suppress(OSError):  # of a read-only file system
                    os.fsync(file.fileno())  # pages that are not written yet stay
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    elif not probe.run((*_PURGE[:2], "-l", _PURGE[2])) or probe.run(_PURGE, timeout_s=60) is None:
        raise _kept("only root may empty the file cache here", "run `sudo -v` first")
    if (share := cached_share(files) or 0.0) > _COLD:
        remedy = "end other programs that read it, and keep it on a disk (tmpfs is memory)"
        raise _kept(f"{share:.0%} of {files[0].name} stays in the file cache", remedy)


def _kept(what: str, remedy: str) -> ElsewhereError:
    why = "a load from the cache is no cold start"
    return ElsewhereError(what, why=why, remedy=f"{remedy}, or measure `load`")


#: For each file its path, size, time of writing, time of any change, and inode.
FileState = tuple[tuple[str, int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class HashedFiles:
    """A model's file, its parts, or its folder, as hashed; `state` was read just before."""

    path: Path
    sha256: str
    state: FileState
    cache: Path

    @property
    def is_unchanged(self) -> bool:
        """True if the same bytes are there now; hashed again only where something was touched."""
        try:
            return state_of(self.path) == self.state or self.sha256 == model_sha256(
                self.path, cache=self.cache
            )
        except OSError:
            return False


def hash_files(path: Path, *, cache: Path) -> HashedFiles:
    """Hash a file, or the files that decide how the model in a folder computes."""
    state = state_of(path)  # before the hash: a write during it then counts as a change
    return HashedFiles(path, model_sha256(path, cache=cache), state, cache)


def state_of(path: Path) -> FileState:
    """The differences after a file was written to or replaced; none if it is missing."""
    try:
        stats = [(str(file), file.stat()) for file in _files(path)]
    except OSError:
        return ()
    return tuple(
        (name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
        for name, stat in stats
    )


def _files(path: Path) -> Sequence[Path]:
    return hashed_files(path) if path.is_dir() else gguf_parts(path)


def model_sha256(path: Path, *, cache: Path) -> str:
    """The hash of a file; of a folder, or of several parts, over their names and contents."""
    files = _files(path)
    if path.is_dir() or len(files) > 1:
        return folder_sha256(files, cache=cache)
    return file_sha256(path, cache=cache)
