"""Addresses of models, read once where a user writes them, and the paths in them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.engines import level_engines

if TYPE_CHECKING:
    from collections.abc import Iterable

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
