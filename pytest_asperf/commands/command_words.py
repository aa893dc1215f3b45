"""What a command calls the settings that an advice names.

Advice is written once, with pytest's options (`--asperf-seed=1`). A command prints its own option
of that setting (`--seed=1`), or the key of the configuration file where it has no such option.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperCommand

from pytest_asperf.config.settings import OPTIONS
from pytest_asperf.errors import AsperfError

if TYPE_CHECKING:
    from collections.abc import Collection

#: A whole command of pytest's, in which its own options are meant, or one option.
_OPTION: Final = re.compile(
    r"\bpytest (?=-|\S+\.py)[^;,]+|(?<![\w-])(?P<option>--asperf-[a-z-]+)(=(?P<value>[\w%]+))?"
)
#: The options of the command that runs; pytest's where none does.
_RUNNING: ContextVar[Collection[str] | None] = ContextVar("running", default=None)


class Command(TyperCommand):
    """A command in whose output settings are called as it calls them."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        running = _RUNNING.set({option for param in self.params for option in param.opts})
        try:
            return super().invoke(ctx)
        except AsperfError as error:
            error.reword(in_own_words)
            raise
        finally:
            _RUNNING.reset(running)


def in_own_words(text: str) -> str:
    """A text in which each setting is named as in the running command."""
    options = _RUNNING.get()
    return text if options is None else reworded(text, options)


def reworded(text: str, options: Collection[str]) -> str:
    """A text in which pytest's options are replaced by those of a command."""

    def call(match: re.Match[str]) -> str:
        if match["option"] not in OPTIONS:  # or none: a command
            return match[0]
        key, value = OPTIONS[match["option"]], match["value"]
        own = f"--{key.removeprefix('default_').replace('_', '-')}"
        if own in options:
            return own if value is None else f"{own}={value}"
        return f"{key if value is None else _assignment(key, value)} in [tool.asperf]"

    return _OPTION.sub(call, text)


def _assignment(key: str, value: str) -> str:
    # Single quotes are TOML too, and need no escape where the text stands in JSON.
    return f"{key} = {value}" if value.isdecimal() else f"{key} = '{value}'"
