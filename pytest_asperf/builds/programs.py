"""A tree of llama.cpp's source to a folder of its programs and libraries, by CMake.

An interrupted compilation is resumed.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sysconfig
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.builds.step import StepFailure, compile_failure
from pytest_asperf.builds.surroundings import child_environment, compiles_with
from pytest_asperf.errors import BuildError
from pytest_asperf.modelfiles.cache import explained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_asperf.builds.step import Job

    Variables = Iterable[tuple[str, str]]

#: Programs that the engine needs, and those that it uses if a commit has them.
_NEEDED: Final = ("llama-bench", "llama-perplexity", "llama-quantize")
_WANTED: Final = (*_NEEDED, "llama-server", "llama-speculative-simple", "ggml-rpc-server")

#: Nothing is downloaded while it is configured or compiled, and nothing built that is not run.
_OPTIONS: Final = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
)


def compile_facts(env: Variables, cmake: Sequence[str] = ()) -> dict[str, Any]:
    """The facts that decide what a compiler makes of a tree."""
    return {
        "cmake": list(cmake),
        "compiles_with": compiles_with(env),
        "platform": sysconfig.get_platform(),
    }


def make_programs(
    job: Job,
    export: Callable[[Path], None],
    *,
    env: Variables,
    cmake: Sequence[str],
) -> dict[str, Any]:
    """Compile the tree that `export` writes to a folder; the result has the programs' paths."""
    tree, build = job.folder / "source", job.folder / "build"
    variables = child_environment(env)
    # The exported tree is no checkout: git would go up and describe another one.
    variables["GIT_CEILING_DIRECTORIES"] = str(job.folder.parent)
    options = [*shlex.split(dict(env).get("CMAKE_ARGS", "")), *cmake]
    with explained(job.folder.parent):
        if not tree.exists():
            half = tree.with_name(f"{tree.name}.part")
            shutil.rmtree(half, ignore_errors=True)
            export(half)
            half.rename(tree)
        is_resumed = build.exists()
    try:
        try:
            programs = _compiled(job, options, variables)
        except StepFailure:
            if not is_resumed:
                raise
            # What a killed compiler left may be half a file.
            shutil.rmtree(build)
            programs = _compiled(job, options, variables)
    except StepFailure as error:
        what = f"{job.title} cannot be built"
        raise compile_failure(error, what, folder=job.folder, log=job.log) from None
    _clean(tree, build)
    return {
        "programs": {name: str(path.relative_to(job.folder)) for name, path in programs.items()},
        "folder": str(programs["llama-bench"].parent.relative_to(job.folder)),
    }


def _compiled(job: Job, cmake_options: Sequence[str], env: Mapping[str, str]) -> dict[str, Path]:
    """Configure and compile; the programs by name."""
    cmake = shutil.which("cmake", path=env.get("PATH"))
    if cmake is None:
        raise BuildError(
            f"{job.title} cannot be built: no cmake on PATH",
            why="llama.cpp is configured and compiled by it",
            remedy="install it: pip install cmake, brew install cmake or apt install cmake",
            opt_out="name a release of llama.cpp, or a folder of programs that is built already",
        )
    tree, build = job.folder / "source", job.folder / "build"
    # Asks CMake to write down its targets, and where each will be.
    query = build / ".cmake" / "api" / "v1" / "query" / "codemodel-v2"
    with explained(job.folder.parent):
        query.parent.mkdir(parents=True, exist_ok=True)
        query.touch()
    options = ("--no-warn-unused-cli", *_OPTIONS, *cmake_options)
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
