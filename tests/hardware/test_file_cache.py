"""The files that the system keeps in memory: real files, and systems that do not report it."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_asperf.errors import ElsewhereError
from pytest_asperf.modelfiles import disk_use
from pytest_asperf.modelfiles.disk_use import cached_share, drop


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two files and an empty one, read just now."""
    paths = [tmp_path / name for name in ("a.gguf", "b.gguf", "empty")]
    for path, size in zip(paths, (3_000_000, 1_000_000, 0), strict=True):
        path.write_bytes(bytes(size))
        path.read_bytes()
    return paths


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the cache is emptied by sudo here")
def test_files_leave_the_cache_and_come_back(files: list[Path]) -> None:
    """All pages are there after reading, none after dropping, a quarter after reading a quarter."""
    if cached_share(files) is None:
        pytest.skip("this system does not say what is cached")
    assert cached_share(files) == 1.0
    try:
        drop(files)
    except ElsewhereError as error:
        pytest.skip(error.what)
    assert cached_share(files) == 0.0
    files[1].read_bytes()
    assert cached_share(files) == pytest.approx(0.25, abs=0.01)


def test_pages_that_stay_are_no_cold_start(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another process keeps a file in memory, the test is skipped with the reason."""
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None, raising=False)
    monkeypatch.setattr(os, "POSIX_FADV_DONTNEED", 4, raising=False)
    monkeypatch.setattr(disk_use, "cached_share", lambda _: 0.43)
    with pytest.raises(ElsewhereError, match=r"43% of a\.gguf stays in the file cache"):
        drop(files)


@pytest.mark.parametrize("allowed", ["/usr/sbin/purge", ""])
def test_macos_empties_it_by_purge(
    allowed: str, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With leave for sudo and no password; without, it is unavailable."""
    asked: list[Sequence[str]] = []

    def run(args: Sequence[str], **_: float) -> str:
        asked.append(args)
        return allowed if "-l" in args else ""

    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("pytest_asperf.hardware.probe.run", run)
    monkeypatch.setattr(disk_use, "cached_share", lambda _: None)
    if allowed:
        drop(files)
        assert asked[-1] == ("/usr/bin/sudo", "-n", "/usr/sbin/purge")
    else:
        with pytest.raises(ElsewhereError, match="only root may empty the file cache") as error:
            drop(files)
        assert "sudo -v" in error.value.remedy


def test_a_system_that_does_not_say(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown share is None, and no 0."""
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert cached_share(files) is None
    assert cached_share([]) is None
