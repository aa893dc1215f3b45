"""PPL, ΔPPL and KLD compared with llama-perplexity's, on the shipped corpus.

    python benchmarks/bench_ppl_parity.py [MODEL.gguf [CHUNKS]]

Without a model it is the shipped one, and without a number the whole corpus.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from installed_tools import tools_folder
from models import level_files, shipped_target
from peers import Peers
from scored import score
from timing import table

from pytest_asperf.config.spec import ModelSpec
from pytest_asperf.modelfiles.hub_cache import shipped_corpus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peers import Divergence, Figure
    from scored import Scored

_LEVELS: Final = ("F16", "Q8_0", "Q4_K_M", "Q2_K")

#: `--kl-divergence` reads the baseline's log-probabilities rounded to 65,536 steps over the 16 nats
#: below the likeliest (`log_softmax` in perplexity.cpp): each is off by half a step at most, and
#: lower ones are raised to the minimum.
_ROUNDING_NATS: Final = 16 / 65535 / 2
_PRINTED: Final = 0.5e-6


def main() -> bool:
    """Print the comparison, and return whether all figures agree."""
    peers, corpus = Peers(tools_folder()), shipped_corpus()
    spec, chunks = shipped_target(), None
    match sys.argv[1:]:
        case [path, *number]:
            spec = ModelSpec("model", gguf=Path(path))
            chunks = int(number[0]) if number else None
    files = level_files(spec, _LEVELS)
    ours = score(files, corpus, chunks=chunks)
    with tempfile.TemporaryDirectory() as folder:
        logits = Path(folder) / "logits"
        base, *levels = _LEVELS
        theirs = peers.perplexity(files[base], corpus, chunks=chunks, logits=logits)
        divergence = {level: peers.divergence(files[level], logits) for level in levels}
    print(f"### PPL and KLD over {theirs.n_chunks} chunks, figure by figure\n")
    ppl = {base: theirs.ppl, **{level: run.ppl for level, run in divergence.items()}}
    agrees = print_ppl(ours.ppl, ppl)
    figures = {level: run.figures for level, run in divergence.items()}
    return print_divergence(ours, figures) and agrees


def print_ppl(ours: Mapping[str, Figure], theirs: Mapping[str, float]) -> bool:
    """Print both PPL by quantization, and return True if four digits agree."""
    rows, agree = [], True
    for level, (mine, _) in ours.items():
        other = theirs[level]
        same = f"{mine:.4g}" == f"{other:.4g}"
        agree = agree and same
        rows.append((level, f"{mine:.6f}", f"{other:.7g}", f"{mine - other:+.1e}", _word(same)))
    print(table(("level", "PPL, ours", "llama-perplexity", "difference", "4 digits equal"), rows))
    return agree


def print_divergence(ours: Scored, theirs: Mapping[str, Divergence]) -> bool:
    """Print both ΔPPL and KLD by quantization, and return True if they are within rounding."""
    moved = _ROUNDING_NATS + ours.beyond_floor_nats
    rows, agree = [], True
    for level, figures in theirs.items():
        for name, other in figures.items():
            mine, bound = ours.levels[level][name], _bound(name, other[0], moved) + _PRINTED
            worst = max(abs(a - b) for a, b in zip(mine, other, strict=True))
            within = worst <= bound
            agree = agree and within
            shown = [f"{value:.6f} ± {error:.6f}" for value, error in (mine, other)]
            rows.append(
                (level, name, *shown, f"{worst:.1e}", f"{bound:.1e}", _word(worst <= bound))
            )
    header = ("level", "figure", "ours", "`--kl-divergence`", "difference", "bound", "within")
    print(table(header, rows))
    print(f"The baseline's mean NLL beyond 16 nats: {ours.beyond_floor_nats:.1e}.")
    return agree


def _bound(name: str, value: float, moved_nats: float) -> float:
    """Return how far a figure moves with the baseline's NLL, or its distribution's rounding.

    KLD = E_p[ln p - ln q] moves with p as well, by E_p|ln p - ln q| <= KLD + sqrt(2 KLD)
    (Pinsker) times the rounding.
    """
    return {
        "ln PPL ratio": moved_nats,
        "PPL ratio": moved_nats * value,
        "KLD": _ROUNDING_NATS * (1 + value + math.sqrt(2 * max(value, 0))),
    }[name]


def _word(condition: bool) -> str:  # noqa: FBT001  # a predicate's answer, written out
    return "yes" if condition else "NO"


if __name__ == "__main__":
    raise SystemExit(not main())
