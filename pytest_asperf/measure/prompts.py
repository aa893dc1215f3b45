"""Prompts by category: the shipped ones, or a user's own from a JSON file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.text_file import UnreadableTextError, read_bytes
from pytest_asperf.errors import ModelError, printable
from pytest_asperf.modelfiles.shipped import shipped_prompts

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_asperf.engine_process import Worker

_LEAST_TOKENS: Final = 2

Prompts = tuple[tuple[str, tuple[int, ...]], ...]


def read_prompts(path: Path | None) -> tuple[tuple[str, str], ...]:
    """Category and text of each prompt of a JSON table; None is the shipped prompts."""
    file = path or shipped_prompts()
    try:
        table = json.loads(read_bytes(file))
    except UnreadableTextError as error:
        raise _unusable(file, f"it {error}") from error
    except (ValueError, RecursionError) as error:
        raise _unusable(file, "it is not JSON in UTF-8") from error
    if not isinstance(table, dict) or not table:
        raise _unusable(file, "it is not a JSON table of categories")
    found = []
    for category, texts in table.items():
        if not isinstance(texts, list) or not texts:
            raise _unusable(file, f"{printable(category, 80)!r} has no list of texts")
        if not all(isinstance(text, str) and text for text in texts):
            raise _unusable(file, f"{printable(category, 80)!r} has a prompt that is no text")
        found += [(printable(category, 80), text) for text in texts]
    return tuple(found)


def tokenized(
    worker: Worker, name: str, prompts: tuple[tuple[str, str], ...], *, at_most: int
) -> Prompts:
    """Category and tokens of each prompt, which has at least two tokens and `at_most` so many."""
    found = []
    for category, text in prompts:
        tokens = tuple(worker.tokenize(name, text))
        if not _LEAST_TOKENS <= len(tokens) <= at_most:
            raise ModelError(
                f"the prompt {printable(text, 40)!r} has {len(tokens)} tokens, not "
                f"{_LEAST_TOKENS} to {at_most}",
                why="a prompt and what is generated after it must fit into the model's context",
                remedy="shorten it, or generate fewer tokens with n_tokens",
            )
        found.append((category, tokens))
    return tuple(found)


def _unusable(path: Path, problem: str) -> ModelError:
    return ModelError(
        f"{path}: {problem}",
        why="acceptance depends on what is generated",
        remedy='write {"code": ["def area(", ...], "text": [...]}, a list of prompts per category',
    )
