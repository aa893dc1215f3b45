"""mlx-lm's own loops as a process of their own: a request a line on stdin, an answer on stdout.

`generate N_PROMPT N_TOKENS` runs `stream_generate` as mlx_lm.benchmark does, and answers with the
nanoseconds to the first token and of those after it. `speculate N_PROMPT N_TOKENS K` does so with
the draft, and answers with nanoseconds of the tokens after the first round, how many they are, how
many tokens of all the draft wrote, and the tokens. `ppl` runs mlx_lm.perplexity's `eval_ppl`.
Argument: a JSON file with the folders of the model and the draft, tokens of a text, and chunks.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm import load, stream_generate
from mlx_lm.perplexity import eval_ppl


def _main(plan: dict[str, Any]) -> None:
    (model, tokenizer), (draft, _) = load(plan["model"]), load(plan["draft"])
    if mx.default_device() != mx.Device(mx.gpu):
        # As this plugin's engine does: half precision is emulated on a CPU.
        model.set_dtype(mx.float32)
        draft.set_dtype(mx.float32)
    tokenizer._eos_token_ids = {}  # as mlx_lm.benchmark does, to go on to the end
    for line in sys.stdin:
        op, *numbers = line.split()
        with contextlib.redirect_stdout(sys.stderr):
            if op == "ppl":
                answer = [eval_ppl(model, mx.array(plan["chunks"]), batch_size=1)[0]]
            else:
                n_prompt, n_tokens, *drafted = map(int, numbers)
                prompt = plan["tokens"][:n_prompt]
                if op == "speculate":
                    how = {"draft_model": draft, "num_draft_tokens": drafted[0]}
                    answer = _speculate(model, tokenizer, prompt, n_tokens, how)
                else:
                    answer = _generate(model, tokenizer, prompt, n_tokens)
        print(json.dumps(answer), flush=True)


def _generate(model: Any, tokenizer: Any, prompt: list[int], n_tokens: int) -> list[float]:
    last = None
    for response in stream_generate(model, tokenizer, prompt, max_tokens=n_tokens):
        last = response
    if last is None or last.generation_tokens != n_tokens:
        raise ValueError("mlx-lm generated something else than was asked")
    # Its rate counts n tokens over the n - 1 intervals behind the first.
    after_ns = 1e9 * n_tokens / last.generation_tps
    return [1e9 * last.prompt_tokens / last.prompt_tps, after_ns]


def _speculate(
    model: Any, tokenizer: Any, prompt: list[int], n_tokens: int, how: dict[str, Any]
) -> list[float]:
    tokens, drafted, began_ns, first_round = [], 0, 0, 0
    for response in stream_generate(model, tokenizer, prompt, max_tokens=n_tokens, **how):
        tokens.append(response.token)
        drafted += response.from_draft
        # A round's tokens come together, once it is verified.
        began_ns = began_ns or time.perf_counter_ns()
        if not first_round and not response.from_draft:
            first_round = len(tokens)
    elapsed_ns = time.perf_counter_ns() - began_ns
    return [elapsed_ns, n_tokens - first_round, drafted, *tokens]


if __name__ == "__main__":
    _main(json.loads(Path(sys.argv[1]).read_text()))
