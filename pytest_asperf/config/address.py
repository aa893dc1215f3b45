"""Specs, parsed once at the user's input: models, `@slot` slots, machines and servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pytest_asperf.config.engines import level_engines
from pytest_asperf.config.table import Rule
from pytest_asperf.errors import Advice, ConfigError, SlotError, listing, shown, suggest

_ROLE: Final = "@"


@dataclass(frozen=True, slots=True)
class Address:
    """A model as a user names it.

    `name`, `name:QUANT`, a path with or without `:QUANT`, `name+layers=8` for a padded model, or
    `@slot` for the model that the user gives for that model slot.
    """

    name: str  #: the model's name or path; for a slot with its sign
    level: str | None = None  #: its quantization as written; None for the model's own file

    @classmethod
    def of(cls, written: str | Address) -> Address:
        """Parse a model spec.

        A path may contain colons of its own (a drive, a blob named by its hash). So a quantization
        is split off a path only after `.gguf`, or if it is one.
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
    def slot(self) -> str:
        """The model slot that it names; empty for none."""
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
    """The paths among model specs; an invalid path is rejected when it is used."""
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
class ModelSlot:
    """A model slot: its conditions, and the model in it."""

    asks_for: str
    shipped: str = ""  #: the model that has it where the user names none at all; empty for none
    instead: str = ""  #: the slot whose model is used if the user names none for this one


SLOTS: Final[dict[str, ModelSlot]] = {
    "target": ModelSlot("the model to measure", "asperf-target:F16"),
    "draft": ModelSlot("a faster model of the target's vocabulary", "asperf-draft:F16"),
    "other_draft": ModelSlot("a slower and better draft for the target", "asperf-target:Q4_0"),
    "small": ModelSlot("the smallest of three models at one quantization", "asperf-draft:F16"),
    "medium": ModelSlot("the middle one of three models at one quantization", "asperf-target:F16"),
    "large": ModelSlot(
        "the largest of three models at one quantization", "asperf-target+layers=64:F16", "target"
    ),
    "moe": ModelSlot("a mixture of experts", "asperf-target+experts=4:F16"),
    "qat": ModelSlot("a model tuned under its quantization (QAT)", "asperf-target-qat:4bit"),
    "ptq": ModelSlot("the same model quantized afterwards (PTQ)", "asperf-target:F16"),
    "mlx_alone": ModelSlot("prefill and decoding by MLX"),
    "coreml_hybrid": ModelSlot("prefill by CoreML, decoding by MLX"),
    "ane_lm": ModelSlot("all on the ANE, token by token"),
    "ane_hybrid": ModelSlot("prefill on the ANE, decoding by MLX"),
    "ane_batch": ModelSlot("prefill on the ANE in batches, decoding by MLX"),
}


def model_of(name: str, named: Mapping[str, Address], *, where: str) -> Address:
    """The spec of the model in a slot, such as `target`.

    The shipped models fill the slots only if the user named none: a shipped draft for a user's
    target would have another vocabulary.
    """
    if name not in SLOTS:
        raise ConfigError(
            f"{where}: unknown model slot {shown(name, 80)}{suggest(name, SLOTS)}",
            remedy=f"use one of {listing(SLOTS)}",
        )
    for filled in (name, SLOTS[name].instead):
        if filled in named:
            return named[filled]
    shipped = SLOTS[name].shipped
    if named or not shipped:
        raise SlotError(
            str(Advice(f"no model is the {name} ({SLOTS[name].asks_for})", slots=f"{name}=MODEL")),
            why=f"the other slots have your own models, and the shipped {name} is not of their kind"
            if shipped
            else "no pipeline of several programs is shipped (docs/pipelines.md)",
            remedy=Advice("name it, or set it in [tool.asperf.slots]", slots=f"{name}=MODEL"),
        )
    return Address.of(shipped)


def is_url(text: str) -> bool:
    """True if a text is meant as the URL of a server."""
    return text.lower().startswith(("http://", "https://"))


def _url(value: object) -> str:
    """Read the URL of a server; its key does not belong into it."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError
    parts = urlsplit(value)
    if parts.username or parts.password or parts.query:
        # A message may be published, and shows nothing of it.
        raise ConfigError(
            "the URL of a server has a user, a password or a query",
            why="it would be printed and stored with each result",
            remedy=Advice("write the URL alone; a key is read from a variable", "api_key_variable"),
        )
    if not is_url(value) or not parts.hostname or parts.port == 0 or parts.fragment:
        raise ValueError
    return value.rstrip("/")


#: The accepted forms of a key or option that names a server.
URL_RULE: Final = Rule(_url, "the URL of a server, such as http://127.0.0.1:8080")


#: A host's name or address, and its port. A leading dash would be an option of ssh.
_HOST: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9a-fA-F:.]{2,45}\]"
_REMOTE: Final = re.compile(rf"(?P<public>public:)?(?P<host>{_HOST}):(?P<port>\d{{1,5}})")
_SSH: Final = re.compile(r"ssh:[A-Za-z0-9][A-Za-z0-9._@-]{0,252}")
#: Endings of names that no public server resolves.
_PRIVATE_NAMES: Final = (".local", ".lan", ".internal", ".home.arpa")


def _remote(value: object) -> str:
    """An RPC server's address, checked to be private."""
    if not isinstance(value, str):
        raise ValueError
    if value == "loopback" or _SSH.fullmatch(value):
        return value
    match = _REMOTE.fullmatch(value)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise ValueError
    if not (match["public"] or _is_private(match["host"].strip("[]"))):
        raise ValueError(f": {match['host']} may be a public address")
    return value


def _is_private(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or host.lower().endswith(_PRIVATE_NAMES)
    return address.is_private or address.is_loopback or address.is_link_local


#: The accepted forms of the engine setting `remote`.
REMOTE_ADDRESS: Final = Rule(
    _remote,
    "host:port of an RPC server at a private address, loopback or ssh:HOST to start one, or "
    "public:HOST:PORT for a server that anybody may reach: RPC has no encryption and no password",
)
