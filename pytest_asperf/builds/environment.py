"""Packages to an environment of their own, by uv where it is on PATH, else by venv and pip."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.builds.failures import environment_failure
from pytest_asperf.builds.step import StepFailure
from pytest_asperf.builds.store import Recipe
from pytest_asperf.builds.surroundings import (
    child_environment,
    compiles_with,
    installed,
    installs_with,
    interpreter_facts,
)
from pytest_asperf.config.build_sources import ARCHIVES, source_text
from pytest_asperf.errors import BuildError
from pytest_asperf.modelfiles.cache import file_sha256

if TYPE_CHECKING:
    from pytest_asperf.builds.job import Job
    from pytest_asperf.config.build_sources import Packages

#: What a build's own variables are meant for: of these an index may also have made wheels, which
#: would be installed as they are.
_COMPILED: Final = ("llama-cpp-python",)


def environment_recipe(source: Packages, *, cache: Path) -> Recipe:
    """Return everything that decides an environment.

    A requirement without a version is part of it as written: what it stands for is decided when the
    environment is made.

    Raises:
        BuildError: a wheel is missing or is none, or the interpreter does not run.
    """
    return Recipe(
        " ".join([*source.requirements, *(path.name for path in source.files)]),
        {
            "kind": "environment",
            "requirements": list(source.requirements),
            "files": {path.name: _file_sha256(path, cache) for path in source.files},
            "compiles_with": compiles_with(source.env),
            "installs_with": installs_with(source.env),
            "base": interpreter_facts(source.python),
        },
    )


def interpreter_of(folder: Path) -> Path:
    """Return the interpreter of a made environment."""
    return folder / "env" / "bin" / "python"


def make_environment(source: Packages, job: Job) -> dict[str, Any]:
    """Make an environment in a job's folder, and return what it has.

    Raises:
        BuildError: it cannot be made.
        CacheError: its disk is full.
    """
    env = child_environment(source.env)
    steps, installer = _steps(source, job.folder / "env")
    try:
        for step in steps:
            job.run(step, env)
    except StepFailure as error:
        raise environment_failure(
            error, source_text(source), folder=job.folder, log=job.log, installer=installer
        ) from None
    return {"packages": installed(interpreter_of(job.folder)), "installer": installer}


def _steps(source: Packages, where: Path) -> tuple[list[list[str | Path]], str]:
    """Return the commands that make an environment and fill it, and who does the latter."""
    python, uv = where / "bin" / "python", shutil.which("uv")
    # Wheels that were compiled here are cached by name and version, whatever they were compiled
    # with: neither is such a wheel to be taken, nor ours to be left.
    fresh = bool(compiles_with(source.env))
    if uv is not None:
        cache = ["--no-cache"] if fresh else []
        return [
            [uv, "venv", "--no-project", "--python", source.python, where],
            [uv, "pip", "install", *cache, "--python", python, *_options(source)],
        ], "uv"
    cache = ["--no-cache-dir"] if fresh else []
    options = ["install", "-v", "--no-input", *cache, *_options(source)]
    venv: list[str | Path] = [source.python, "-I", "-m", "venv"]
    if source.python == Path(sys.executable) and find_spec("pip"):
        # Our own pip does, where the environment is of our Python: its own takes 5 s to get.
        pip: list[str | Path] = [source.python, "-I", "-m", "pip", "--python", python]
        return [[*venv, "--without-pip", where], [*pip, *options]], "pip"
    return [[*venv, where], [python, "-I", "-m", "pip", *options]], "pip"


def _options(source: Packages) -> list[str | Path]:
    """Return what is installed, behind the options that both installers have."""
    declared = compiles_with(source.env).keys() & dict(source.env).keys()
    # Of a file it is no question: it is a wheel or it is not.
    is_asked = bool(declared and source.requirements)
    compiled = [f"--no-binary={name}" for name in _COMPILED if is_asked]
    return [*compiled, "--", *source.requirements, *source.files]


def _file_sha256(path: Path, cache: Path) -> str:
    if not path.is_file():
        near = sorted(each.name for each in path.parent.glob("*") if each.name.endswith(ARCHIVES))
        raise BuildError(
            f"there is no file {path}",
            why="the build is installed from it",
            remedy=f"name one that exists; there are {', '.join(near[:8])}"
            if near
            else "name one that exists: pip wheel --no-deps llama-cpp-python==0.3.35 makes one",
        )
    return file_sha256(path, cache=cache)
