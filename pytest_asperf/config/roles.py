"""Roles: `@target` is whatever model the user gives for the role `target`.

A sign that no model's name can have keeps the two apart: a model that is called `target` is not the
role, and the role is no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.errors import ConfigError, RoleError, listing, shown, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIGN: Final = "@"


@dataclass(frozen=True, slots=True)
class Role:
    """What a role asks for, and who has it.

    Attributes:
        shipped: the model that has it where the user names none at all; empty where there is none.
        instead: the role whose model has it where the user names no model for this one.
    """

    asks_for: str
    shipped: str = ""
    instead: str = ""


ROLES: Final[dict[str, Role]] = {
    "target": Role("the model to measure", "asperf-target:F16"),
    "draft": Role("a faster model of the target's vocabulary", "asperf-draft:F16"),
    "other_draft": Role("a slower and better draft for the target", "asperf-target:Q4_0"),
    "small": Role("the smallest of three models at one level", "asperf-draft:F16"),
    "medium": Role("the middle one of three models at one level", "asperf-target:F16"),
    "large": Role(
        "the largest of three models at one level", "asperf-target+layers=64:F16", "target"
    ),
    "moe": Role("a mixture of experts", "asperf-target+experts=4:F16"),
    "qat": Role("a model tuned under its quantisation (QAT)", "asperf-target-qat:4bit"),
    "ptq": Role("the same model quantised afterwards (PTQ)", "asperf-target:F16"),
    "ane_lm": Role("the target on the Neural Engine, by ANE-LM"),
    "coreml_hybrid": Role("the target with prefill by Core ML and decoding by MLX"),
}


def is_role(address: str) -> bool:
    """Whether an address names a role, with or without a level."""
    return address.startswith(_SIGN)


def model_of(role: str, named: Mapping[str, str], *, where: str) -> str:
    """The address of the model that has a role, such as `@target`.

    The shipped models have the roles only if the user named none: a shipped draft beside a user's
    target would be of another vocabulary.

    Raises:
        RoleError: no model has it.
        ConfigError: there is no such role.
    """
    name = role.removeprefix(_SIGN)
    if name not in ROLES:
        raise ConfigError(
            f"{where}: unknown role {shown(name, 80)}{suggest(name, ROLES)}",
            why="no model can have it",
            remedy=f"use one of {listing(ROLES)}",
        )
    for filled in (name, ROLES[name].instead):
        if filled in named:
            return named[filled]
    if named or not ROLES[name].shipped:
        raise RoleError(
            f"no model is the {name} ({ROLES[name].asks_for}): --asperf-role {name}=ADDRESS",
            why="no shipped model can have it beside models of your own, or at all",
            remedy=f"name it with --asperf-role {name}=ADDRESS, or in [tool.asperf.roles]",
        )
    return ROLES[name].shipped
