"""Prompts by category: the shipped ones, or a user's own from a JSON file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.table import CheckedTable, Rule, full_list, matching
from pytest_asperf.config.text_file import UnreadableTextError, read_json_table
from pytest_asperf.errors import ConfigError, ModelError, printable
from pytest_asperf.modelfiles.shipped import shipped_prompts

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_asperf.engine_process import Worker

_LEAST_TOKENS: Final = 2
_TEXT: Final = matching(re.compile(r".+", re.DOTALL))
_TEXTS: Final = Rule(
    lambda value: [_TEXT(text) for text in full_list(value)], "a list of one or more texts"
)

Prompts = tuple[tuple[str, tuple[int, ...]], ...]


def read_prompts(path: Path | None) -> tuple[tuple[str, str], ...]:
    """Category and text of each prompt of a JSON table; None is the shipped prompts."""
    file = path or shipped_prompts()
    try:
        table = CheckedTable(str(file), read_json_table(file))
        prompts = tuple(
            (printable(category, 80), text)
            for category in table.values
            for text in table.need(category, _TEXTS)
        )
    except UnreadableTextError as error:
        raise _unusable(f"{file}: it {error}") from error
    except ConfigError as error:
        raise _unusable(error.what) from error
    if not prompts:
        raise _unusable(f"{file}: it has no categories")
    return prompts


def tokenized(
    worker: Worker, name: str, prompts: tuple[tuple[str, str], ...], *, at_most: int
) -> Prompts:
    """Category and tokens of each prompt, which has at least two tokens and `at_most` so many."""
    suite = []
    for category, text in prompts:
        tokens = tuple(worker.tokenize(name, text))
        if not _LEAST_TOKENS <= len(tokens) <= at_most:
            raise ModelError(
                f"the prompt {printable(text, 40)!r} has {len(tokens)} tokens, not "
                f"{_LEAST_TOKENS} to {at_most}",
                why="a prompt and what is generated after it must fit into the model's context",
                remedy="shorten it, or generate fewer tokens with n_tokens",
            )
        suite.append((category, tokens))
    return tuple(suite)


def _unusable(what: str) -> ModelError:
    return ModelError(
        what,
        why="acceptance depends on what is generated",
        remedy='write {"code": ["def area(", ...], "text": [...]}, a list of prompts per category',
    )
