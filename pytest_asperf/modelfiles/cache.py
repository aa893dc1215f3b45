"""The cache of made model files: each is built once, whole, and can prove that it is intact.

Each `<file>` has a `<file>.json` (size, SHA-256 and recipe, written last) and a `<file>.lock`. A
file without its sidecar counts as absent, so that a run killed at any moment leaves nothing that a
later one would use. Lock files stay: removing one under a waiting process would allow two to build.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import CacheError, printable

if TYPE_CHECKING:
    from filelock import BaseFileLock


_TEMPORARY: Final = ".part"
_SIDECAR: Final = ".json"
_LOCK: Final = ".lock"
_CHANGED: Final = "ctime_ns"
#: A GGUF file, or a folder of MLX.
_MODELS: Final = ("*.gguf", "*.mlx")
#: The folder of the cache for builds of engines: it has no models.
BUILDS_FOLDER: Final = "builds"
_POLL_SECONDS: Final = 0.2
#: A shorter wait is not reported: its line would only interrupt what pytest prints.
_UNREPORTED_SECONDS: Final = 2.0
_MAX_SIDECAR_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One file of the cache, with its sidecar's content."""

    path: Path
    nbytes: int
    sha256: str | None
    recipe: Mapping[str, str]
    problem: str | None  #: why it is not to be used (`discard` it); None for an intact file


def cache_root(env: Mapping[str, str]) -> Path:
    """The cache folder: `ASPERF_CACHE` of `env`, an absolute path, or the user's cache folder."""
    configured = env.get("ASPERF_CACHE", "")
    if not configured:
        from platformdirs import user_cache_path  # noqa: PLC0415  # only where it is needed

        return user_cache_path("pytest-asperf", appauthor=False)
    path = Path(configured).expanduser()
    if not path.is_absolute():
        raise CacheError(
            f"ASPERF_CACHE = {configured!r} is not an absolute path",
            why="runs started in different folders would each make their own models",
            remedy="set ASPERF_CACHE to an absolute path, or unset it",
        )
    return path


def build_once(
    target: Path,
    build: Callable[[Path], None],
    *,
    recipe: Mapping[str, str],
    on_wait: Callable[[str], None] | None = None,
) -> Path:
    """Have `target` made by `build`, unless it exists and is intact; the path of it.

    While another process builds, `on_wait` gets a message and the call waits for that build.
    `build` writes to another path, so that the file appears under its name only when it is
    complete and on the disk. The recipe is kept in the file's sidecar.

    Raises:
        CacheError: the folder cannot be made or written to, or its disk is full.
    """
    with explained(target.parent):
        if _is_intact(target):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target, on_wait):
        if not _is_intact(target):
            with explained(target.parent):
                _remove_leftovers(target)
            _build(target, build, recipe)
    return target


def verify(path: Path, *, full: bool = False) -> str | None:
    """The problem with a cached file, by size or in full by SHA-256; None if it is intact."""
    recorded = read_json(_beside(path, _SIDECAR))
    try:
        nbytes = _size(path)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if not recorded:
        return "it has no sidecar, so it is not known to be complete"
    if nbytes != recorded.get("nbytes"):
        return f"it has {nbytes:,} bytes where {recorded.get('nbytes')!r} were written"
    if full and _sha256(path) != recorded.get("sha256"):
        return "its SHA-256 is not that of the file that was written"
    return None


def _is_intact(path: Path) -> bool:
    """True if a file is the one that was written; hashed only if it was touched since.

    The system keeps the time of any change (ctime), and no program can set it.
    """
    if verify(path) is not None:
        return False
    sidecar, changed_ns = _beside(path, _SIDECAR), _changed_ns(path)
    recorded = read_json(sidecar)
    if changed_ns == recorded.get(_CHANGED):
        return True
    if verify(path, full=True) is not None:
        return False
    with suppress(OSError):  # an unwritten note means comparing again
        write_json(sidecar, {**recorded, _CHANGED: changed_ns}, owner=path)
    return True


def discard(path: Path) -> None:
    """Remove a cached file, so that it is built again when it is next needed."""
    with locked(path, None), explained(path.parent):
        _beside(path, _SIDECAR).unlink(missing_ok=True)
        _remove(path)


def entries(cache: Path, *, full: bool = False) -> tuple[CacheEntry, ...]:
    """Every model file in the cache, verified by its size or in full by its SHA-256."""
    with explained(cache):
        try:
            # Listed by itself, because rglob is silent about a folder that it cannot read.
            within = [path for path in cache.iterdir() if path.name != BUILDS_FOLDER]
        except FileNotFoundError:
            return ()
        files = (path for top in within for path in (top, *top.rglob("*")))
        models = (path for path in files if any(path.match(suffix) for suffix in _MODELS))
        return tuple(_entry(path, full=full) for path in sorted(models))


