"""A program: two models through mlx-lm's own speculation, with a prompt cache that is kept.

Each line it reads is a request in JSON, each line it prints the answer.
"""

import json
import sys
from typing import Any

from mlx_lm import load, stream_generate
from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache


def main(target_folder: str, draft_folder: str) -> None:
    """Answer until there is nothing more to read."""
    (target, tokenizer), (draft, _) = load(target_folder), load(draft_folder)
    cache: list[Any] = []
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["forget"] is None:
            cache = [*make_prompt_cache(target), *make_prompt_cache(draft)]
        else:
            trim_prompt_cache(cache, asked["forget"])
        steps = stream_generate(
            target,
            tokenizer,
            asked["prompt"],
            max_tokens=asked["n_new"],
            draft_model=draft,
            num_draft_tokens=asked["k"],
            prompt_cache=cache,
        )
        tokens = [[int(step.token), bool(step.from_draft)] for step in steps]
        print(json.dumps({"tokens": tokens, "held": int(cache[0].offset)}), flush=True)  # noqa: T201  # the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
