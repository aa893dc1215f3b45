"""Addresses of machines that compute for this one, over llama.cpp's RPC.

RPC has neither encryption nor passwords: whoever reaches a server can read what is computed and
write to its memory. So an address must be private unless the user insists.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

from pytest_asperf.config.table import Rule

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
