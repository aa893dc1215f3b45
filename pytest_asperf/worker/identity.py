"""The identity of a build: two builds of one version differ in their files."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_MAX_HASHED_BYTES: Final = 256 * 2**20


def files_sha256(paths: Iterable[Path]) -> str:
    """One hash over names and contents of files; a very large file counts by its size."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode())
        if path.stat().st_size <= _MAX_HASHED_BYTES:
            digest.update(path.read_bytes())
        else:
            digest.update(str(path.stat().st_size).encode())
    return digest.hexdigest()
