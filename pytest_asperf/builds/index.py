"""A package index, asked by pip: a user's mirrors, proxies and credentials hold."""

from __future__ import annotations

import re
import tempfile
from typing import TYPE_CHECKING, Final

from pytest_asperf.builds.surroundings import run_program
from pytest_asperf.errors import BuildError, escaped, listing, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.config.build_sources import Packages

_VERSIONS: Final = re.compile(r"^Available versions:(.*)$", re.MULTILINE)
_PINNED: Final = re.compile(r"(?P<name>[\w.-]+)(\[[^\]]*\])?==(?P<version>[\w.!+-]+)", re.ASCII)
_NO_VERSION: Final = "No matching distribution found"
_SHOWN_LINES: Final = 6
_NEAR: Final = 4


def index_versions(package: str, base: Packages, options: Sequence[str] = ()) -> list[str]:
    """The releases that an interpreter's pip finds and can install, yanked ones left out.

    Raises:
        BuildError: pip cannot list them.
    """
    words = ["index", "versions", package, *options]
    status, printed, log = run_program([str(base.python), "-m", "pip", *words], base.env)
    found = _VERSIONS.search(printed)
    if status or found is None:
        raise BuildError(
            f"releases of {package} cannot be listed: pip {' '.join(words)} ended with {status}",
            why="they are what is bisected",
            remedy=f"see pip's message below; it has to be installed in {base.python} "
            "(python -m ensurepip) and to reach the index",
            opt_out="name the releases with --builds",
            detail=tail(log),
        )
    return [word.strip() for word in found[1].split(",")]


def require_listed(source: Packages) -> None:
    """Raise BuildError for a release that the index does not have; the nearest ones are named.

    If pip lists nothing, because no index can be reached, the installation itself says so.
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
            why="the build is installed from it",
            remedy=f"name one that is: the nearest are {listing(_nearest(version, versions))}",
            opt_out="name a file or folder on this machine",
        )


def _is_among(version: str, versions: Sequence[str]) -> bool:
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415  # 50 ms

    try:
        return Version(version) in map(Version, versions)
    except InvalidVersion:
        return True  # pip says what is wrong with it


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
