"""Choose the prompts that speculation is measured on, from the held-out text.

Most greedy continuations of so small a model run into loops, which every draft predicts: only
prompts that the shipped target continues without one are taken, spread over the text.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Final

from pytest_asperf.host import EngineBuild, Worker
from pytest_asperf.measure.files import ModelShelf
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.shipped import shipped_corpus, shipped_models
from pytest_asperf.spec import ModelRef

_CHARACTERS: Final = 480
_NEW: Final = 128
_PER_CATEGORY: Final = 4
_DISTINCT: Final = 0.8  # of the continuation's 8-grams; scripts/train/acceptance.py has the same
_EOS: Final = 1
_ARITHMETIC: Final = re.compile(r"\d|[-+*/%<>]=?|\*\*|//|\b(?:int|abs|log|bit|digits|pow|divmod)\b")


def windows(text: str) -> list[tuple[str, str]]:
    """Return category and text of pieces that begin and end with a line."""
    found = []
    starts = [match.end() for match in re.finditer(r"\n\n+", text)]
    for start in starts:
        piece = text[start : start + _CHARACTERS].rpartition("\n")[0] + "\n"
        if len(piece) > _CHARACTERS // 2:
            found.append((category(text, start, piece), piece))
    return found


def category(text: str, start: int, piece: str) -> str:
    """Tell prose, arithmetic and other code apart."""
    inside = text.count('"""', 0, start) % 2
    prose = 0
    for line in piece.splitlines():
        prose += bool(inside or line.lstrip().startswith("#")) * len(line)
        inside ^= line.count('"""') % 2
    if prose > 0.8 * len(piece):
        return "text"
    code = re.sub(r"#.*|\"[^\"\n]*\"|'[^'\n]*'", "", piece)
    return "math" if len(_ARITHMETIC.findall(code)) > 0.08 * len(code) and not prose else "code"


def loops(ids: list[int]) -> bool:
    """Whether a continuation repeats itself."""
    grams = [tuple(ids[i : i + 8]) for i in range(len(ids) - 7)]
    return len(set(grams)) < _DISTINCT * len(grams)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    (spec,) = (s for s in shipped_models() if s.name == "asperf-target")
    build = EngineBuild("llama_cpp", Path(sys.executable))
    shelf = ModelShelf(build, cache=cache_root(os.environ), call_timeout_s=600)
    by_category: dict[str, list[str]] = {"code": [], "math": [], "text": []}
    for name, piece in windows(shipped_corpus().read_text("utf-8")):
        by_category[name].append(piece)
    chosen: dict[str, list[str]] = {}
    with Worker(build) as worker:
        worker.load("model", shelf.locate(ModelRef(spec, "F16")).path, spec.settings)
        worker.call(
            "pair_open", pair="p", target="model", draft="ngram", n_ctx=1024, k=1, rollback="auto"
        )
        for name, pieces in by_category.items():
            usable = []
            for piece in pieces:
                prompt = worker.tokenize("model", piece)
                ids = worker.call(
                    "pair_generate", pair="p", prompt=prompt, n_new=_NEW, k=0,
                    temperature=0.0, seed=0, rule="exact",
                )["tokens"]  # fmt: skip
                if not loops(ids) and _EOS not in ids:
                    usable.append(piece)
            step = max(1, len(usable) // _PER_CATEGORY)
            chosen[name] = usable[::step][:_PER_CATEGORY]
            print(f"{name}: {len(usable)} usable of {len(pieces)}")
    args.out.write_text(json.dumps(chosen, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