def file_sha256(path: Path, *, cache: Path) -> str:
    """The SHA-256 of a file; remembered by path, size, and times of writing and change."""
    status = path.stat()
    resolved = str(path.resolve())
    identity = {
        "path": resolved,
        "nbytes": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
    }
    key = hashlib.sha256(os.fsencode(resolved)).hexdigest()
    memo = cache / "hashes" / f"{key}.json"
    remembered = read_json(memo)
    digest = remembered.pop("sha256", None)
    if remembered == identity and isinstance(digest, str):
        return digest
    digest = _sha256(path)
    with suppress(OSError):  # an unwritten result means computing again
        memo.parent.mkdir(parents=True, exist_ok=True)
        write_json(memo, {**identity, "sha256": digest}, owner=memo)
    return digest


def folder_sha256(files: Iterable[Path], *, cache: Path) -> str:
    """One SHA-256 over names and contents of files, each remembered as `file_sha256` does."""
    return _joined({path.name: file_sha256(path, cache=cache) for path in files})


def _joined(digests: Mapping[str, str]) -> str:
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def _entry(path: Path, *, full: bool) -> CacheEntry:
    recorded = read_json(_beside(path, _SIDECAR))
    recipe, digest = recorded.get("recipe"), recorded.get("sha256")
    return CacheEntry(
        path=path,
        nbytes=_size(path),
        sha256=digest if isinstance(digest, str) else None,
        recipe=recipe if isinstance(recipe, dict) else {},
        problem=verify(path, full=full),
    )


def _build(target: Path, build: Callable[[Path], None], recipe: Mapping[str, str]) -> None:
    temporary = _temporary(target)
    try:
        build(temporary)
        with explained(target.parent):
            for file in {temporary, *files_of(temporary)}:
                _sync(file)
            record: dict[str, object] = {
                "nbytes": _size(temporary),
                "sha256": _sha256(temporary),
                "recipe": dict(recipe),
            }
            # Without its sidecar the old file counts as absent until the new one's is written.
            _beside(target, _SIDECAR).unlink(missing_ok=True)
            if target.is_dir():
                _remove(target)  # a folder cannot be replaced by another that is not empty
            temporary.replace(target)
            _sync(target.parent)
            record[_CHANGED] = _changed_ns(target)
            write_json(_beside(target, _SIDECAR), record, owner=target)
    except BaseException as error:
        # Checked before the half file goes, because that makes room.
        full = no_room(error, temporary) if isinstance(error, Exception) else None
        _remove(temporary)
        if full is not None and not isinstance(error, CacheError):
            raise full from error
        raise


@contextmanager
def locked(target: Path, on_wait: Callable[[str], None] | None) -> Iterator[None]:
    """Lock `target`, so that one process at a time makes or removes it."""
    from filelock import Timeout  # noqa: PLC0415  # only where something is built

    lock = _file_lock(target)
    with explained(target.parent):
        try:
            lock.acquire(timeout=_UNREPORTED_SECONDS, poll_interval=_POLL_SECONDS)
        except Timeout:
            if on_wait is not None:
                on_wait(f"waiting for another process to finish {target.name}")
            lock.acquire(poll_interval=_POLL_SECONDS)
    try:
        yield
    finally:
        lock.release()


def _file_lock(target: Path) -> BaseFileLock:
    from filelock import FileLock  # noqa: PLC0415  # only where something is built

    return FileLock(_beside(target, _LOCK))


def _remove_leftovers(target: Path) -> None:
    """Remove the half files of killed runs from the folder of `target`, after locking it."""
    from filelock import Timeout  # noqa: PLC0415  # only where something is built

    for leftover in target.parent.glob(f"*{_TEMPORARY}"):
        owner = leftover.with_name(leftover.name.rsplit(".", 2)[0])
        if owner == target:
            _remove(leftover)
            continue
        with suppress(Timeout), _file_lock(owner).acquire(timeout=0):
            _remove(leftover)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _temporary(owner: Path) -> Path:
    """A name for a half file that only the holder of `owner`'s lock writes."""
    return _beside(owner, f".{os.getpid()}-{os.urandom(4).hex()}{_TEMPORARY}")


def write_json(path: Path, content: Mapping[str, object], *, owner: Path) -> None:
    """Write a file whole or not at all; the caller has the lock of `owner`."""
    temporary = _temporary(owner)
    try:
        temporary.write_text(json.dumps(content, indent=1, sort_keys=True), encoding="utf-8")
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, object]:
    """The content of a small file of ours, empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MAX_SIDECAR_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in files_of(path))


def _changed_ns(path: Path) -> list[int]:
    return [file.stat().st_ctime_ns for file in files_of(path)]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    """The SHA-256 of a file, or one over names and SHA-256 of a folder's files."""
    if path.is_dir():
        return _joined({str(f.relative_to(path)): _sha256(f) for f in files_of(path)})
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_FULL_BELOW_BYTES: Final = 64 * 1024


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn an `OSError` of the cache's own work into an error with a remedy."""
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
    # llama.cpp and numpy report a failed write without its reason.
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
