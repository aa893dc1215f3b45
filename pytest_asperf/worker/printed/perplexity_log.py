"""llama-perplexity's output: the PPL so far, after each chunk, from which its NLL follows."""

from __future__ import annotations

import math
import re
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from .numbers import COUNT, NUMBER

_PLAN: Final = re.compile(
    rf"perplexity: calculating perplexity over ({COUNT}) chunks, n_ctx=({COUNT}), batch_size="
)
_CHUNK: Final = re.compile(rf"\[({COUNT})\](-?{NUMBER}|-?nan|-?inf),")
_FINAL: Final = re.compile(r"Final estimate: PPL = *(\S+) \+/- *(\S+)")
_PLAN_KLD: Final = re.compile(rf"kl_divergence: computing over ({COUNT}) chunks, n_ctx=({COUNT})")
# Of the table that ends `--kl-divergence`, the lines that people quote.
_STATISTIC: Final = re.compile(
    rf"(Mean PPL\(Q\)|Mean PPL\(Q\)/PPL\(base\)|Mean +KLD|Maximum KLD|Same top p) *: +"
    rf"(-?{NUMBER})(?: ± +({NUMBER}))?"
)
_MAX_CHUNKS: Final = 200_000
_MAX_STATISTICS: Final = 20
_WORDS: Final = ("perplexity", "Final", "kl_divergence")


@dataclass(frozen=True, slots=True)
class PerplexityRun:
    """One run over a text.

    Attributes:
        running_ppl: PPL over the first 1, 2, … chunks, as printed; the first that is missing,
            out of order or not finite ends it.
        n_ctx: tokens in a chunk; half of them are scored.
        final: PPL and its ± as printed at the end.
        statistics: lines of the table of `--kl-divergence`, with their ±, as printed.
        broken: what ended the figures early; empty where nothing did.
    """

    running_ppl: tuple[float, ...]
    planned_chunks: int | None = None
    n_ctx: int | None = None
    final: tuple[float, float] | None = None
    statistics: tuple[tuple[str, float, float | None], ...] = ()
    broken: str = ""

    @property
    def chunk_nll(self) -> tuple[float, ...]:
        """Mean NLL of each chunk in nats: i ln PPL_i - (i - 1) ln PPL_(i-1).

        All chunks score equally many tokens, so the PPL so far is the exponential of the mean of
        the chunks' means. Its four decimals round each of them by about i / 20,000 PPL; that of one
        chunk makes good that of the next, so a sum over chunks is as exact as the last figure.
        """
        sums = [0.0, *(i * math.log(ppl) for i, ppl in enumerate(self.running_ppl, start=1))]
        return tuple(after - before for before, after in pairwise(sums))


@dataclass(slots=True)
class PerplexityReader:
    """Gathers a run from a log's lines."""

    _ppl: array[float] = field(default_factory=lambda: array("d"))
    _plan: tuple[int, int] | None = None
    _final: tuple[float, float] | None = None
    _statistics: list[tuple[str, float, float | None]] = field(default_factory=list)
    _broken: str = ""

    def feed(self, line: str) -> None:
        """Take one line."""
        if "]" in line[:12] and not self._broken:
            for chunk in _CHUNK.finditer(line):
                self._add(int(chunk[1]), float(chunk[2]))
        if (statistic := _STATISTIC.match(line)) and len(self._statistics) < _MAX_STATISTICS:
            error = float(statistic[3]) if statistic[3] else None
            name = " ".join(statistic[1].split())
            self._statistics.append((name, float(statistic[2]), error))
        if not any(word in line for word in _WORDS):
            return
        if plan := _PLAN.search(line) or _PLAN_KLD.search(line):
            self._plan = int(plan[1]), int(plan[2])
        if final := _FINAL.search(line):
            try:
                self._final = float(final[1]), float(final[2])
            except ValueError:
                self._broken = self._broken or f"the final estimate is {final[1][:20]!r}"

    def run(self) -> PerplexityRun | None:
        """The run, None where the log holds none."""
        found = (self._ppl, self._plan, self._final, self._statistics, self._broken)
        if not any(found):
            return None
        planned, n_ctx = self._plan or (None, None)
        return PerplexityRun(
            tuple(self._ppl), planned, n_ctx, self._final, tuple(self._statistics), self._broken
        )

    def _add(self, number: int, ppl: float) -> None:
        if self._broken or number > _MAX_CHUNKS:
            return
        if not (math.isfinite(ppl) and ppl > 0):
            self._broken = f"PPL is {ppl} after chunk {number}"
        elif number != len(self._ppl) + 1:
            self._broken = f"chunk {number} follows chunk {len(self._ppl)}"
        else:
            self._ppl.append(ppl)
