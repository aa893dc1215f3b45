"""Bounded reading of commands and system files: what is absent, slow or unreadable is None."""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LIMIT_BYTES = 1 << 20


def run(args: Sequence[str], *, timeout_s: float = 5.0) -> str | None:
    """The output of a command, at most 1 MiB; None if it cannot be run or is too slow.

    The exit status is left to the parser of the text: ``sysctl`` fails when one of many keys is
    unknown and prints the others, ``nvidia-smi`` prints its refusal instead of the values.
    """
    with tempfile.TemporaryFile() as output:
        try:
            subprocess.run(
                args,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=timeout_s,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        output.seek(0)
        return output.read(_LIMIT_BYTES).decode("utf-8", "replace")


def read(path: Path) -> str | None:
    """A system file's text without surrounding blanks, at most 1 MiB; None if unreadable."""
    try:
        with path.open("rb") as stream:
            return stream.read(_LIMIT_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None


def whole_number(text: str | None) -> int | None:
    """A non-negative decimal integer of at most 20 digits, or None for anything else."""
    stripped = (text or "").strip()
    plain = stripped.isascii() and stripped.isdigit() and len(stripped) <= 20
    return int(stripped) if plain else None
