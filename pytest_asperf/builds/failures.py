"""The reason why a build failed, from the output of pip, CMake and compilers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_asperf.builds.step import StepFailure, first_match
from pytest_asperf.errors import AsperfError, BuildError, printable
from pytest_asperf.modelfiles.cache import disk_full

if TYPE_CHECKING:
    from pathlib import Path


_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_OFFLINE: Final = re.compile(
    r"Name or service not known|Temporary failure in name resolution|nodename nor servname"
    r"|Network is unreachable|NewConnectionError|Connection refused|No route to host|ProxyError"
    r"|ConnectTimeout",
    re.IGNORECASE,
)
_HOST: Final = re.compile(r"https?://[^\s'\"`)>]+|host='(?P<host>[^']+)'")
_NO_VERSION: Final = re.compile(r"No matching distribution found for|requires a different Python")
_PREFIX: Final = re.compile(r"^\s*ERROR:\s*")
_VERSIONS: Final = re.compile(r"\(from versions: (?P<versions>[^)]*)\)")
_NO_COMPILER: Final = re.compile(
    r"No CMAKE_C(XX)?_COMPILER could be found|CMAKE_C(XX)?_COMPILER not set|is not able to compile"
    r"|could not find any instance of Visual Studio|CMAKE_C(XX)?_COMPILER:[^\n]*|"
    r"is not a full path and was not found in the PATH|unable to execute '?(gcc|cc|clang)"
)
_NO_ENSUREPIP: Final = re.compile(
    r"ensurepip is not (available|installed)|No module named ensurepip"
)

_VERSIONS_SHOWN: Final = 8
_NEEDED: Final = "a gate needs both of its builds"
_INDEX: Final = "https://pypi.org/simple"


def environment_failure(error: StepFailure, title: str, *, folder: Path, log: Path) -> AsperfError:
    """The error for packages that could not be installed."""
    if first_match(_FULL, error.lines):
        return disk_full(folder.parent)
    versions = first_match(_VERSIONS, error.lines)
    known = [v.strip() for v in versions["versions"].split(",")] if versions else []
    is_known = bool(known) and known != ["none"]
    if first_match(_OFFLINE, error.lines) and not is_known:
        return _offline(error, title, log)
    if line := next((line for line in error.lines if _NO_VERSION.search(line)), None):
        newest = f"; the newest it has: {', '.join(known[-_VERSIONS_SHOWN:])}" if is_known else ""
        return BuildError(
            f"{title} cannot be installed: {printable(_PREFIX.sub('', line), 300)}",
            why=_NEEDED,
            remedy=f"name a version that the index has for this Python and platform"
            f"{printable(newest, 300)}",
            opt_out="name the path of a wheel, or of an interpreter that has it installed",
            detail=_detail(error, log),
        )
    if first_match(_NO_ENSUREPIP, error.lines):
        return BuildError(
            f"no environment can be made for {title}: this Python has no ensurepip",
            remedy="install the system's package for it (python3-venv), or pip beside "
            "pytest-asperf (in an environment that uv made: uv pip install pip)",
            opt_out="name the path of an interpreter that has the engine installed",
            detail=_detail(error, log),
        )
    return compile_failure(error, f"{title} cannot be installed", folder=folder, log=log)


def compile_failure(error: StepFailure, what: str, *, folder: Path, log: Path) -> AsperfError:
    """The error for a build that could not be configured or compiled."""
    if first_match(_FULL, error.lines):
        return disk_full(folder.parent)
    remedy = "correct what the first error below names; if this machine's compiler is too new or "
    remedy += "too old for the release, set CC and CXX in the build's env"
    ended = f"signal {-error.status}" if error.status < 0 else f"status {error.status}"
    if first_match(_NO_COMPILER, error.lines):
        what = f"{what}: no working C or C++ compiler, or no make"
        remedy = "install one (Debian and Ubuntu: build-essential; macOS: xcode-select --install), "
        remedy += "or name it with CC and CXX in the build's env"
    return BuildError(
        f"{what}: {error.program} ended with {ended}",
        why=_NEEDED,
        remedy=remedy,
        opt_out="name the path of an interpreter, or of a folder of built programs",
        detail=_detail(error, log),
    )


def _offline(error: StepFailure, title: str, log: Path) -> BuildError:
    host = first_match(_HOST, error.lines)
    index = (host["host"] or host[0]) if host else _INDEX
    return BuildError(
        f"{title} cannot be fetched: the package index {printable(index, 200)} cannot be reached",
        why="a requirement is downloaded the first time, with what it depends on",
        remedy="go online for the first run, or name a reachable index with PIP_INDEX_URL",
        opt_out="name the path of an interpreter that has it installed",
        detail=_detail(error, log),
    )


def _detail(error: StepFailure, log: Path) -> str:
    return f"{error.excerpt}\n  all of it: {log}"
