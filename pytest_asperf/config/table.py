"""Tables that users write, checked in one way: TOML, engine settings, arguments of markers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any, Final, Generic, Never, TypeVar

from pytest_asperf.errors import ConfigError, listing, printable, shown, suggest

T = TypeVar("T")

#: Longest text of one key.
LONGEST: Final = 600


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """The values that one key accepts; a message prints `accepts`, and `why` they matter.

    `read` gives the value, or raises ValueError with a hint as its text. `is_whole` if it is a
    number in TOML, which an option has as text.
    """

    read: Callable[[object], T]
    accepts: str
    why: str = ""
    is_whole: bool = False

    def checked(self, value: object, place: str, key: str = "") -> T:
        """Read a value; a ConfigError names the place: file and key, option, or test and marker."""
        try:
            return self.read(value)
        except ValueError as error:
            remedy = f"{key} takes {self.accepts}" if key else f"write {self.accepts}"
            raise unusable(place, value, remedy, why=self.why, hint=str(error)) from None

    def because(self, why: str) -> Rule[T]:
        """The same rule with a reason of its own."""
        return replace(self, why=why)


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """A table as a user wrote it; an error names the place in it."""

    place: str  #: file and table, or test and marker, as an error names them
    values: Mapping[str, Any]
    noun: str = "key"
    separator: str = ": "  #: text between the place and a key

    def __str__(self) -> str:
        return self.place

    def at(self, key: str) -> str:
        """The place of a key."""
        return f"{self.place}{self.separator}{printable(key, 80)}"

    def inner(self, name: str, value: object, *, separator: str = "") -> CheckedTable:
        """A table inside this one, which errors call `name`."""
        place = self.at(name)
        return CheckedTable(
            place, TABLE.checked(value, place), self.noun, separator or self.separator
        )

    def only(self, valid: Collection[str]) -> None:
        """Reject unknown keys."""
        for key in self.values:
            if key not in valid:
                dotted = "; a name with a dot needs quotes" if self.noun == "key" else ""
                raise ConfigError(
                    f"{self}: unknown {self.noun} {shown(key, 80)}{suggest(key, valid)}",
                    why=f"an ignored {self.noun} would have no effect, unnoticed",
                    remedy=f"use one of {listing(valid)}{dotted}",
                )

    def read(
        self,
        needed: Mapping[str, Rule[Any]],
        possible: Mapping[str, Rule[Any]],
        others: Collection[str] = (),
    ) -> dict[str, Any]:
        """The values of declared keys, as arguments of a dataclass; rejects all keys but `others`.

        A key that is absent has the dataclass's default.
        """
        self.only((*needed, *possible, *others))
        given = {key: rule for key, rule in possible.items() if key in self.values}
        return {key: self.need(key, rule) for key, rule in {**needed, **given}.items()}

    def get(self, key: str, rule: Rule[T]) -> T | None:
        """A key's value, None if it is absent."""
        return self.need(key, rule) if key in self.values else None

    def need(self, key: str, rule: Rule[T]) -> T:
        """A key's value; an error if it is absent."""
        if key not in self.values:
            raise missing(self.at(key), f"{key} takes {rule.accepts}")
        return rule.checked(self.values[key], self.at(key), key)

    def choice(self, key: str, valid: Collection[str], default: str | None = None) -> str:
        """One of some words."""
        if default is not None and key not in self.values:
            return default
        return self.need(key, one_of(valid))

    def text(self, key: str, *, required: bool = False) -> str:
        """A text, empty if it is absent."""
        return self.need(key, TEXT) if required else self.get(key, ANY_TEXT) or ""

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, empty if it is absent."""
        return self.get(key, TEXTS) or ()

    def entries(self, key: str) -> list[object]:
        """The tables of a [[key]], one or more."""
        return self.need(key, Rule(full_list, f"one or more [[{key}]]"))

    def refuse(self, key: str, remedy: str) -> Never:
        """Raise for a key's value, or its absence."""
        if key not in self.values:
            raise missing(self.at(key), remedy)
        raise unusable(self.at(key), self.values[key], remedy)


def unusable(
    place: str, value: object, remedy: str, *, why: str = "", hint: str = ""
) -> ConfigError:
    """The error for a value that is not usable."""
    problem = f"{shown(_written(value))} is not usable{hint}"
    return ConfigError(f"{place}: {problem}", why=why, remedy=remedy)


def _written(value: object) -> object:
    """A value with TOML's numbers as a user writes them."""
    if isinstance(value, list):
        return [_written(item) for item in value]
    if isinstance(value, Decimal) and not value.is_snan():  # no float is a signalling NaN
        return float(value)
    return value


def missing(place: str, remedy: str) -> ConfigError:
    """The error for a key that is absent."""
    return ConfigError(f"{place}: is missing", remedy=remedy)


def one_of(words: Collection[str]) -> Rule[str]:
    """One of some words."""

    def read(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError(suggest(value, words))

    return Rule(read, f"one of {listing(words)}")


def whole(least: int, most: int) -> Rule[int]:
    """A whole number; bounded, before a system call overflows on it."""

    def read(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise ValueError

    return Rule(read, f"a whole number from {least} to {most}", is_whole=True)


def number(
    accepts: str = "a finite number", *, usable: Callable[[float], bool] = math.isfinite
) -> Rule[float]:
    """A number of some kind; text, booleans and integers beyond a float are none."""

    def read(value: object) -> float:
        if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
            raise ValueError
        try:
            amount = float(value)
        except OverflowError:
            raise ValueError from None
        if not math.isfinite(amount) or not usable(amount):
            raise ValueError
        return amount

    return Rule(read, accepts)


def matching(pattern: re.Pattern[str]) -> Callable[[object], str]:
    """A reader of text that a pattern matches whole."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError
        return value

    return read


def list_of(rule: Rule[T], accepts: str) -> Rule[tuple[T, ...]]:
    """A list whose values all follow one rule."""

    def read(value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise ValueError
        return tuple(map(rule.read, value))

    return Rule(read, accepts)


def _text(value: object, *, least: int = 1) -> str:
    if not isinstance(value, str) or not least <= len(value) <= LONGEST:
        raise ValueError
    return value


def _pair(value: object) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError
    low, high = map(NUMBER.read, value)
    if low > high:
        raise ValueError
    return low, high


def _of_type(kind: type[T]) -> Callable[[object], T]:
    def read(value: object) -> T:
        if not isinstance(value, kind):
            raise ValueError
        return value

    return read


def full_list(value: object) -> list[object]:
    """The items of a list that is not empty."""
    if not isinstance(value, list) or not value:
        raise ValueError
    return value


TABLE: Final[Rule[dict[str, Any]]] = Rule(_of_type(dict), "a table, such as { name = value }")
BOOLEAN: Final = Rule(_of_type(bool), "true or false")
TEXT: Final = Rule(_text, f"text of 1 to {LONGEST} characters")
ANY_TEXT: Final = Rule(partial(_text, least=0), f"text of at most {LONGEST} characters")
TEXTS: Final = list_of(Rule(_of_type(str), "text"), "a list of texts")
ID: Final = Rule(
    matching(re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")),
    "1 to 64 of A-Z a-z 0-9 . _ + - and begins with a letter or digit",
    "a number is named source-id/table-id/row/column",
)
NUMBER: Final = number()
PAIR: Final = Rule(_pair, "[low, high] with low <= high")
