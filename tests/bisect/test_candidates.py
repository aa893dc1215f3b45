"""The builds between two: real git on a tiny checkout, and pip on a folder of wheels."""

import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_asperf.bisect.candidates import Candidate, builds_between, newest_release
from pytest_asperf.config.build_sources import Checkout, Packages, parse_source
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.spec import Build
from pytest_asperf.errors import BuildError, ConfigError

RELEASES = ("0.9.0", "0.28.4", "0.30.7", "0.31.1rc1", "0.31.1", "0.31.3", "0.32.0", "1.0.dev1")


def between(base: str, candidate: str) -> tuple[Candidate, ...]:
    """Return the builds between two as a command line names them."""

    def named(text: str) -> Build:
        return Build(text, parse_source(text, Path.cwd(), where="BASE", known=()))

    return builds_between((named(base), named(candidate)), where="BASE, CAND")


def names(found: tuple[Candidate, ...]) -> list[str]:
    """Return the builds' names."""
    return [candidate.build.name for candidate in found]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that has a few releases: a folder of empty wheels, and no network."""
    for version in RELEASES:
        info = f"mlx_lm-{version}.dist-info"
        with zipfile.ZipFile(tmp_path / f"mlx_lm-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{info}/METADATA", f"Name: mlx-lm\nVersion: {version}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


@pytest.mark.usefixtures("index")
def test_releases_come_in_the_order_of_versions() -> None:
    """0.28 is before 0.9 in the alphabet only; releases that are not final are left out."""
    found = names(between("mlx-lm==0.9.0", "mlx-lm==0.32.0"))
    assert found == [f"mlx-lm=={v}" for v in RELEASES if v not in {"0.31.1rc1", "1.0.dev1"}]


@pytest.mark.usefixtures("index")
def test_the_newest_release_is_final_and_keeps_the_settings() -> None:
    """As a requirement, for the package of the named build."""
    source = parse_source("mlx-lm==0.9.0", Path.cwd(), where="BASE", known=())
    build = Build("mlx-lm==0.9.0", source, EngineSettings(threads=2))
    assert newest_release(build, where="BASE") == "mlx-lm==0.32.0,threads=2"


@pytest.mark.usefixtures("index")
def test_an_end_that_is_not_final_asks_for_others() -> None:
    """From a release candidate on, release candidates count."""
    found = names(between("mlx-lm==0.28.4", "mlx-lm==1.0.dev1"))
    assert "mlx-lm==0.31.1rc1" in found
    assert found[-1] == "mlx-lm==1.0.dev1"


@pytest.mark.usefixtures("index")
def test_ends_need_not_be_on_the_index() -> None:
    """A yanked release can still be installed by its number; it is requested by name."""
    found = names(between("mlx-lm==0.31.0", "mlx-lm==0.31.4"))
    assert found == [f"mlx-lm=={v}" for v in ("0.31.0", "0.31.1", "0.31.3", "0.31.4")]


@pytest.mark.usefixtures("index")
def test_all_else_is_the_candidates() -> None:
    """Extras, further packages, environment and settings are those of the ends."""
    settings = EngineSettings(threads=2)

    def build(version: str) -> Build:
        source = Packages(
            ("mlx==0.30.1", f"mlx-lm[cpu]=={version}"), env=(("CMAKE_ARGS", "-DX=1"),)
        )
        return Build(f"release-{version}", source, settings)

    found = builds_between((build("0.31.1"), build("0.32.0")), where="x")
    assert names(found) == ["release-0.31.1", "mlx-lm[cpu]==0.31.3,threads=2", "release-0.32.0"]
    source = found[1].build.source
    assert isinstance(source, Packages)
    assert source.requirements == ("mlx==0.30.1", "mlx-lm[cpu]==0.31.3")
    assert source.env == (("CMAKE_ARGS", "-DX=1"),)
    assert found[1].build.settings == settings


@pytest.mark.usefixtures("index")
def test_an_index_without_the_package_is_told_with_what_pip_says() -> None:
    """The last words of pip, and how to go on without an index."""
    with pytest.raises(BuildError, match="releases of llama-cpp-python cannot be listed") as error:
        between("llama-cpp-python==0.3.1", "llama-cpp-python==0.3.3")
    assert "No matching distribution" in str(error.value)
    assert "--builds" in str(error.value)


@pytest.mark.parametrize(
    ("base", "candidate", "told"),
    [
        ("mlx-lm==0.32.0", "mlx-lm==0.31.1", "0.32.0 is not before 0.31.1"),
        ("mlx-lm==0.31.1", "mlx-lm==0.31.1", "more than one package's version"),
        ("mlx-lm==0.31.*", "mlx-lm==0.32.0", "only NAME==VERSION"),
        ("mlx-lm[cpu]==0.31.1", "mlx-lm==0.32.0", "more than one package's version"),
        ("mlx-lm==0.31.1", "llama-cpp-python==0.3.36", "more than one package's version"),
        ("mlx-lm==0.31.1", "./x-1-py3-none-any.whl", "more than one package's version"),
    ],
)
def test_no_order_is_said(base: str, candidate: str, told: str) -> None:
    """Builds that cannot be bisected by themselves can be with a list of builds."""
    with pytest.raises(ConfigError, match="--builds") as error:
        between(base, candidate)
    assert told in str(error.value)


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A checkout with a merged branch: a, b, m (of the branch), c; `git` runs in it."""
    monkeypatch.chdir(tmp_path)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@example.org")
        monkeypatch.setenv(f"GIT_{role}_DATE", "2026-05-04T12:00:00Z")

    def run(*words: str) -> str:
        command = ["git", "-C", str(tmp_path / "llama.cpp"), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "llama.cpp").mkdir()
    run("init", "-q", "-b", "master")
    for name in ("a", "b"):
        run("commit", "-q", "--allow-empty", "-m", f"Make it {name}\n\nAt length.")
        run("tag", name)
    run("checkout", "-q", "-b", "side", "a")
    run("commit", "-q", "--allow-empty", "-m", "On the side")
    run("checkout", "-q", "master")
    run("merge", "-q", "--no-ff", "-m", "Merge \x1b[31mside", "side")
    run("tag", "m")
    run("commit", "-q", "--allow-empty", "-m", "c")
    run("tag", "c")
    return run


