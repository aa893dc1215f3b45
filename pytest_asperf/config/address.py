"""Addresses of models, read once where a user writes them, the paths in them, and `@role`s."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.engines import level_engines
from pytest_asperf.errors import Advice, ConfigError, RoleError, listing, shown, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_ROLE: Final = "@"


@dataclass(frozen=True, slots=True)
class Address:
    """A model as a user names it.

    `name`, `name:LEVEL`, a path with or without `:LEVEL`, `name+layers=8` for a variant of a model,
    or `@role` for the model that the user gives for that role.

    Attributes:
        name: the model's name or path; of a role with its sign.
        level: its quantization level as written; None for the model's own file.
    """

    name: str
    level: str | None = None

    @classmethod
    def of(cls, written: str | Address) -> Address:
        """Read an address.

        A path may hold colons of its own (a drive, a blob named by its hash). So a level is split
        off a path only after `.gguf`, or if it is one.
        """
        if isinstance(written, Address):
            return written
        head, colon, tail = written.rpartition(":")
        if not colon:
            return cls(written)
        if is_path(written):
            after_gguf = head.lower().endswith(".gguf") and not is_path(tail)
            if not after_gguf and level_engines(tail) is None:
                return cls(written)
        return cls(head, tail)

    def __str__(self) -> str:
        return self.name if self.level is None else f"{self.name}:{self.level}"

    @property
    def role(self) -> str:
        """The role that it names; empty for none."""
        return self.name.removeprefix(_ROLE) if self.name.startswith(_ROLE) else ""

    @property
    def is_path(self) -> bool:
        """True if it is a path, and not the name of a model."""
        return is_path(self.name)

    def anchored(self, folder: Path) -> Address:
        """The same model, by an absolute path if it is a path; ValueError if it can be none."""
        return replace(self, name=str(parse_path(self.name, folder))) if self.is_path else self


def is_path(name: str) -> bool:
    """True if a text is a path and not a model's name."""
    return name.lower().endswith(".gguf") or has_separator(name)


def has_separator(text: str) -> bool:
    """True if a text is a path with folders, on any platform."""
    return "/" in text or "\\" in text


def parse_path(value: object, folder: Path) -> Path:
    """A path as written in a file or option, relative ones from `folder`; ValueError otherwise."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError
    try:
        return folder / Path(value).expanduser()
    except RuntimeError as error:  # `~nobody`
        raise ValueError from error


def paths_of(addresses: Iterable[str | Address], folder: Path) -> list[Path]:
    """The paths among addresses; what can be no path is rejected when it is used."""
    paths = []
    for address in map(Address.of, addresses):
        with suppress(ValueError):
            paths += [parse_path(address.name, folder)] if address.is_path else []
    return paths


def distinct_names(paths: Iterable[Path]) -> dict[Path, str]:
    """For each path its shortest end that no other one has."""
    every = set(paths)
    return {path: _shortest_end(path, every - {path}) for path in every}


def _shortest_end(path: Path, others: Iterable[Path]) -> str:
    for n in range(1, len(path.parts)):
        end = path.parts[-n:]
        if all(other.parts[-n:] != end for other in others):
            return "/".join(end)
    return str(path)


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
