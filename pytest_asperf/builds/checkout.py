"""A commit of a llama.cpp checkout to a folder of its programs, by git, CMake and a compiler.

The checkout is only read. An interrupted compilation is resumed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
import tarfile
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.builds.failures import compile_failure
from pytest_asperf.builds.step import StepFailure
from pytest_asperf.builds.store import Recipe
from pytest_asperf.builds.surroundings import child_environment, compiles_with, run_program
from pytest_asperf.errors import BuildError, printable, shown
from pytest_asperf.modelfiles.cache_errors import explained

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_asperf.builds.job import Job
    from pytest_asperf.config.build_sources import Checkout

#: What the engine cannot do without, and what it uses where a commit has it.
_NEEDED: Final = ("llama-bench", "llama-perplexity", "llama-quantize")
_WANTED: Final = (*_NEEDED, "llama-speculative-simple", "ggml-rpc-server")

#: Nothing is downloaded while it is configured or compiled, and nothing built that is not run.
_OPTIONS: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
)
_SHORT_HASH: Final = 10
_WHY: Final = "the programs are built from it"


def declared_checkout(source: Checkout) -> dict[str, Any]:
    """The facts that decide a build of a checkout and that are known without running git.

    Raises:
        BuildError: the folder is no git checkout.
    """
    repository = source.repository
    if not (repository / ".git").exists():
        raise BuildError(
            f"{printable(repository)} is not a git checkout",
            why=_WHY,
            remedy="name the folder of a clone of llama.cpp: "
            "git clone https://github.com/ggml-org/llama.cpp",
        )
    return {
        "kind": "checkout",
        "cmake": list(source.cmake),
        "compiles_with": compiles_with(source.env),
        "platform": sysconfig.get_platform(),
    }


def checkout_recipe(source: Checkout) -> Recipe:
    """Everything that decides a build of a commit; git looks up the commit."""
    declared = declared_checkout(source)
    commit = _commit(source)
    return Recipe(f"llama.cpp {commit[:_SHORT_HASH]}", {**declared, "commit": commit})


def make_tools(source: Checkout, commit: str, job: Job) -> dict[str, Any]:
    """Build a commit's programs in a job's folder; the result has their paths."""
    tree, build = job.folder / "source", job.folder / "build"
    env = child_environment(source.env)
    # The exported tree is no checkout: git would go up and describe another one.
    env["GIT_CEILING_DIRECTORIES"] = str(job.folder.parent)
    with explained(job.folder.parent):
        if not tree.exists():
            _export(source, commit, tree)
        is_resumed = build.exists()
    try:
        try:
            programs = _compiled(source, commit, job, env)
        except StepFailure:
            if not is_resumed:
                raise
            # What a killed compiler left may be half a file.
            shutil.rmtree(build)
            programs = _compiled(source, commit, job, env)
    except StepFailure as error:
        what = f"{job.title} cannot be built"
        raise compile_failure(error, what, folder=job.folder, log=job.log) from None
    _clean(tree, build)
    return {
        "programs": {name: str(path.relative_to(job.folder)) for name, path in programs.items()}
    }


def _compiled(source: Checkout, commit: str, job: Job, env: Mapping[str, str]) -> dict[str, Path]:
    """Configure and compile; the programs by name."""
    cmake = shutil.which("cmake", path=env.get("PATH"))
    if cmake is None:
        raise BuildError(
            f"{job.title} cannot be built: no cmake on PATH",
            why="llama.cpp is configured and compiled by it",
            remedy="install it: pip install cmake, brew install cmake or apt install cmake",
            opt_out="name a folder of programs that is built already",
        )
    tree, build = job.folder / "source", job.folder / "build"
    what = f"{printable(source.repository)} does not count the commits before {commit}"
    number = _asked(source, ("rev-list", "--count", commit), what, remedy="clone it again")
    says = (f"-DLLAMA_BUILD_NUMBER={number}", f"-DLLAMA_BUILD_COMMIT={commit[:_SHORT_HASH]}")
    # Asks CMake to write down its targets, and where each will be.
    query = build / ".cmake" / "api" / "v1" / "query" / "codemodel-v2"
    with explained(job.folder.parent):
        query.parent.mkdir(parents=True, exist_ok=True)
        query.touch()
    options = ("--no-warn-unused-cli", *_OPTIONS, *says, *source.cmake)
    job.run([cmake, "-S", tree, "-B", build, *options], env)
    programs = _programs(build, job.title)
    job.run([cmake, "--build", build, "--config", "Release", "--target", *programs], env)
    return programs


def _programs(build: Path, title: str) -> dict[str, Path]:
    replies = build / ".cmake" / "api" / "v1" / "reply"
    (index,) = sorted(replies.glob("codemodel-v2-*.json"))[-1:]
    targets = json.loads(index.read_text("utf-8"))["configurations"][0]["targets"]
    files = {target["name"]: target["jsonFile"] for target in targets}
    if missing := [name for name in _NEEDED if name not in files]:
        raise BuildError(
            f"{title} has no target {', '.join(missing)}",
            why="throughput, PPL and levels are measured and made by these programs",
            remedy="name a commit of llama.cpp from July 2024 (b3152) on, which has them",
        )
    return {
        name: build / json.loads((replies / files[name]).read_text("utf-8"))["artifacts"][0]["path"]
        for name in _WANTED
        if name in files
    }


def _clean(tree: Path, build: Path) -> None:
    """Remove what was needed to compile only; programs find their libraries where they are."""
    shutil.rmtree(tree)
    for folder in [path for path in build.rglob("CMakeFiles") if path.is_dir()]:
        shutil.rmtree(folder, ignore_errors=True)  # one may have been inside another
    for archive in build.rglob("*.a"):
        archive.unlink()


def _export(source: Checkout, commit: str, tree: Path) -> None:
    """Write a commit's files to a folder, whole or not at all."""
    half = tree.with_name(f"{tree.name}.part")
    shutil.rmtree(half, ignore_errors=True)
    command = _git_command(source, "archive", "--format=tar", commit)
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, env=child_environment(())) as archive,
        tarfile.open(fileobj=archive.stdout, mode="r|") as tar,
    ):
        # Python 3.11.0 to 3.11.3 (Debian 12) have none; the commit is compiled and run anyway.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(half)  # noqa: S202  # as above
    half.rename(tree)