def test_commits_come_along_the_first_parents(git: Callable[..., str]) -> None:
    """Merged commits count as their merge; each has its hash, day and subject."""
    found = between("./llama.cpp@a", "./llama.cpp@c")
    hashes = [git("rev-parse", tag) for tag in "abmc"]
    assert names(found) == [f"./llama.cpp@{digest[:10]}" for digest in hashes]
    for candidate, digest in zip(found, hashes, strict=True):
        assert isinstance(candidate.build.source, Checkout)
        assert candidate.build.source.commit == digest
    assert [candidate.about for candidate in found] == [
        "2026-05-04 Make it a",
        "2026-05-04 Make it b",
        "2026-05-04 Merge \\x1b[31mside",
        "2026-05-04 c",
    ]


def test_what_the_ends_have_besides_every_commit_has(git: Callable[..., str]) -> None:
    """Arguments of CMake and settings; ends that have names keep them."""
    settings = EngineSettings(threads=1)
    ends = [
        Build(name, Checkout(Path("llama.cpp").absolute(), tag, ("-DX=ON",)), settings)
        for name, tag in (("old", "a"), ("new", "c"))
    ]
    found = builds_between((ends[0], ends[1]), where="x")
    assert [c.build.settings for c in found] == [settings] * 4
    place = Path("llama.cpp").absolute()
    between = [f"{place}@{git('rev-parse', tag)[:10]},threads=1" for tag in "bm"]
    assert names(found) == ["old", *between, "new"]
    assert all(isinstance(s := c.build.source, Checkout) and s.cmake == ("-DX=ON",) for c in found)


@pytest.mark.usefixtures("git")
@pytest.mark.parametrize(
    ("base", "candidate", "told"),
    [
        ("./llama.cpp@c", "./llama.cpp@a", "a has no commit that c lacks"),
        ("./llama.cpp@a", "./llama.cpp@a", "a has no commit that a lacks"),
        ("./llama.cpp@side", "./llama.cpp@c", "side is not among the first parents of c"),
        ("./llama.cpp@a", "./other@c", "two checkouts"),
    ],
)
def test_commits_without_an_order_are_refused(base: str, candidate: str, told: str) -> None:
    """A baseline outside the line of first parents would blame the first commit."""
    with pytest.raises(ConfigError, match="--builds") as error:
        between(base, candidate)
    assert told in str(error.value)


@pytest.mark.usefixtures("git")
def test_a_commit_that_is_not_there_is_told() -> None:
    """With git's own words."""
    with pytest.raises(BuildError, match="git log ended with 128") as error:
        between("./llama.cpp@nonesuch", "./llama.cpp@c")
    assert "nonesuch" in str(error.value)
    assert "--unshallow" in str(error.value)


def test_files_of_releases_come_in_the_order_of_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of one kind in the folder, zip or tar; a number means the file that has it."""
    monkeypatch.chdir(tmp_path)
    files = ("b999-bin-x.zip", "b1000-bin-x.tar.gz", "b1005-bin-y.zip", "b1010-bin-x.zip")
    for file in (*files, "b1020-bin-x.zip", "b1001.zip"):
        (tmp_path / f"llama-{file}").touch()
    found = names(between("b999", "./llama-b1020-bin-x.zip"))
    inner = [str(tmp_path / f"llama-{files[i]}") for i in (1, 3)]
    assert found == ["b999", *inner, "./llama-b1020-bin-x.zip"]
    with pytest.raises(ConfigError, match="b1010 is not before b999"):
        between("b1010", "b999")
    with pytest.raises(ConfigError, match="of one kind"):
        between("b999", "b1005")
