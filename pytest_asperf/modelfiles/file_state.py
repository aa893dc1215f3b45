"""True if a model's files are still those that were hashed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_asperf.modelfiles.cache import file_sha256, folder_sha256
from pytest_asperf.modelfiles.gguf_read import gguf_parts
from pytest_asperf.modelfiles.mlx_read import hashed_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
    """Hash a file, or what decides how the model in a folder computes."""
    state = state_of(path)  # before the hash: what is written meanwhile is then seen as a change
    return HashedFiles(path, model_sha256(path, cache=cache), state, cache)


def state_of(path: Path) -> FileState:
    """The differences after a file was written to or replaced; none where it is missing."""
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