def _commit(source: Checkout) -> str:
    """A commit's full hash, checked to be one of llama.cpp's."""
    repository, named = source.repository, shown(source.commit, 80)
    commit = _asked(
        source,
        ("rev-parse", "--verify", "--end-of-options", f"{source.commit}^{{commit}}"),
        f"{printable(repository)} has no commit {named}",
        remedy=f"name a hash, tag or branch that it has; git -C {printable(repository)} fetch "
        "--tags gets those that are newer",
    )
    _asked(
        source,
        ("cat-file", "-e", f"{commit}:CMakeLists.txt"),
        f"{printable(repository)} at {named} is not llama.cpp: it has no CMakeLists.txt",
        remedy="name a checkout of llama.cpp, at a commit that is built by CMake",
    )
    return commit


def _asked(source: Checkout, words: tuple[str, ...], what: str, *, remedy: str) -> str:
    """What git answers, or the error for its refusal."""
    status, printed, log = run_program(_git_command(source, *words))
    if status:
        detail = f"  | {printable(log.strip(), 300)}"
        raise BuildError(what, why=_WHY, remedy=remedy, detail=detail)
    return printed.strip()


def _git_command(source: Checkout, *words: str) -> list[str]:
    git = shutil.which("git")
    if git is None:
        raise BuildError(
            f"{printable(source.repository)} cannot be read: no git on PATH",
            why="a commit is exported from its checkout by git",
            remedy="install git",
            opt_out="build the commit yourself, and name the folder of its programs",
        )
    return [git, "-C", str(source.repository), *words]
