"""TTFT and TG compared with mlx-lm's own loop, interleaved, recomputed to one definition."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Final

from mlx_sides import MODEL, Sides
from timing import interleave, ratio, table

_ROUNDS: Final = 240
_N_PROMPT: Final = 128
_N_TOKENS: Final = 32
_TOLERANCE: Final = 0.03


def main() -> bool:
    """Print the table, and return whether the times agree."""
    sides = Sides()
    arms = {"ours": partial(_ours, sides), "theirs": partial(sides.generate, _N_PROMPT, _N_TOKENS)}
    interleave(arms, rounds=2, seed=0)  # first calls compile
    times = interleave(arms, rounds=_ROUNDS, seed=1)
    rows, agree = [], True
    names = ((f"ttft{_N_PROMPT}", _N_PROMPT), (f"tg@d{_N_PROMPT}", _N_TOKENS - 1))
    for index, (name, n_tokens) in enumerate(names):
        mine, other = ([run[index] for run in times[side]] for side in ("ours", "theirs"))
        per_token = [f"{statistics.median(side) / n_tokens / 1e6:.4f}" for side in (mine, other)]
        compared = ratio(mine, other)
        agree = agree and abs(compared.typical - 1) <= _TOLERANCE
        rows.append((name, *per_token, compared))
    print(f"### MLX beside mlx-lm's stream_generate, {_ROUNDS} rounds\n")
    print(table(("run", "ours, ms per token", "mlx-lm", "time, ours / theirs"), rows))
    return agree


def _ours(sides: Sides) -> list[float]:
    # mlx-lm times the intervals behind its first token: as many steps at the same depth.
    whole = list(sides.tokens[: _N_PROMPT + _N_TOKENS - 1])
    of_both = {"model": MODEL, "n_ctx": _N_PROMPT + _N_TOKENS}
    first = sides.ours("first_token", tokens=whole[:_N_PROMPT], depth=0, **of_both)
    after = sides.ours("generate", tokens=whole, depth=_N_PROMPT, **of_both)
    return [first["elapsed_ns"], after["elapsed_ns"]]


if __name__ == "__main__":
    raise SystemExit(not main())
