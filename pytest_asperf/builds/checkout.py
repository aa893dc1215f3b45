"""A commit of a llama.cpp checkout, exported by git and compiled. The checkout is only read."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.builds.archive import extract_tar
from pytest_asperf.builds.programs import compile_facts, make_programs
from pytest_asperf.builds.store import Recipe
from pytest_asperf.builds.surroundings import child_environment, run_program
from pytest_asperf.errors import BuildError, printable, shown

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_asperf.builds.job import Job
    from pytest_asperf.config.build_sources import Checkout

_SHORT_HASH: Final = 10
_WHY: Final = "the programs are built from it"


def declared_checkout(source: Checkout, _cache: Path) -> dict[str, Any]:
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
    return {"kind": "checkout", **compile_facts(source.env, source.cmake)}


def checkout_recipe(source: Checkout, cache: Path) -> Recipe:
    """Everything that decides a build of a commit; git looks up the commit."""
    declared = declared_checkout(source, cache)
    commit = _commit(source)
    return Recipe(f"llama.cpp {commit[:_SHORT_HASH]}", {**declared, "commit": commit})


def make_commit(source: Checkout, recipe: Recipe, job: Job) -> dict[str, Any]:
    """Build a commit's programs in a job's folder; the result has their paths."""
    commit = recipe.facts["commit"]
    what = f"{printable(source.repository)} does not count the commits before {commit}"
    number = _asked(source, ("rev-list", "--count", commit), what, remedy="clone it again")
    says = (f"-DLLAMA_BUILD_NUMBER={number}", f"-DLLAMA_BUILD_COMMIT={commit[:_SHORT_HASH]}")
    export = partial(_export, source, commit)
    return make_programs(job, export, env=source.env, cmake=(*says, *source.cmake))


def _export(source: Checkout, commit: str, tree: Path) -> None:
    """Write a commit's files to a folder."""
    command = _git_command(source, "archive", "--format=tar", commit)
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, env=child_environment(())) as archive,
        tarfile.open(fileobj=archive.stdout, mode="r|") as tar,
    ):
        extract_tar(tar, tree)


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
    """The answer of git, or the error if it rejects the command."""
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
            remedy="install git",
            opt_out="build the commit yourself, and name the folder of its programs",
        )
    return [git, "-C", str(source.repository), *words]
