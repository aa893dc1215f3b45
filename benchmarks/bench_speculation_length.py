"""How close predictions of a speculative gain come in short and in long measurements."""

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from bench_speculation import measure
from models import BUILD
from timing import table

from pytest_asperf.analysis.stats.intervals import median_interval
from pytest_asperf.measure.ab_speed import Budget
from pytest_asperf.measure.feeding import read_prompts
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.locate import ModelLocator

if TYPE_CHECKING:
    from pytest_asperf.measure.speculation_result import SpeculationResult, SuitePair

#: Layers added to the target: speed ratios of about 1, 2 and 4 to the padded draft.
_TARGET_LAYERS: Final = (0, 9, 20)
_N_TOKENS: Final = (24, 64, 128)
#: Percentage points that may lie between a gain and its prediction.
_TOLERANCE: Final = 5.0
_BUDGET: Final = Budget(0.05, max_pairs=8, max_seconds=40, seed=20261122)


def main(chosen: list[str]) -> bool:
    """Print the table; return whether no difference is shown to be above the tolerance."""
    locator = ModelLocator(BUILD, cache=cache_root(os.environ), call_timeout_s=600)
    rows, good = [], True
    with TemporaryDirectory() as folder:
        few = Path(folder) / "prompts.json"
        first = {category: [text] for category, text in reversed(read_prompts(None))}
        few.write_text(json.dumps(first), "utf-8")
        for layers in map(int, chosen or _TARGET_LAYERS):
            for n_tokens in _N_TOKENS:
                for prompts in (few, None):
                    result = measure(
                        locator, layers, n_tokens=n_tokens, prompts=prompts, budget=_BUDGET
                    )
                    row, holds = _row(result)
                    rows.append(row)
                    good &= holds
                    print(row, file=sys.stderr, flush=True)
    header = ("target", "tokens", "prompts", "ratio", "gain", "predicted", "difference, pp")
    print("### Prediction by length\n")
    print(table((*header, "SD of a pair's", "pairs", "holds"), rows))
    return good


def _row(result: SpeculationResult) -> tuple[tuple[str, ...], bool]:
    off = [_difference(pair) for pair in result.pairs]
    difference = median_interval(off, unit="", counted="pairs")
    holds = difference.low <= _TOLERANCE and difference.high >= -_TOLERANCE
    bounds = f" [{difference.low:.1f}, {difference.high:.1f}]" if difference.has_interval else ""
    row = (
        result.pairing.target.label,
        str(result.pairing.n_tokens),
        str(len(result.categories)),
        f"{result.ratio.point:.2f}",
        result.gain.text(),
        result.predicted_gain.text(),
        f"{difference.point:+.1f}{bounds}",
        f"{statistics.stdev(off):.1f}" if len(off) > 1 else "",
        str(len(off)),
        "yes" if holds else "**no**",
    )
    return row, holds


def _difference(pair: SuitePair) -> float:
    """Return measured less predicted, in percentage points."""
    return 100 * (pair.alone_ns / pair.speculative_ns - 1 - pair.predicted_gain)


if __name__ == "__main__":
    raise SystemExit(not main(sys.argv[1:]))
