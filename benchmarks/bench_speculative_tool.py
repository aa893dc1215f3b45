"""TG under speculation compared with llama-speculative-simple: same pair, prompt and k."""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from installed_tools import tools_folder
from models import BUILD, SETTINGS, level_files, shipped_target
from peers import Peers, SpeculativeRun
from timing import interleave, ratio, table

from pytest_asperf.config.spec import Variant
from pytest_asperf.engine_process import Worker
from pytest_asperf.measure.feeding import read_prompts
from pytest_asperf.modelfiles.hub_cache import shipped_models

if TYPE_CHECKING:
    from pathlib import Path

_ROUNDS: Final = 12
_LEAST: Final = 0.97
_K: Final = 4
_N_TOKENS: Final = 128
#: Layers added to the target, so that a step is a millisecond or longer.
_LAYERS: Final = 8


def main() -> bool:
    """Print the table; return whether the rate is the tool's or better, and the counts are its."""
    peers = Peers(tools_folder())
    target = replace(shipped_target(), variant=Variant("layers", _LAYERS))
    draft = next(spec for spec in shipped_models() if spec.name == "asperf-draft")
    target_file = level_files(target, ("F16",))["F16"]
    draft_file = level_files(draft, ("Q8_0",))["Q8_0"]
    rows, good = [], True
    by_round: list[float] = []
    for category, text in read_prompts(None)[::4]:
        prompt = text.rstrip()
        sides = interleave(
            {
                "ours": partial(_ours, target_file, draft_file, prompt),
                "theirs": partial(
                    peers.speculate, target_file, draft_file, prompt, k=_K, n_tokens=_N_TOKENS
                ),
            },
            rounds=_ROUNDS,
            seed=_K,
            n_cores=1,
        )
        ours, theirs = sides["ours"], sides["theirs"]
        compared = ratio([run.tokens_per_s for run in ours], [run.tokens_per_s for run in theirs])
        mine, tool = ours[0], theirs[0]
        # The tool goes on after the requested number of tokens, by one round of k drafted.
        extra = tool.n_predict - _N_TOKENS
        same = (tool.drafted - _K, tool.accepted - (extra - 1)) == (mine.drafted, mine.accepted)
        good &= same
        by_round += [a.tokens_per_s / b.tokens_per_s for a, b in zip(ours, theirs, strict=True)]
        rates = [
            f"{statistics.median(r.tokens_per_s for r in side):.0f}" for side in (ours, theirs)
        ]
        counts = [f"{run.accepted} of {run.drafted}" for run in (mine, tool)]
        rows.append((category, *rates, compared, *counts, extra, "yes" if same else "**no**"))
    header = ("prompt", "ours, tok/s", "tool, tok/s", "TG, ours / tool")
    print(f"### Speculation in {_ROUNDS} rounds\n")
    print(table((*header, "accepted, ours", "tool", "tool's tokens beyond", "counts agree"), rows))
    typical = statistics.median(by_round)
    print(f"\nTG, ours / tool, median of all {len(by_round)} rounds: {typical:.3f}")
    return good and typical >= _LEAST


def _ours(target: Path, draft: Path, prompt: str) -> SpeculativeRun:
    with Worker(BUILD) as worker:
        for name, path in (("target", target), ("draft", draft)):
            worker.load(name, path, SETTINGS)
        tokens = worker.tokenize("target", prompt)
        models: dict[str, Any] = {"target": "target", "draft": "draft", "rollback": "auto"}
        worker.call("pair_open", pair="pair", n_ctx=512, k=_K, **models)
        done = worker.call(
            "pair_generate",
            pair="pair",
            prompt=tokens,
            n_new=_N_TOKENS,
            k=_K,
            temperature=0.0,
            seed=0,
            rule="exact",
        )
    drafted, accepted = (sum(one[n] for one in done["rounds"]) for n in (0, 1))
    return SpeculativeRun(_N_TOKENS, drafted, accepted, _N_TOKENS / done["elapsed_ns"] * 1e9)


if __name__ == "__main__":
    raise SystemExit(not main())
