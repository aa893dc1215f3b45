"""Addresses of servers: of machines that compute for this one over llama.cpp's RPC, and URLs."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from pytest_asperf.config.table import Rule
from pytest_asperf.errors import Advice, ConfigError


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
            "the URL of a server holds a user, a password or a query",
            why="it would be printed and stored with each result",
            remedy=Advice("write the URL alone; a key is read from a variable", "api_key_variable"),
        )
    if not is_url(value) or not parts.hostname or parts.port == 0 or parts.fragment:
        raise ValueError
    return value.rstrip("/")


#: What a key or option accepts that names a server.
URL_RULE: Final = Rule(_url, "the URL of a server, such as http://127.0.0.1:8080")


#: A host's name or address, and its port. What begins with a dash would be an option of ssh's.
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


#: What an engine setting `remote` accepts.
REMOTE_ADDRESS: Final = Rule(
    _remote,
    "host:port of an RPC server at a private address, loopback or ssh:HOST to start one, or "
    "public:HOST:PORT for a server that anybody may reach: RPC has no encryption and no password",
)
