"""The disk space of files: names of one file, links to blobs, holes and folders."""

import os
from pathlib import Path

import pytest

from pytest_asperf.errors import ModelError
from pytest_asperf.modelfiles.disk_use import disk_use

MB = 1_000_000


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    """A hub's cache: two snapshots whose weights are one blob, and a file of one of them alone."""
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    (blobs / "weights").write_bytes(os.urandom(MB))
    for name in ("one", "two"):
        folder = tmp_path / "snapshots" / name
        folder.mkdir(parents=True)
        (folder / "model.safetensors").symlink_to("../../blobs/weights")
    (tmp_path / "snapshots" / "two" / "config.json").write_bytes(os.urandom(MB // 2))
    return tmp_path


def test_a_shared_blob_counts_once(snapshots: Path) -> None:
    """Two snapshots and the blob itself are one file; a folder counts with all below it."""
    one, two = snapshots / "snapshots" / "one", snapshots / "snapshots" / "two"
    assert disk_use([one]).apparent == MB
    use = disk_use([one, two, snapshots / "blobs"])
    assert (use.apparent, use.n_files, use.n_shared) == (1.5 * MB, 2, 2)
    assert use == disk_use([snapshots])
    assert 1.5 * MB <= use.allocated < 1.6 * MB


def test_hard_links_and_a_path_named_twice_count_once(tmp_path: Path) -> None:
    """A hard link is another name; the same path again is not even that."""
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    first.write_bytes(os.urandom(MB))
    second.hardlink_to(first)
    assert disk_use([first, second, first]).n_shared == 1
    assert disk_use([first, second]).apparent == MB


def test_holes_take_no_room(tmp_path: Path) -> None:
    """The allocated size is the disk's; the length is more."""
    sparse = tmp_path / "sparse.gguf"
    with sparse.open("wb") as file:
        file.truncate(100 * MB)
    use = disk_use([sparse])
    assert use.apparent == 100 * MB
    assert use.allocated < MB


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    """A folder that contains itself by a link has no size; the system's words have the reason."""
    (tmp_path / "m.mlpackage").mkdir()
    (tmp_path / "m.mlpackage" / "again").symlink_to(tmp_path)
    with pytest.raises(ModelError, match="Too many levels of symbolic links"):
        disk_use([tmp_path])


@pytest.mark.parametrize("name", ["missing", "broken"])
def test_what_is_not_there_is_no_zero(name: str, tmp_path: Path) -> None:
    """A path that does not exist, and a link to nothing in a folder, are errors that name it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "broken").symlink_to("nowhere")
    with pytest.raises(ModelError, match=name):
        disk_use([folder if name == "broken" else tmp_path / name])
