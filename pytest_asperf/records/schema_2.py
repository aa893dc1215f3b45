"""JSON reports of schema 2 in today's form: some keys have other names since.

Schema 2 is no longer written. `schema_1` makes rows of schema 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: The texts of a verdict.
WORDS: Final = ("threshold", "bound", "measured", "brief", "why", "rests_on")
#: Today's key for each of schema 2.
_KEYS: Final = {
    "address": "spec",
    "level": "quant",
    "foreign_cores": "other_cores",
    "sides": "variants",
    "side": "direction",
    "floor": "fails_above",
    "night": "nightly",
    "cells": "checks",
    "what": "check",
    "said": "answer",
}
_HEAD: Final = ("meta", "headline", "gate", "night")
#: Objects with keys that an engine, a plugin or a user named.
_NAMED_BY_OTHERS: Final = {
    *("described", "loaded", "context", "contexts", "requested", "settings", "about", "facts"),
    *("acceptance_by_category", "mean_length_by_category", "verify", "time_split", "rollback"),
    *("unmeasured", "rails", "machines"),
}


def head(document: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a document that are not tables, with today's keys."""
    made = upgraded({key: document[key] for key in _HEAD if key in document})
    match made:
        case {"nightly": {"facts": {"anchor": baseline} as facts}}:
            facts = {**facts, "fixed baseline": baseline}
            made["nightly"]["facts"] = facts
    return made


def upgraded(data: Mapping[str, Any]) -> dict[str, Any]:
    """A row with today's keys."""
    return {
        _KEYS.get(key, key): value if key in _NAMED_BY_OTHERS else _upgraded(value)
        for key, value in data.items()
    }


def _upgraded(value: Any) -> Any:
    if isinstance(value, list):
        return [_upgraded(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = upgraded(value)
    return made | {"kind": "variants"} if made.get("kind") == "sides" else made


def worded(row: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict or a failure of a time when its result and advice were texts."""
    advice = row.get("advice", "")
    words = {key: row[key] for key in WORDS if row.get(key) is not None}
    result = {"kind": "words", **words} if row["kind"] == "verdict" else None
    return {**row, "advice": [{"text": advice, "settings": []}] * bool(advice), "result": result}
