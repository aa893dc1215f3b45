"""TTFT and TG beside mlx-lm's own loop, interleaved, recomputed to one definition."""

from __future__ import annotations

import statistics
from typing import Final

from mlx_sides import MODEL, both_sides
from timing import interleave, ratio, table

_ROUNDS: Final = 80
_N_PROMPT: Final = 128
_N_TOKENS: Final = 32
_TOLERANCE: Final = 0.03


def main() -> bool:
    """Print the table, and return whether the times agree."""
    with both_sides() as sides:
        prompt = sides.tokens[:_N_PROMPT]
        # mlx-lm times the intervals behind its first token: as many steps at the same depth.
        whole = sides.tokens[: _N_PROMPT + _N_TOKENS - 1]

        def ours() -> list[float]:
            first = sides.worker.first_token(MODEL, prompt).elapsed_ns
            return [first, sides.worker.generate(MODEL, whole, _N_PROMPT).elapsed_ns]

        def theirs() -> list[float]:
            return sides.ask(f"generate {_N_PROMPT} {_N_TOKENS}")

        arms = {"ours": ours, "theirs": theirs}
        interleave(arms, rounds=2, seed=0)  # first calls compile
        times = interleave(arms, rounds=_ROUNDS, seed=1, n_cores=1)
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


if __name__ == "__main__":
    raise SystemExit(not main())
