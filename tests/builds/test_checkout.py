import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_asperf.builds.build_cache import BuildCache, checkout_recipe
from pytest_asperf.config.build_sources import Checkout
from pytest_asperf.config.spec import Build
from pytest_asperf.errors import BuildError
from tests.builds.conftest import ProgressNotes, interrupt

OpenBuildCache = Callable[[], BuildCache]
Git = Callable[..., str]

CMAKE = """
cmake_minimum_required(VERSION 3.14)
project(tiny C)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(tiny STATIC tiny.c)
target_compile_definitions(tiny PRIVATE SPEED="${SPEED}" COMMIT="${LLAMA_BUILD_COMMIT}")
foreach(name llama-bench llama-perplexity llama-quantize llama-server llama-speculative-simple)
  add_executable(${name} main.c)
  target_link_libraries(${name} tiny)
endforeach()
"""
MAIN = (
    "const char * told(void);\nint puts(const char *);\nint main(void) { return puts(told()) < 0; }"
)
TINY = 'const char * told(void) { return "one " SPEED " " COMMIT; }'


@pytest.fixture
def checkout(tmp_path: Path, git: Git) -> Path:
    """A repository whose CMakeLists.txt builds programs of llama.cpp's names in a second."""
    if missing := [name for name in ("git", "cmake", "cc") if shutil.which(name) is None]:
        pytest.skip(f"no {' or '.join(missing)} on PATH")
    folder = tmp_path / "llama.cpp"
    folder.mkdir()
    for name, text in (("CMakeLists.txt", CMAKE), ("main.c", MAIN), ("tiny.c", TINY)):
        (folder / name).write_text(text)
    git(folder, "init", "-q", "-b", "master")
    commit(folder, git, "b1")
    return folder


def commit(folder: Path, git: Git, tag: str, **files: str) -> str:
    """Commit files by their stem, under a tag, and return the commit's hash."""
    for stem, text in files.items():
        (folder / f"{stem}.c").write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", tag)
    git(folder, "tag", tag)
    return git(folder, "rev-parse", "HEAD")


