import errno
import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pytest_asperf
from pytest_asperf.errors import AsperfError, CacheError
from pytest_asperf.modelfiles.cache import (
    build_once,
    cache_root,
    discard,
    entries,
    file_sha256,
    verify,
)

RECIPE = {"level": "F16"}
PACKAGE_PARENT = Path(pytest_asperf.__file__).parents[1]


def writing(content: bytes) -> Callable[[Path], None]:
    """Return a builder that writes this."""

    def build(path: Path) -> None:
        path.write_bytes(content)

    return build


def refuse(_path: Path) -> None:
    """Fail if nothing should be built."""
    raise AssertionError("built again")


@pytest.fixture
def ordinary_folder() -> Iterator[Path]:
    """A folder of this user; if that is root, its rights are laid down for the test."""
    folder = Path(tempfile.mkdtemp())
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(folder, 65534, -1)
        os.seteuid(65534)
    yield folder
    if is_root:
        os.seteuid(0)
    folder.chmod(0o700)
    shutil.rmtree(folder)


def test_the_root_comes_from_the_environment(tmp_path: Path) -> None:
    """ASPERF_CACHE overrides the user's cache folder, and has to be absolute."""
    assert cache_root({"ASPERF_CACHE": str(tmp_path)}) == tmp_path
    assert cache_root({}).name == "pytest-asperf"
    assert cache_root({"ASPERF_CACHE": ""}) == cache_root({})
    with pytest.raises(CacheError, match="'models' is not an absolute path"):
        cache_root({"ASPERF_CACHE": "models"})


def test_built_once_and_kept_with_its_record(tmp_path: Path) -> None:
    """The second call builds nothing; the sidecar records size, hash, recipe and last change."""
    target = tmp_path / "a" / "b" / "m.gguf"
    assert build_once(target, writing(b"model"), recipe=RECIPE) == target
    assert build_once(target, refuse, recipe=RECIPE) == target
    assert target.read_bytes() == b"model"
    assert json.loads((tmp_path / "a/b/m.gguf.json").read_text()) == {
        "nbytes": 5,
        "sha256": hashlib.sha256(b"model").hexdigest(),
        "recipe": RECIPE,
        "ctime_ns": [target.stat().st_ctime_ns],
    }
    assert sorted(p.name for p in target.parent.iterdir()) == [
        "m.gguf",
        "m.gguf.json",
        "m.gguf.lock",
    ]


@pytest.mark.parametrize("sidecar", [None, "", "[]", '{"nbytes": 4}', "[" * 100_000])
def test_a_file_that_is_not_known_to_be_whole_is_built_again(
    tmp_path: Path, sidecar: str | None
) -> None:
    """Without a sidecar that fits, a file counts as absent."""
    target = tmp_path / "m.gguf"
    target.write_bytes(b"other")
    if sidecar is not None:
        (tmp_path / "m.gguf.json").write_text(sidecar)
    build_once(target, writing(b"model"), recipe=RECIPE)
    assert target.read_bytes() == b"model"
    assert verify(target, full=True) is None


def test_verify_finds_cuts_by_size_and_damage_by_hash(tmp_path: Path) -> None:
    """The quick check sees a missing byte, the full one a changed byte."""
    target = build_once(tmp_path / "m.gguf", writing(b"model"), recipe=RECIPE)
    target.write_bytes(b"mOdel")
    assert verify(target) is None
    assert "SHA-256" in (verify(target, full=True) or "")
    target.write_bytes(b"mode")
    assert "4 bytes where 5 were written" in (verify(target) or "")
    assert "cannot be read" in (verify(tmp_path / "absent.gguf") or "")
    discard(target)
    assert build_once(target, writing(b"model"), recipe=RECIPE).read_bytes() == b"model"


def test_damage_at_equal_size_and_time_is_built_again(tmp_path: Path) -> None:
    """The hash of a file that was touched is compared before the file is used."""
    target = build_once(tmp_path / "m.gguf", writing(b"model"), recipe=RECIPE)
    written = target.stat()
    target.write_bytes(b"mOdel")
    os.utime(target, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert build_once(target, writing(b"model"), recipe=RECIPE).read_bytes() == b"model"


def test_a_file_that_was_only_touched_is_hashed_once(tmp_path: Path) -> None:
    """A copied cache, or one without the time of the last change, is used as it is."""
    target = build_once(tmp_path / "m.gguf", writing(b"model"), recipe=RECIPE)
    sidecar = tmp_path / "m.gguf.json"
    recorded = json.loads(sidecar.read_text())
    sidecar.write_text(json.dumps({key: recorded[key] for key in ("nbytes", "sha256", "recipe")}))
    assert build_once(target, refuse, recipe=RECIPE) == target
    assert json.loads(sidecar.read_text()) == recorded
    target.touch()
    assert build_once(target, refuse, recipe=RECIPE) == target
    # Noted as intact: a wrong hash is not looked at again.
    sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | {"sha256": "0"}))
    assert build_once(target, refuse, recipe=RECIPE) == target


