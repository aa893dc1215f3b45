"""TOML files: read in one place, and refused with file, table, row and key."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pytest_asperf.config.text_file import UnreadableTextError, read_text
from pytest_asperf.errors import ConfigError, listing, printable, shown, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

_SCHEMA: Final = 1
_MANY_DIGITS: Final = re.compile(r"[0-9_]{4300}|[eE][+-]?[0-9_]{9}")
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
#: Longest text of one key.
LONGEST: Final = 600


def parse_toml(
    text: str, where: str, *, parse_float: Callable[[str], Any] = float
) -> dict[str, Any]:
    """Return a TOML document, whose integers have 64 bits as TOML demands.

    Raises:
        ConfigError: it is not TOML, is nested too deeply, or has a number out of range.
    """
    try:
        content = tomllib.loads(text, parse_float=parse_float)
        large = _out_of_range(content)
    except tomllib.TOMLDecodeError as error:
        raise broken(where, f"is not valid TOML: {error}", "correct the file there") from error
    except RecursionError:
        raise broken(where, "is nested too deeply", "flatten it") from None
    except (ValueError, ArithmeticError):  # from the types of numbers: tomllib lets them through
        digits = _MANY_DIGITS.search(text)
        line = f" in line {text.count(chr(10), 0, digits.start()) + 1}" if digits else ""
        raise broken(where, f"has a number out of range{line}", "write a smaller one") from None
    if large is not None:
        problem = f"has an integer of more than 64 bits: {printable(large, 200)}"
        raise broken(where, problem, "write a smaller one")
    return content


def _out_of_range(value: object, keys: str = "") -> str | None:
    """Return the keys that lead to an integer of more than 64 bits, None where there is none."""
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else keys
    inner: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    found = (_out_of_range(item, f"{keys}.{key}".lstrip(".")) for key, item in inner)
    return next((keys for keys in found if keys is not None), None)


def open_document(text: str, where: str) -> TomlTable:
    """Return the content of a TOML text that says `schema = 1`.

    Raises:
        ConfigError: it is not TOML, or of another schema.
    """
    content = parse_toml(text, where, parse_float=Decimal)
    if content.get("schema") != _SCHEMA or isinstance(content["schema"], bool):
        raise broken(where, f"does not say schema = {_SCHEMA}", f"write schema = {_SCHEMA} first")
    return TomlTable((where,), content)


@dataclass(frozen=True, slots=True)
class TomlTable:
    """A table of a file as read, with the words by which an error names it."""

    words: tuple[str, ...]
    table: Mapping[str, Any]

    def __str__(self) -> str:
        return ": ".join(self.words)

    def inner(self, word: str, table: object) -> TomlTable:
        """Return a table inside this one, which errors name by `word` too."""
        words = (*self.words, printable(word, 80))
        if not isinstance(table, dict):
            raise unusable(": ".join(words), table, "a table")
        return TomlTable(words, MappingProxyType(table))

    def only(self, valid: Collection[str]) -> None:
        """Refuse a key that nothing reads."""
        for key in self.table:
            if key not in valid:
                raise ConfigError(
                    f"{self}: unknown key {shown(key, 80)}{suggest(key, valid)}",
                    why="a key that nothing reads would leave out what was meant by it",
                    remedy=f"use one of {listing(valid)}; a name with a dot needs quotes",
                )

    def text(self, key: str, *, required: bool = False) -> str:
        """Return a text, empty where the key is not there."""
        value = self.table.get(key, "")
        if not isinstance(value, str) or len(value) > LONGEST or (required and not value):
            raise unusable(f"{self}: {key}", value, f"text of at most {LONGEST} characters")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise unusable(f"{self}: {key}", value, "a list of texts")
        return tuple(value)

    def id(self, key: str = "id") -> str:
        """Return a text that may be part of an id."""
        return checked_id(self.text(key), f"{self}: {key}")

    def entries(self, key: str) -> list[object]:
        """Return the tables of a [[key]], of which there is at least one."""
        value = self.table.get(key, [])
        if not isinstance(value, list) or not value:
            raise unusable(f"{self}: {key}", value, f"at least one [[{key}]]")
        return value

    def choice(self, key: str, valid: Collection[str], default: str = "") -> str:
        """Return one of some words."""
        value = self.table.get(key, default)
        if isinstance(value, str) and value in valid:
            return value
        raise ConfigError(
            f"{self}: {key} is {shown(value, 80)}{suggest(value, valid)}",
            why="what the figures mean cannot be told from it",
            remedy=f"use one of {listing(valid)}",
        )

    def number(self, key: str) -> float | None:
        """Return a finite number, None where the key is not there."""
        value = self.table.get(key)
        return None if value is None else finite(value, f"{self}: {key}")

    def pair(self, key: str) -> tuple[float, float] | None:
        """Return two numbers of which the first is not the larger."""
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 2:
            raise unusable(f"{self}: {key}", value, "[low, high]")
        low, high = (finite(each, f"{self}: {key}") for each in value)
        if low > high:
            raise unusable(f"{self}: {key}", value, "[low, high] with low <= high")
        return low, high


def checked_id(text: str, where: str) -> str:
    """Return a part of an id, refused where it is none."""
    if _ID.fullmatch(text):
        return text
    raise ConfigError(
        f"{where}: {shown(text, 80)} is not usable as part of an id",
        why="a number is named source-id/table-id/row/column",
        remedy="use 1 to 64 of A-Z a-z 0-9 . _ + - and begin with a letter or digit",
    )


def finite(value: object, where: str) -> float:
    """Return a number, refused where it is none."""
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    number = float(value) if is_number else math.nan  # type: ignore[arg-type]  # checked above
    if not math.isfinite(number):
        raise unusable(where, value, "a finite number")
    return number


def read_toml_text(path: Path) -> str:
    """Return a file's text, refused where it cannot be read."""
    try:
        return read_text(path)
    except UnreadableTextError as error:
        remedy = "name a file that can be read, in UTF-8"
        raise broken(printable(path, 300), str(error), remedy) from error


def broken(where: str, problem: str, remedy: str) -> ConfigError:
    """Return the error for a file that cannot be used at all."""
    why = "what the file says would be left out"
    return ConfigError(f"{where} {problem}", why=why, remedy=remedy)


def twice(where: str, id_: str) -> ConfigError:
    """Return the error for an id that stands twice."""
    return ConfigError(
        f"{where} {id_!r} is there twice",
        why="one id must mean one figure",
        remedy="rename one of the two",
    )


def unusable(where: str, value: object, accepted: str) -> ConfigError:
    """Return the error for a value that says nothing."""
    if value is None:
        problem = "is missing"
    else:
        told = value if isinstance(value, str | int | float | Decimal) else type(value).__name__
        problem = f"{shown(told, 80)} is not usable"
    return ConfigError(
        f"{where}: {problem}",
        why="what it should say cannot be told from it",
        remedy=f"write {accepted}",
    )
