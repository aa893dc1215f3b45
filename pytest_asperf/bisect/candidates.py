"""The builds between two: releases of a package or in a folder, commits of a checkout.

Nothing is installed or compiled here. pip queries the index, so that a user's mirrors, proxies and
credentials apply; git only reads the checkout.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement
from packaging.version import Version

from pytest_asperf.builds.environment import index_versions, tail
from pytest_asperf.builds.surroundings import run_program
from pytest_asperf.config.build_sources import Archive, Checkout, Packages
from pytest_asperf.config.spec import Build
from pytest_asperf.errors import BuildError, ConfigError, escaped

_NAME_THEM: Final = (
    "name the builds between them in their order: --builds=A,B,C, or a file with one a line"
)
_HASH_DIGITS: Final = 10
_RELEASE: Final = re.compile(r"llama-b(?P<number>\d+)(?P<kind>-bin-.+?)(\.zip|\.tar\.gz)", re.ASCII)
#: The fields of a commit's line: the hash, the day it was committed, its subject.
_COMMIT_FORMAT: Final = "--format=%H%x09%cs%x09%s"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A build among those that are bisected.

    `about` has further facts: day and subject of a commit; empty for others.
    """

    build: Build
    about: str = ""


def builds_between(ends: tuple[Build, Build], *, where: str) -> tuple[Candidate, ...]:
    """The builds from an older to a newer one in their order, both ends among them.

    The ends are the same package at two releases, or the same checkout at two commits; `where` are
    the options that name them.

    Raises:
        ConfigError: they have no such order, or the first is not before the second.
        BuildError: the index or git cannot be queried.
    """
    base, candidate = ends
    try:
        if base.settings != candidate.settings:
            raise _NoOrderError("they differ in engine settings")
        match base.source, candidate.source:
            case Packages() as old, Packages() as new:
                return _releases(ends, old, new)
            case Checkout() as old, Checkout() as new:
                return _commits(ends, old, new)
            case Archive() as old, Archive() as new:
                return _archives(ends, old, new)
        raise _NoOrderError("no index, folder or checkout has both")
    except _NoOrderError as problem:
        raise ConfigError(
            f"{where}: which builds lie between {base.name} and {candidate.name} is not known: "
            f"{problem}",
            why="a bisection needs them in the order in which they were made",
            remedy="name two releases of one package, such as mlx-lm==0.31.1 and mlx-lm==0.32.2, "
            "two files of one folder, or two commits of one checkout",
            opt_out=_NAME_THEM,
        ) from None


class _NoOrderError(Exception):
    """Two builds with no known list of builds between them, and the reason."""


def _releases(
    ends: tuple[Build, Build], earlier: Packages, later: Packages
) -> tuple[Candidate, ...]:
    from packaging.version import Version  # noqa: PLC0415  # 50 ms, and only for releases

    old, new = _moved(earlier, later)
    base, candidate = ends
    first, last = _pinned(old), _pinned(new)
    if not first < last:
        raise _NoOrderError(f"{first} is not before {last}")
    options = ["--pre"] if first.is_prerelease or last.is_prerelease else []
    known = map(Version, index_versions(new.name, earlier, options, opt_out=_NAME_THEM))
    between = sorted({version for version in known if first < version < last})

    def release(version: Version) -> Build:
        text = str(new).replace(str(new.specifier), f"=={version}")
        named = tuple(text if word == str(new) else word for word in later.requirements)
        source = replace(later, requirements=named)
        return replace(candidate, name=text + _settings(candidate), source=source)

    return (Candidate(base), *(Candidate(release(v)) for v in between), Candidate(candidate))


def newest_release(base: Build, *, where: str) -> str:
    """The newest release of a pinned build's package, as a requirement.

    Raises:
        ConfigError: the build is no single release.
        BuildError: the index cannot be queried.
    """
    from packaging.requirements import Requirement  # noqa: PLC0415  # as below
    from packaging.version import Version  # noqa: PLC0415

    if not isinstance(base.source, Packages) or len(base.source.requirements) != 1:
        raise ConfigError(
            f"{where}: {base.name} is not a release of one package",
            remedy="name a release, such as llama-cpp-python==0.3.35, or the current build",
        )
    asked = Requirement(base.source.requirements[0])
    opt_out = "name the candidate"
    known = map(Version, index_versions(asked.name, base.source, opt_out=opt_out))
    newest = max(version for version in known if not version.is_prerelease)
    return str(asked).replace(str(asked.specifier), f"=={newest}") + _settings(base)


