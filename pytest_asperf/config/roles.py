"""Roles: `@target` is whatever model the user gives for the role `target`.

A sign that no model's name can have keeps the two apart: a model that is called `target` is not the
role, and the role is no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.address import Address
from pytest_asperf.errors import Advice, ConfigError, RoleError, listing, shown, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Role:
    """A role: the model that it asks for, and the model that has it.

    Attributes:
        shipped: the model that has it where the user names none at all; empty for none.
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
    "qat": Role("a model tuned under its quantization (QAT)", "asperf-target-qat:4bit"),
    "ptq": Role("the same model quantized afterwards (PTQ)", "asperf-target:F16"),
    "mlx_alone": Role("prefill and decoding by MLX"),
    "coreml_hybrid": Role("prefill by CoreML, decoding by MLX"),
    "ane_lm": Role("all on the ANE, token by token"),
    "ane_hybrid": Role("prefill on the ANE, decoding by MLX"),
    "ane_batch": Role("prefill on the ANE in batches, decoding by MLX"),
}


def model_of(name: str, named: Mapping[str, Address], *, where: str) -> Address:
    """The address of the model that has a role, such as `target`.

    The shipped models have the roles only if the user named none: a shipped draft beside a user's
    target would be of another vocabulary.

    Raises:
        RoleError: no model has it.
        ConfigError: there is no such role.
    """
    if name not in ROLES:
        raise ConfigError(
            f"{where}: unknown role {shown(name, 80)}{suggest(name, ROLES)}",
            remedy=f"use one of {listing(ROLES)}",
        )
    for filled in (name, ROLES[name].instead):
        if filled in named:
            return named[filled]
    shipped = ROLES[name].shipped
    if named or not shipped:
        raise RoleError(
            str(
                Advice(f"no model is the {name} ({ROLES[name].asks_for})", roles=f"{name}=ADDRESS")
            ),
            why=f"the other roles are your own models, and the shipped {name} is not of their kind"
            if shipped
            else "no pipeline of several programs is shipped (docs/pipelines.md)",
            remedy=Advice("name it, or set it in [tool.asperf.roles]", roles=f"{name}=ADDRESS"),
        )
    return Address.of(shipped)
