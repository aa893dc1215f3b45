"""TG under speculation compared with mlx-lm's stream_generate: same pair, prompt and k."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mlx_sides import DRAFT, MODEL, Sides
from timing import interleave, ratio, table

_ROUNDS: Final = 16
_LEAST: Final = 0.97
_K: Final = 4
_N_TOKENS: Final = 64
_PROMPTS: Final = (48, 160, 320)


@dataclass(frozen=True, slots=True)
class _Run:
    """Tokens after the first round, which hides in mlx-lm's time of the prompt."""

    tokens: list[int]
    from_draft: int
    tokens_per_s: float


def main() -> bool:
    """Print the table; return whether the rate is mlx-lm's or better, and the output its."""
    sides = Sides()
    models: dict[str, Any] = {"target": MODEL, "draft": DRAFT, "rollback": "auto"}
    sides.ours("pair_open", pair="pair", n_ctx=512, k=_K, **models)
    rows, good = [], True
    by_round: list[float] = []
    for n_prompt in _PROMPTS:
        arms = {
            "ours": partial(_ours, sides, n_prompt),
            "mlx-lm": partial(_theirs, sides, n_prompt),
        }
        interleave(arms, rounds=1, seed=0)  # first calls compile
        runs = interleave(arms, rounds=_ROUNDS, seed=n_prompt)
        ours, theirs = runs["ours"], runs["mlx-lm"]
        rates = [[run.tokens_per_s for run in side] for side in (ours, theirs)]
        by_round += [a / b for a, b in zip(*rates, strict=True)]
        same = ours[0].tokens == theirs[0].tokens
        good &= same
        typical = [f"{statistics.median(side):.0f}" for side in rates]
        counts = [run.from_draft for run in (ours[0], theirs[0])]
        rows.append((n_prompt, *typical, ratio(*rates), *counts, "yes" if same else "**no**"))
    header = ("tokens of prompt", "ours, tok/s", "mlx-lm, tok/s", "TG, ours / mlx-lm")
    print(f"### Speculation on MLX, {_ROUNDS} rounds\n")
    print(table((*header, "accepted, ours", "mlx-lm", "same output"), rows))
    middle = statistics.median(by_round)
    print(f"\nTG, ours / mlx-lm, median of all {len(by_round)} rounds: {middle:.3f}")
    return good and middle >= _LEAST


def _ours(sides: Sides, n_prompt: int) -> _Run:
    done = sides.ours(
        "pair_generate",
        pair="pair",
        prompt=list(sides.tokens[:n_prompt]),
        n_new=_N_TOKENS,
        k=_K,
        temperature=0.0,
        seed=0,
        rule="exact",
    )
    first = done["rounds"][0]
    elapsed_ns = done["elapsed_ns"] - sum(first[3:])
    accepted = sum(one[1] for one in done["rounds"])
    return _Run(done["tokens"], accepted, (_N_TOKENS - first[2]) / elapsed_ns * 1e9)


def _theirs(sides: Sides, n_prompt: int) -> _Run:
    told = sides.speculate(n_prompt, _N_TOKENS, _K)
    return _Run(told.tokens, told.from_draft, told.counted / told.elapsed_ns * 1e9)


if __name__ == "__main__":
    raise SystemExit(not main())