def _moved(base: Packages, candidate: Packages) -> tuple[Requirement, Requirement]:
    """The one requirement in which two environments differ, and in its version alone."""
    from packaging.requirements import Requirement  # noqa: PLC0415  # as above

    one, other = set(base.requirements), set(candidate.requirements)
    alike = replace(base, requirements=()) == replace(candidate, requirements=())
    if alike and len(one - other) == len(other - one) == 1:
        old, new = Requirement(*(one - other)), Requirement(*(other - one))
        if (old.name, old.extras, old.marker) == (new.name, new.extras, new.marker):
            return old, new
    raise _NoOrderError("they differ in more than one package's version")


def _pinned(requirement: Requirement) -> Version:
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415  # as above

    specifiers = list(requirement.specifier)
    try:
        if [s.operator for s in specifiers] == ["=="]:
            return Version(specifiers[0].version)
    except InvalidVersion:  # a prefix, such as ==0.31.*
        pass
    raise _NoOrderError("only NAME==VERSION names a release")


def _archives(ends: tuple[Build, Build], earlier: Archive, later: Archive) -> tuple[Candidate, ...]:
    """The files of releases of one kind in the ends' folder, by their build numbers."""
    base, candidate = ends
    first, last = _release(earlier.path), _release(later.path)
    if first is None or last is None or first.kind != last.kind:
        raise _NoOrderError("they are not two files llama-bNUMBER-bin-KIND of one kind")
    if not first.number < last.number:
        raise _NoOrderError(f"b{first.number} is not before b{last.number}")
    found = sorted(filter(None, map(_release, earlier.path.parent.iterdir())))
    between = [
        replace(candidate, name=f"{one.path}{_settings(candidate)}", source=Archive(one.path))
        for one in found
        if one.kind == first.kind and first.number < one.number < last.number
    ]
    return (Candidate(base), *map(Candidate, between), Candidate(candidate))


class _Release(NamedTuple):
    """A file of a release; `kind` is its system and backend."""

    number: int
    kind: str
    path: Path


def _release(path: Path) -> _Release | None:
    name = _RELEASE.fullmatch(path.name)
    return _Release(int(name["number"]), name["kind"], path) if name else None


def _commits(ends: tuple[Build, Build], old: Checkout, new: Checkout) -> tuple[Candidate, ...]:
    if replace(old, commit="") != replace(new, commit=""):
        raise _NoOrderError("they are of two checkouts, or are configured differently")

    def log(revisions: str, *options: str) -> list[_Commit]:
        words = ("log", "--first-parent", "--reverse", _COMMIT_FORMAT, *options, revisions, "--")
        lines = _git(old.repository, *words).splitlines()
        return [_Commit(*line.split("\t", 2)) for line in lines]

    start, *_ = log(old.commit, "-1")
    behind = log(f"{old.commit}..{new.commit}")
    if not behind:
        raise _NoOrderError(f"{new.commit} has no commit that {old.commit} lacks")
    base, candidate = ends
    # Other differences of a baseline outside that line would look like the first commit's own.
    before, *_ = log(f"{behind[0].digest}^", "-1")
    if before.digest != start.digest:
        name = before.candidate(candidate, new).build.name
        problem = f"{old.commit} is not among the first parents of {new.commit}; {name} is"
        raise _NoOrderError(problem)
    first, *others, last = (commit.candidate(candidate, new) for commit in (start, *behind))
    return (_called(first, base), *others, _called(last, candidate))


class _Commit(NamedTuple):
    """A line of git's log."""

    digest: str
    day: str
    subject: str

    def candidate(self, end: Build, source: Checkout) -> Candidate:
        """The build of an end of the line, at this commit of its checkout."""
        place = end.name.rpartition("@")[0] or source.repository
        name = f"{place}@{self.digest[:_HASH_DIGITS]}{_settings(end)}"
        build = replace(end, name=name, source=replace(source, commit=self.digest))
        return Candidate(build, f"{self.day} {escaped(self.subject)}")


def _called(commit: Candidate, end: Build) -> Candidate:
    """An end's commit: where the end has a name of its own, by that."""
    return (
        commit if "@" in end.name else replace(commit, build=replace(commit.build, name=end.name))
    )


def _settings(build: Build) -> str:
    """A build's engine settings as they are written behind its name."""
    return "".join(f",{key}={value}" for key, value in build.settings.as_dict().items())


def _git(repository: Path, *words: str) -> str:
    status, printed, log = run_program(["git", "-C", str(repository), *words])
    if status:
        raise BuildError(
            f"{repository}: git {words[0]} ended with {status}",
            remedy="name a git checkout and two commits of it; one made by git clone --depth lacks "
            "the older ones (git fetch --unshallow)",
            detail=tail(log),
        )
    return printed