def test_entries_lists_what_is_there(tmp_path: Path) -> None:
    """Intact and damaged files are listed with their record; an absent cache is empty."""
    assert entries(tmp_path / "absent") == ()
    build_once(tmp_path / "models" / "a.gguf", writing(b"model"), recipe=RECIPE)
    build_once(tmp_path / "models" / "b.gguf", writing(b"model"), recipe=RECIPE).write_bytes(b"x")
    (tmp_path / "models" / "c.gguf").write_bytes(b"stray")
    a, b, c = entries(tmp_path)
    assert (a.path.name, a.nbytes, a.recipe, a.problem) == ("a.gguf", 5, RECIPE, None)
    assert "1 bytes where 5" in (b.problem or "")
    assert (c.sha256, c.recipe) == (None, {})
    assert "no sidecar" in (c.problem or "")


def test_a_failed_build_leaves_nothing_and_passes_its_error_on(tmp_path: Path) -> None:
    """The half file goes, the reason stays, and the next call builds."""

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise ValueError("the quantizer died")

    with pytest.raises(ValueError, match="the quantizer died"):
        build_once(tmp_path / "m.gguf", fail, recipe=RECIPE)
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf.lock"]
    assert build_once(tmp_path / "m.gguf", writing(b"model"), recipe=RECIPE).exists()


def test_a_builder_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    """An absent result is never stored."""
    with pytest.raises(CacheError, match="cannot be used"):
        build_once(tmp_path / "m.gguf", lambda _: None, recipe=RECIPE)
    assert not (tmp_path / "m.gguf.json").exists()


def test_two_threads_build_once(tmp_path: Path) -> None:
    """Threads of one process exclude one another as processes do."""
    built: list[int] = []
    waiting = threading.Event()

    def build(path: Path) -> None:
        built.append(threading.get_ident())
        second.start()
        assert waiting.wait(60)
        path.write_bytes(b"model")

    def run() -> None:
        build_once(tmp_path / "m.gguf", build, recipe=RECIPE, on_wait=lambda _: waiting.set())

    second = threading.Thread(target=run)
    run()
    second.join()
    assert built == [threading.get_ident()]


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    """The error names the folder and the way out."""
    (tmp_path / "cache").write_text("")
    with pytest.raises(CacheError) as caught:
        build_once(tmp_path / "cache" / "models" / "m.gguf", refuse, recipe=RECIPE)
    assert str(tmp_path / "cache" / "models") in caught.value.what
    assert "ASPERF_CACHE" in caught.value.remedy
    with pytest.raises(CacheError, match="cannot be used"):
        entries(tmp_path / "cache")


def test_a_read_only_folder_serves_what_it_has(ordinary_folder: Path) -> None:
    """An intact file is returned; one that would have to be built is an error."""
    build_once(ordinary_folder / "m.gguf", writing(b"model"), recipe=RECIPE)
    ordinary_folder.chmod(0o500)
    assert build_once(ordinary_folder / "m.gguf", refuse, recipe=RECIPE).exists()
    with pytest.raises(CacheError, match=r"cannot be used: .*Permission denied") as caught:
        build_once(ordinary_folder / "other.gguf", refuse, recipe=RECIPE)
    assert "ASPERF_CACHE" in caught.value.remedy


def test_a_folder_without_permission(ordinary_folder: Path) -> None:
    """A folder that may not be entered is an error, for building and for listing."""
    ordinary_folder.chmod(0)
    with pytest.raises(CacheError, match="cannot be used"):
        build_once(ordinary_folder / "models" / "m.gguf", refuse, recipe=RECIPE)
    with pytest.raises(CacheError, match="cannot be used"):
        entries(ordinary_folder)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_builder_without_space_is_a_full_disk(tmp_path: Path, number: int) -> None:
    """The error of the file system becomes advice."""

    def fail(_path: Path) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(CacheError, match="is full") as caught:
        build_once(tmp_path / "m.gguf", fail, recipe=RECIPE)
    assert "ASPERF_CACHE" in caught.value.remedy


def test_hashes_are_remembered_until_the_file_changes(tmp_path: Path) -> None:
    """Path, size and times identify the content; the time of a change cannot be set back."""
    path, cache = tmp_path / "m.gguf", tmp_path / "cache"
    path.write_bytes(b"model")
    os.utime(path, ns=(0, 1_000))
    assert file_sha256(path, cache=cache) == hashlib.sha256(b"model").hexdigest()
    (memo,) = (cache / "hashes").iterdir()
    memo.write_text(memo.read_text().replace(hashlib.sha256(b"model").hexdigest(), "remembered"))
    assert file_sha256(path, cache=cache) == "remembered"
    path.write_bytes(b"MODEL")
    os.utime(path, ns=(0, 1_000))
    assert file_sha256(path, cache=cache) == hashlib.sha256(b"MODEL").hexdigest()
    for memo in (cache / "hashes").iterdir():
        memo.write_text("{}")
    assert file_sha256(path, cache=cache) == hashlib.sha256(b"MODEL").hexdigest()


def test_a_hash_that_cannot_be_remembered_is_computed(tmp_path: Path) -> None:
    """An unusable cache costs time here, and nothing else."""
    (tmp_path / "file").write_bytes(b"model")
    found = file_sha256(tmp_path / "file", cache=tmp_path / "file")
    assert found == hashlib.sha256(b"model").hexdigest()


def test_cache_errors_have_their_parts(tmp_path: Path) -> None:
    """The event, its reason and the remedy are all there."""
    (tmp_path / "file").write_text("")
    with pytest.raises(AsperfError) as caught:
        build_once(tmp_path / "file" / "m.gguf", refuse, recipe=RECIPE)
    assert all((caught.value.what, caught.value.why, caught.value.remedy))
