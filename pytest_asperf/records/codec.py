"""Typed records as plain data and back: for JSON files, xdist and the store.

Both ways follow the declared types. Decoded data may come from anybody: each value is checked
against its type, and a number that is not finite is rejected.
"""

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from typing import (
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.errors import shown

Decoded = TypeVar("Decoded")
#: JSON's types in an object.
JsonObject: TypeAlias = dict[str, Any]

#: Errors that decoding raises for data of another form, and that arithmetic on its values raises.
MALFORMED: Final = (
    *(KeyError, TypeError, ValueError, AttributeError, IndexError),
    *(ZeroDivisionError, OverflowError, RecursionError),
)
#: Evidence grows as a power of the number of pairs, and stays below this by far.
_LARGEST: Final = 1e100
_SHOWN: Final = 60
#: Unknown bounds of an estimate.
_UNKNOWN: Final = {"low": -math.inf, "high": math.inf}


def encode(value: object) -> Any:
    """Plain data of a dataclass: an object of its fields, with its `kind` if it has one."""
    if is_dataclass(value) and not isinstance(value, type):
        kind = getattr(type(value), "kind", "")
        own = {each.name: encode(getattr(value, each.name)) for each in fields(value)}
        if isinstance(value, Estimate):
            own |= {key: None for key in _UNKNOWN if not math.isfinite(own[key])}
        return {"kind": kind, **own} if kind else own
    if isinstance(value, Mapping):
        return {str(key): encode(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [encode(each) for each in value]
    return str(value) if isinstance(value, StrEnum) else value


def decode(kind: type[Decoded], data: object) -> Decoded:
    """The value of a declared type in plain data; a missing field keeps its default.

    Raises:
        KeyError: a field without a default is missing.
        TypeError: a value is of another type.
        ValueError: a value is impossible, such as a number that is not finite.
    """
    found: Decoded = _value(kind, data)
    return found


def decode_as(declared: object, data: object) -> Any:
    """The type name of a union or another alias, which is no class."""
    return _value(declared, data)


@cache
def declared_types(kind: type) -> dict[str, Any]:
    """The declared type of each field of a dataclass."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}


def _value(declared: Any, data: object) -> Any:
    return _reader(declared)(data)


@cache
def _reader(declared: Any) -> Callable[[object], Any]:
    """The function that reads data of a type: a type is examined once, and not for each value."""
    if is_dataclass(declared):
        return partial(_object, declared)
    if (generic := _GENERIC.get(get_origin(declared))) is not None:
        return partial(generic, get_args(declared))
    if declared is float:
        return number
    if isinstance(declared, type) and issubclass(declared, StrEnum):
        return lambda data: declared(_value(str, data))
    return partial(_exact, declared)


def _exact(declared: Any, data: object) -> object:
    if declared is object or type(data) is declared:
        return data
    raise TypeError(f"{shown(data, _SHOWN)} is not {_NAMES.get(declared, declared)}")


_NAMES: Final = {str: "a text", int: "a whole number", bool: "true or false", type(None): "null"}


def _object(kind: Any, data: object) -> Any:
    table = _table(data)
    if kind is Estimate:
        bounds = {name: bound for name, bound in _UNKNOWN.items() if table[name] is None}
        whole = dict.fromkeys(bounds, 0.0)
        return Estimate(**(_fields(kind, {**table, **whole}) | bounds))
    return kind(**_fields(kind, table))


def _fields(kind: type, table: Mapping[str, object]) -> dict[str, Any]:
    values = {}
    for name, read, is_optional in _readers(kind):
        if name in table:
            values[name] = read(table[name])
        elif not is_optional:
            raise KeyError(name)
    return values


@cache
def _readers(kind: type) -> tuple[tuple[str, Callable[[object], Any], bool], ...]:
    """By field: its name, the function that reads it, and True if it has a default."""
    declared = declared_types(kind)
    return tuple(
        (
            each.name,
            _reader(declared[each.name]),
            each.default is not MISSING or each.default_factory is not MISSING,
        )
        for each in fields(kind)
    )


def _one_of(parts: tuple[Any, ...], data: object) -> Any:
    if data is None and types.NoneType in parts:
        return None
    kinds = [part for part in parts if is_dataclass(part)]
    if len(kinds) > 1:
        found = _table(data)["kind"]
        for kind in kinds:
            if getattr(kind, "kind", "") == found:
                return _object(kind, data)
        raise ValueError(f"kind {shown(found, _SHOWN)} is unknown")
    rest = [part for part in parts if part is not types.NoneType]
    exact = [part for part in rest if type(data) is part]
    return _value((exact or rest)[0], data)


def _tuple(parts: tuple[Any, ...], data: object) -> tuple[Any, ...]:
    if not isinstance(data, list | tuple):
        raise TypeError(f"{shown(data, _SHOWN)} is not a list")
    if parts[-1] is Ellipsis:
        return tuple(map(_reader(parts[0]), data))
    return tuple(_value(part, each) for part, each in zip(parts, data, strict=True))


def _mapping(parts: tuple[Any, ...], data: object) -> dict[str, Any]:
    return {str(key): _value(parts[1], each) for key, each in _table(data).items()}


def _table(data: object) -> Mapping[str, object]:
    if not isinstance(data, Mapping):
        raise TypeError(f"{shown(data, _SHOWN)} is not an object")
    return data


def _known(words: tuple[object, ...], data: object) -> object:
    if data not in words:
        raise ValueError(f"{shown(data, _SHOWN)} is none of {', '.join(map(str, words))}")
    return data


def number(value: object) -> float:
    """A finite number, as a chart can draw it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
        raise ValueError(f"{shown(value, _SHOWN)} is not a number that can be drawn")
    return float(value)


_GENERIC: Final[dict[Any, Callable[[tuple[Any, ...], object], Any]]] = {
    Union: _one_of,
    types.UnionType: _one_of,
    tuple: _tuple,
    Mapping: _mapping,
    Literal: _known,
}
