"""TTFT and TG beside mlx-lm's own loop, interleaved, recomputed to one definition."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Final

from mlx_sides import MODEL, Sides, both_sides
from timing import interleave, ratio, table

#: A process keeps for good what its memory was given: of one program, one is faster than another.
_STARTS: Final = 8
_ROUNDS: Final = 8
_N_PROMPT: Final = 128
_N_TOKENS: Final = 32
_TOLERANCE: Final = 0.03


def main() -> bool:
    """Print the table, and return whether the times agree."""
    times: dict[str, list[list[float]]] = {"ours": [], "theirs": []}
    for start in range(_STARTS):
        with both_sides() as sides:
            arms = {"ours": partial(_ours, sides), "theirs": partial(_theirs, sides)}
            interleave(arms, rounds=2, seed=0)  # first calls compile
            for side, found in interleave(arms, rounds=_ROUNDS, seed=start, n_cores=1).items():
                times[side] += found
    rows, agree = [], True
    names = ((f"ttft{_N_PROMPT}", _N_PROMPT), (f"tg@d{_N_PROMPT}", _N_TOKENS - 1))
    for index, (name, n_tokens) in enumerate(names):
        mine, other = ([run[index] for run in times[side]] for side in ("ours", "theirs"))
        per_token = [f"{statistics.median(side) / n_tokens / 1e6:.4f}" for side in (mine, other)]
        compared = ratio(mine, other)
        agree = agree and abs(compared.typical - 1) <= _TOLERANCE
        rows.append((name, *per_token, compared))
    print(f"### MLX beside mlx-lm's stream_generate, {_STARTS} starts of {_ROUNDS} rounds\n")
    print(table(("run", "ours, ms per token", "mlx-lm", "time, ours / theirs"), rows))
    return agree


def _ours(sides: Sides) -> list[float]:
    # mlx-lm times the intervals behind its first token: as many steps at the same depth.
    whole = sides.tokens[: _N_PROMPT + _N_TOKENS - 1]
    first = sides.worker.first_token(MODEL, whole[:_N_PROMPT]).elapsed_ns
    return [first, sides.worker.generate(MODEL, whole, _N_PROMPT).elapsed_ns]


def _theirs(sides: Sides) -> list[float]:
    return sides.ask(f"generate {_N_PROMPT} {_N_TOKENS}")


if __name__ == "__main__":
    raise SystemExit(not main())
