"""Choose the prompts that speculation is measured on, from the held-out text.

Most greedy continuations of so small a model run into loops, which every draft predicts: only
prompts that the shipped target continues without one are used, spread over the text. Six of a
category give its acceptance an interval. Four of the shipped ones were chosen first, and two were
added by the same tests. The findings compare categories with each other: theirs are of
`--per-category 12 --every 10`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pytest_asperf.config.spec import ModelRef
from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.hub_cache import shipped_corpus, shipped_models
from pytest_asperf.modelfiles.locate import ModelLocator

_CHARACTERS: Final = 480
_NEW: Final = 128
_DISTINCT: Final = 0.8  # of the continuation's 8-grams; scripts/train/acceptance.py has the same
_EOS: Final = 1
_ARITHMETIC: Final = re.compile(r"\d|[-+*/%<>]=?|\*\*|//|\b(?:int|abs|log|bit|digits|pow|divmod)\b")


def windows(text: str) -> list[tuple[int, str]]:
    """Return start and text of pieces that begin and end with a line."""
    found = []
    for start in (match.end() for match in re.finditer(r"\n\n+", text)):
        piece = text[start : start + _CHARACTERS].rpartition("\n")[0] + "\n"
        if len(piece) > _CHARACTERS // 2:
            found.append((start, piece))
    return found


def is_prose(text: str, start: int, piece: str) -> bool:
    """True if a piece is documentation or comment, nearly all of it."""
    inside = text.count('"""', 0, start) % 2
    prose = 0
    for line in piece.splitlines():
        prose += bool(inside or line.lstrip().startswith("#")) * len(line)
        inside ^= line.count('"""') % 2
    return prose > 0.8 * len(piece)


def arithmetic(piece: str) -> float:
    """Return how much of a piece is numbers and arithmetic, outside of strings and comments."""
    code = re.sub(r"#.*|\"[^\"\n]*\"|'[^'\n]*'", "", piece)
    return len(_ARITHMETIC.findall(code)) / max(1, len(piece))


def spread(pieces: list[tuple[int, str]], n: int) -> list[str]:
    """Return n pieces from all over the text."""
    step = max(1, len(pieces) // n)
    return [piece for _, piece in sorted(pieces)[::step]][:n]


def apart(pieces: list[tuple[int, str]], n: int) -> list[tuple[int, str]]:
    """Return the first n pieces that do not overlap one before them."""
    kept: list[tuple[int, str]] = []
    for start, piece in pieces:
        if all(abs(start - other) > 2 * _CHARACTERS for other, _ in kept):
            kept.append((start, piece))
    return kept[:n]


def loops(ids: list[int]) -> bool:
    """True if a continuation repeats itself."""
    grams = [tuple(ids[i : i + 8]) for i in range(len(ids) - 7)]
    return len(set(grams)) < _DISTINCT * len(grams)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--per-category", type=int, default=6)
    parser.add_argument(
        "--every", type=int, default=3, help="of the pieces, one in so many is tried"
    )
    args = parser.parse_args()
    (spec,) = (s for s in shipped_models() if s.name == "asperf-target")
    build = EngineBuild("llama_cpp", Path(sys.executable))
    locator = ModelLocator(build, cache=cache_root(os.environ), call_timeout_s=600)
    text = shipped_corpus().read_text("utf-8")
    usable: list[tuple[int, str]] = []
    with Worker(build) as worker:
        # So small a model is no faster on more threads.
        settings = replace(spec.settings, threads=1)
        worker.load("model", locator.locate(ModelRef(spec, "F16")).path, settings)
        pair: dict[str, Any] = {
            "target": "model",
            "draft": "ngram",
            "n_ctx": 1024,
            "k": 1,
            "rollback": "auto",
        }
        worker.call("pair_open", pair="pair", **pair)
        asked: dict[str, Any] = {
            "n_new": _NEW,
            "k": 0,
            "temperature": 0.0,
            "seed": 0,
            "rule": "exact",
        }
        pieces = windows(text)[:: args.every]
        for start, piece in pieces:
            prompt = worker.tokenize("model", piece)
            ids = worker.call("pair_generate", pair="pair", prompt=prompt, **asked)["tokens"]
            if not loops(ids) and _EOS not in ids:
                usable.append((start, piece))
    prose = [one for one in usable if is_prose(text, *one)]
    code = [one for one in usable if one not in prose]
    mathematics = apart(sorted(code, key=lambda one: -arithmetic(one[1])), args.per_category)
    rest = [one for one in code if one not in mathematics]
    chosen = {
        "code": spread(rest, args.per_category),
        "math": [piece for _, piece in sorted(mathematics)],
        "text": spread(prose, args.per_category),
    }
    print(f"{len(usable)} usable of {len(pieces)} (the others loop or end), {len(prose)} of prose")
    args.out.write_text(json.dumps(chosen, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
