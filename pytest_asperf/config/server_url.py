"""The URL of a server that a setting or a build names."""

from __future__ import annotations

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
