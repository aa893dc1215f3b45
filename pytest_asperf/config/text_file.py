"""Small files that a user names, of text, JSON or TOML: read whole, and never without end.

A project's settings are `[tool.asperf]` of its pyproject.toml, or its asperf.toml.
"""

import codecs
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from pytest_asperf.config.table import CheckedTable
from pytest_asperf.errors import ConfigError, printable

_MAX_BYTES: Final = 64 * 2**20


class UnreadableTextError(ValueError):
    """The file is no readable text; the message is the reason, to follow the file's name."""


def read_bytes(path: Path, at_most: int = _MAX_BYTES) -> bytes:
    """The content of a regular file; UnreadableTextError if there is none, or too much of it."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "folder" if stat.S_ISDIR(status.st_mode) else "pipe or device"
            raise UnreadableTextError(f"cannot be read: it is a {what}")
        if status.st_size == 0:
            return b""
        with path.open("rb") as file:
            content = file.read(at_most + 1)
    except OSError as error:
        raise UnreadableTextError(f"cannot be read: {error.strerror}") from error
    if len(content) > at_most:
        raise UnreadableTextError(f"has more than {at_most >> 20} MiB")
    return content


def read_text(path: Path, at_most: int = _MAX_BYTES) -> str:
    """The text of a regular file in UTF-8, without a byte order mark, with Python's line ends."""
    content = read_bytes(path, at_most)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or _is_wide(content):
        raise UnreadableTextError("is not UTF-8 but UTF-16")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableTextError(f"is not UTF-8: byte {error.start}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _is_wide(content: bytes) -> bool:
    """True if every second byte of most of the text is NUL, as PowerShell writes it."""
    return max(content[::2].count(0), content[1::2].count(0)) > len(content) / 4


def read_json_table(path: Path) -> dict[str, Any]:
    """The table in a JSON file; raises UnreadableTextError if there is none."""
    try:
        content = json.loads(read_bytes(path))
    except UnreadableTextError:
        raise
    except (ValueError, RecursionError) as error:
        raise UnreadableTextError("is not JSON") from error
    if not isinstance(content, dict):
        raise UnreadableTextError("is not a JSON table")
    return content


_SCHEMA: Final = 1
_MANY_DIGITS: Final = re.compile(r"[0-9_]{4300}|[eE][+-]?[0-9_]{9}")


def parse_toml(
    text: str, where: str, *, parse_float: Callable[[str], Any] = float
) -> dict[str, Any]:
    """The content of a TOML document, whose integers have 64 bits as TOML demands."""
    try:
        content = tomllib.loads(text, parse_float=parse_float)
        large = _out_of_range(content)
    except tomllib.TOMLDecodeError as error:
        raise broken(where, f"is not valid TOML: {error}", "correct the file there") from error
    except RecursionError:
        raise broken(where, "is nested too deeply", "flatten it") from None
    except (ValueError, ArithmeticError):  # from the types of numbers: tomllib accepts them
        digits = _MANY_DIGITS.search(text)
        line = f" in line {text.count(chr(10), 0, digits.start()) + 1}" if digits else ""
        raise broken(where, f"has a number out of range{line}", "write a smaller one") from None
    if large is not None:
        problem = f"has an integer of more than 64 bits: {printable(large, 200)}"
        raise broken(where, problem, "write a smaller one")
    return content


def _out_of_range(value: object, keys: str = "") -> str | None:
    """The keys that lead to an integer of more than 64 bits, None without one."""
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else keys
    inner: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    large = (_out_of_range(item, f"{keys}.{key}".lstrip(".")) for key, item in inner)
    return next((keys for keys in large if keys is not None), None)


def open_document(text: str, where: str) -> CheckedTable:
    """The content of a TOML text that says `schema = 1`."""
    content = parse_toml(text, where, parse_float=Decimal)
    if content.get("schema") != _SCHEMA or isinstance(content["schema"], bool):
        raise broken(where, f"has no schema = {_SCHEMA}", f"write schema = {_SCHEMA} first")
    return CheckedTable(where, content)


def read_toml_text(path: Path) -> str:
    """A file's text; an error if it cannot be read."""
    try:
        return read_text(path)
    except UnreadableTextError as error:
        remedy = "name a file that can be read, in UTF-8"
        raise broken(printable(path, 300), str(error), remedy) from error


def shipped_table(name: str) -> dict[str, Any]:
    """The content of a TOML file of the package's data."""
    file = resources.files("pytest_asperf").joinpath("data", f"{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


@cache
def shipped_texts(folder: str) -> tuple[tuple[str, str], ...]:
    """The TOML files of a folder of this package, sorted by their names: name and text."""
    files = resources.files("pytest_asperf").joinpath(folder).iterdir()
    shipped = sorted((file.name, file) for file in files if file.name.endswith(".toml"))
    return tuple((name, file.read_text(encoding="utf-8")) for name, file in shipped)


def broken(where: str, problem: str, remedy: str) -> ConfigError:
    """The error for a file that cannot be used at all."""
    why = "the file's text would be ignored"
    return ConfigError(f"{where} {problem}", why=why, remedy=remedy)


def twice(where: str, id_: str) -> ConfigError:
    """The error for an id that two entries have."""
    return ConfigError(
        f"{where} {id_!r} is there twice",
        why="one id must mean one figure",
        remedy="rename one of the two",
    )


#: asperf's own file, and the one that it shares with other tools.
OWN_FILE: Final = "asperf.toml"
_SHARED_FILE: Final = "pyproject.toml"
#: Folders of installed packages.
_INSTALLED: Final = {"site-packages", "dist-packages"}


def nearest_configuration(start: Path) -> Path | None:
    """The configuration file nearest to a folder: in it or above, up to its repository's root.

    None without one, and for the folders of an installed package, which belongs to no project.

    Raises:
        ConfigError: a pyproject.toml on the way cannot be read.
    """
    for folder in (start, *start.parents):
        if folder.name in _INSTALLED:
            return None
        own, shared = folder / OWN_FILE, folder / _SHARED_FILE
        if os.path.lexists(own):
            return own
        if _read_document(shared).values:
            return shared
        if os.path.lexists(folder / ".git"):  # a file in a submodule or worktree
            return None
    return None


def find_document(folder: Path) -> CheckedTable:
    """The table of a folder's configuration file, empty if no file has one."""
    documents = [
        document
        for file in (_SHARED_FILE, OWN_FILE)
        if (document := _read_document(folder / file)).values
    ]
    if len(documents) > 1:
        raise ConfigError(
            f"{folder}: both {_SHARED_FILE} ([tool.asperf]) and {OWN_FILE} have settings",
            remedy="keep them in one of the two files",
        )
    return documents[0] if documents else CheckedTable(_SHARED_FILE, {})


def _read_document(path: Path) -> CheckedTable:
    content = _read_toml(path)
    document = CheckedTable(path.name, content)
    # A file of our own needs no [tool.asperf], but a table moved there may keep its name.
    own = path.name == OWN_FILE and content.keys() != {"tool"}
    for key in () if own else ("tool", "asperf"):
        document = document.inner(key, document.values.get(key, {}), separator=".")
    return document


def _read_toml(path: Path) -> dict[str, object]:
    if not os.path.lexists(path):
        return {}
    return parse_toml(read_toml_text(path), printable(path, 300))