def said(tools: Path | None) -> str:
    """Return a built llama-bench's output."""
    assert tools is not None
    done = subprocess.run([tools / "llama-bench"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_commit_becomes_a_folder_of_programs(
    checkout: Path, git: Git, build_cache: OpenBuildCache, notes: ProgressNotes
) -> None:
    """It is exported, configured with the arguments given, compiled once, and left alone."""
    digest = git(checkout, "rev-parse", "b1")
    commit(checkout, git, "b2", tiny=TINY.replace("one", "two"))
    (checkout / "tiny.c").write_text("not committed, and no C")
    before = git(checkout, "status", "--porcelain")
    source = Checkout(checkout, "b1", ("-DSPEED=fast",))

    ready = build_cache().ready(Build("old", source), "llama_tools")
    assert said(ready.engine.tools) == f"one fast {digest[:10]}"
    assert ready.made is not None
    assert set(ready.made.found["programs"]) == {
        "llama-bench",
        "llama-perplexity",
        "llama-quantize",
        "llama-server",
        "llama-speculative-simple",
    }
    assert ready.rows() == (("made", f"llama.cpp {digest[:10]}: -DSPEED=fast"),)
    assert {(step[1], step[2]) for step in notes.steps if step[1]}  # the compiler's own count
    assert git(checkout, "status", "--porcelain") == before
    assert git(checkout, "worktree", "list").count("\n") == 0

    same = Checkout(checkout, digest, ("-DSPEED=fast",))
    assert build_cache().ready(Build("same", same), "llama_tools").engine == ready.engine
    assert len(notes.waits) == 1
    new = Checkout(checkout, "HEAD")
    assert said(build_cache().ready(Build("new", new), "llama_tools").engine.tools).startswith(
        "two"
    )


def test_what_was_compiled_is_gone_on_from(
    checkout: Path, git: Git, build_cache: OpenBuildCache, tmp_path: Path
) -> None:
    """After Ctrl-C the next run resumes, and starts over if the remains are unusable."""
    commit(checkout, git, "b2")
    source = Checkout(checkout, "b2")
    folder = checkout_recipe(source, tmp_path).folder(tmp_path / "cache")
    (folder / "build").mkdir(parents=True)
    (folder / "build" / "CMakeCache.txt").write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere\n")
    assert build_cache().made(source).folder == folder


def test_ctrl_c_keeps_what_is_compiled(
    tmp_path: Path, checkout: Path, git: Git, build_cache: OpenBuildCache
) -> None:
    """Stopped, it counts as unfinished; the compiler has gone, and a second run ends the work."""
    note, go = tmp_path / "pid", tmp_path / "go"
    script = tmp_path / "slow.sh"
    script.write_text(f"test -e {go} && exit\necho $$ > {note}\nexec sleep 60\n")
    slow = f"{CMAKE}add_custom_command(TARGET tiny PRE_BUILD COMMAND sh {script})\n"
    (checkout / "CMakeLists.txt").write_text(slow)
    commit(checkout, git, "slow")
    interrupt(f"Checkout(Path({str(checkout)!r}), 'slow')", tmp_path, note)
    (folder,) = (path for path in (tmp_path / "cache" / "builds").iterdir() if path.is_dir())
    assert (folder / "build" / "CMakeCache.txt").exists()
    go.touch()
    made = build_cache().made(Checkout(checkout, "slow"))
    assert made.folder == folder


def test_a_compilers_error_is_shown(
    checkout: Path, git: Git, build_cache: OpenBuildCache, tmp_path: Path
) -> None:
    """The compiler's own words are the detail, and nothing is left but the log."""
    commit(checkout, git, "b2", tiny="const char * told(void) { return nonesuch; }")
    with pytest.raises(BuildError) as caught:
        build_cache().made(Checkout(checkout, "b2"))
    assert "cannot be built" in caught.value.what
    assert caught.value.detail is not None
    assert "nonesuch" in caught.value.detail
    assert not any(path.is_dir() for path in (tmp_path / "cache" / "builds").iterdir())


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("b9999", "has no commit 'b9999'.*fetch"),
        ("b1:main.c", "has no commit"),
    ],
)
def test_an_unknown_commit(
    checkout: Path, build_cache: OpenBuildCache, named: str, problem: str, tmp_path: Path
) -> None:
    """A commit that the checkout does not have raises before anything is made."""
    with pytest.raises(BuildError, match=f"(?s){problem}"):
        build_cache().made(Checkout(checkout, named))
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_is_no_checkout(
    tmp_path: Path, checkout: Path, git: Git, build_cache: OpenBuildCache
) -> None:
    """No repository, no CMakeLists.txt, and none of llama.cpp's binaries are three errors."""
    with pytest.raises(BuildError, match="is not a git checkout"):
        build_cache().made(Checkout(tmp_path, "b1"))
    (checkout / "CMakeLists.txt").write_text(CMAKE.replace("llama-perplexity", "perplexity"))
    commit(checkout, git, "other")
    with pytest.raises(BuildError, match="has no target llama-perplexity"):
        build_cache().made(Checkout(checkout, "other"))
    (checkout / "CMakeLists.txt").unlink()
    commit(checkout, git, "none")
    with pytest.raises(BuildError, match=r"has no CMakeLists\.txt"):
        build_cache().made(Checkout(checkout, "none"))


@pytest.mark.parametrize("missing", ["git", "cmake"])
def test_a_missing_program(
    tmp_path: Path,
    checkout: Path,
    build_cache: OpenBuildCache,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
) -> None:
    """A missing requirement is named with the command that installs it."""
    (tmp_path / "bin").mkdir()
    for name in {"git", "cmake"} - {missing}:
        found = next(
            Path(folder) / name
            for folder in os.environ["PATH"].split(":")
            if (Path(folder) / name).is_file()
        )
        (tmp_path / "bin" / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(BuildError, match=f"no {missing} on PATH"):
        build_cache().made(Checkout(checkout, "b1"))


def test_no_compiler(checkout: Path, build_cache: OpenBuildCache) -> None:
    """CMake without a compiler is reported as missing."""
    source = Checkout(checkout, "b1", env=(("CC", "/nowhere/cc"),))
    with pytest.raises(BuildError, match=r"(?s)no working C or C\+\+ compiler.*build-essential"):
        build_cache().made(source)
