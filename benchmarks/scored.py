"""This plugin's scores, made in a process that is timed as the peers' are."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from timing import Cost, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peers import Divergence, Figure


@dataclass(frozen=True, slots=True)
class Scored:
    """The result of one run.

    Attributes:
        ppl: by quantization.
        levels: the output of `--kl-divergence`, by quantization, for all but the first.
        beyond_floor_nats: the baseline's mean NLL beyond 16 nats.
        peak_rss_bytes: the engine process's peak resident memory.
        cost: of the process.
    """

    ppl: dict[str, Figure]
    levels: dict[str, Divergence]
    beyond_floor_nats: float
    peak_rss_bytes: int
    cost: Cost


def score(files: Mapping[str, Path], corpus: Path, *, chunks: int | None) -> Scored:
    """Score files; those after the first are compared with the first."""
    script = Path(__file__).with_name("score_process.py")
    named = [f"{level}={path}" for level, path in files.items()]
    process = run([sys.executable, str(script), str(corpus), str(chunks or 0), *named])
    return Scored(**json.loads(process.text), cost=process.cost)
