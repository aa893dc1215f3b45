"""The JSON Schema of a report and the tables of docs/json.md, both made of the records' types.

Keys and types are those of the fields; their meanings are in the docstrings.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Union, cast, get_args, get_origin

from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.records.codec import declared_types
from pytest_asperf.records.kinds import AnyRecord
from pytest_asperf.records.report import AROUND, SCHEMA, GateFacts, Meta, NightlyFacts
from pytest_asperf.report.json_report import WORDS, Assertion
from pytest_asperf.report.measurements import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A JSON Schema, or a part of one.
Schema = dict[str, object]
_PLAIN: Final = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    types.NoneType: "null",
}
_WORDS: Final = {**_PLAIN, str: "text"}
_UNIONS: Final = (Union, types.UnionType)
_ATTRIBUTE: Final = re.compile(r"^ {4}((?:\w+, )*\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
#: A field's comment: the lines above it, or the end of its line.
_FIELD: Final = re.compile(r"^((?: {4}#: .*\n)*) {4}(\w+): .*?(?:  #: (.*))?$", re.MULTILINE)


def schema() -> Schema:
    """The JSON Schema of a report."""
    around = {key: {"type": "string"} for key in (*AROUND, *WORDS)}
    row = {"properties": around, "required": [*around, "kind"], "anyOf": _refs(AnyRecord)}
    parts: Schema = {
        "schema": {"const": SCHEMA},
        "meta": {"$ref": "#/$defs/Meta"},
        "headline": {"type": "array", "items": {"type": "string"}},
        "gate": {"$ref": "#/$defs/GateFacts"},
        "nightly": {"$ref": "#/$defs/NightlyFacts"},
        "assertions": {"type": "array", "items": {"$ref": "#/$defs/Assertion"}},
        "measurements": {"type": "array", "items": {"$ref": "#/$defs/Entry"}},
        "rows": {"type": "array", "items": row},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A JSON report of pytest-asperf, schema {SCHEMA}",
        "description": f"Keys may be added while `schema` is {SCHEMA}; none is renamed or removed.",
        "type": "object",
        "properties": parts,
        "required": [key for key in parts if key not in {"gate", "nightly"}],
        "$defs": {kind.__name__: _definition(kind) for kind in kinds()},
    }


def schema_text() -> str:
    """The schema as the package has it: a line for each type of object."""
    whole = schema()
    definitions = cast("Schema", whole.pop("$defs"))
    lines = (f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in definitions.items())
    head = json.dumps(whole, indent=1).removesuffix("\n}")
    return f'{head},\n "$defs": {{\n' + ",\n".join(lines) + "\n }\n}\n"


def kinds() -> list[type]:
    """Every type of object in a report, each after those that have it."""
    found: dict[type, None] = {}
    waiting = [Meta, GateFacts, NightlyFacts, Assertion, Entry, *get_args(AnyRecord)]
    while waiting:
        kind = waiting.pop(0)
        found[kind] = None
        inner = (each for declared in declared_types(kind).values() for each in _classes(declared))
        waiting += [each for each in dict.fromkeys(inner) if each not in found]
    return list(found)


def _classes(declared: Any) -> Iterator[type]:
    if is_dataclass(declared):
        yield declared if isinstance(declared, type) else type(declared)
    for part in get_args(declared):
        yield from _classes(part)


def _definition(kind: type) -> Schema:
    properties = {name: _typed(declared) for name, declared in declared_types(kind).items()}
    if kind is Estimate:
        properties |= {bound: {"type": ["number", "null"]} for bound in ("low", "high")}
    if name := getattr(kind, "kind", ""):
        properties = {"kind": {"const": name}, **properties}
    needed = {each.name for each in fields(kind) if _is_needed(each)} | (
        {"kind"} if name else set()
    )
    required = [key for key in properties if key in needed]
    return {"type": "object", "properties": properties, "required": required}


def _is_needed(each: Any) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _refs(declared: Any) -> list[Schema]:
    return [{"$ref": f"#/$defs/{each.__name__}"} for each in _classes(declared)]


def _typed(declared: Any) -> Schema:
    origin, parts = get_origin(declared), get_args(declared)
    if is_dataclass(declared):
        return _refs(declared)[0]
    if origin in _UNIONS:
        return {"anyOf": [_typed(part) for part in parts]}
    if origin is tuple:
        return _array(parts)
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _typed(parts[1])}
    if origin is Literal:
        return {"enum": list(parts)}
    return {} if declared is object else {"type": _PLAIN.get(declared, "string")}


def _array(parts: tuple[Any, ...]) -> Schema:
    if parts[-1] is Ellipsis:
        return {"type": "array", "items": _typed(parts[0])}
    length = {"minItems": len(parts), "maxItems": len(parts)}
    return {"type": "array", "prefixItems": [_typed(part) for part in parts], **length}


def tables() -> str:
    """The part of docs/json.md that has every key, by the type of object."""
    return "\n".join(line for kind in kinds() for line in _table(kind))


def _table(kind: type) -> Iterator[str]:
    text = inspect.getdoc(kind) or ""
    said = dict(_meanings(kind))
    name = getattr(kind, "kind", "")
    yield f"### {kind.__name__}\n"
    yield f"{' '.join(text.partition('Attributes:')[0].split())}\n"
    yield "| key | type | meaning |"
    yield "|---|---|---|"
    if name:
        yield f"| `kind` | text | `{name}` |"
    for key, declared in declared_types(kind).items():
        yield f"| `{key}` | {_words(declared)} | {said.get(key, '')} |"
    yield ""


def _meanings(kind: type) -> Iterator[tuple[str, str]]:
    """Meaning by key, of the class and of those that it is made of."""
    for each in filter(is_dataclass, reversed(kind.__mro__)):
        listed = inspect.cleandoc(each.__doc__ or "").partition("Attributes:")[2]
        found = _ATTRIBUTE.findall(listed.partition("\n\n")[0])
        commented = _FIELD.findall(inspect.getsource(each))
        found += [(name, above.replace("#:", "") or after) for above, name, after in commented]
        for names, meaning in found:
            text = " ".join(meaning.split()).removesuffix(".").replace("None", "`null`")
            yield from ((name, text) for name in names.split(", ") if text)


def _words(declared: Any) -> str:
    """A type in words."""
    origin, parts = get_origin(declared), get_args(declared)
    if is_dataclass(declared):
        name = next(_classes(declared)).__name__
        return f"[{name}](#{name.lower()})"
    if origin in _UNIONS:
        return " or ".join(map(_words, parts))
    if origin is tuple:
        return f"list of {' and '.join(_words(part) for part in parts if part is not Ellipsis)}"
    if origin is Mapping:
        return f"object of {_words(parts[1])}"
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    return "any" if declared is object else _WORDS.get(declared, "text")
