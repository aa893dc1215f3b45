"""llama-perplexity's output: the PPL so far, after each chunk, from which its NLL follows."""

from __future__ import annotations

import math
import re
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from . import COUNT, NUMBER, PLUS_MINUS, Unread

#: Until early 2024 without the context, and with a space before the colon.
_PLAN: Final = re.compile(
    r"(?:perplexity(?:_v2)?|kl_divergence) ?: (?:calculating perplexity|computing) "
    rf"over ({COUNT}) chunks(?:, n_ctx=({COUNT}))?"
)
#: Without a comma it is cut off, unless its four decimals are there.
_CHUNK: Final = re.compile(
    rf"\[({COUNT})\](-?\d{{1,15}}\.\d{{4}}|-?{NUMBER}(?=,(?:\[|\s|$))|-?nan(?:\(ind\))?|-?inf),?"
)
#: `--ppl-output-type 1`: the tokens before the batch, PPL, and ln PPL ± but in strided runs.
_ROW: Final = re.compile(
    rf" *({COUNT})  (\d{{1,15}}\.\d{{4}}|-?nan(?:\(ind\))?|-?inf)(?:  (-?{NUMBER})  [^ ]+)?$"
)
#: ik_llama.cpp names chunks and context.
_FINAL: Final = re.compile(
    rf"Final estimate: PPL(?: over ({COUNT}) chunks for n_ctx=({COUNT}))? = *(\S+)"
    r"(?: +\+/- *(\S+))?"
)
#: A line of the tables that end `--kl-divergence`.
_LIKE_STATISTIC: Final = re.compile(r"[A-Z\d][^:]*(?:PPL\b.*|KLD|[^A-Za-z]p) *: +-?\d")
_STATISTIC: Final = re.compile(
    r"((?:Mean|Maximum|Median|Minimum|RMS|Cor|Same|\d{1,2}\.\d%)[^:]{0,40}?(?:PPL.*|KLD|p)) *: +"
    rf"(-?{NUMBER}|-?nan) *(%?)(?:{PLUS_MINUS}(\d{{1,15}}\.\d{{3,15}}) *(%?))?$"
)
_MAX_CHUNKS: Final = 200_000
_MAX_STATISTICS: Final = 60
_MAX_RUNS: Final = 200
#: PPL is printed with four decimals.
_ROUNDING: Final = 2e-4
_DECIMALS: Final = re.compile(r"\.\d{4}")


@dataclass(frozen=True, slots=True)
class Statistic:
    """A line of the tables of `--kl-divergence`, as printed."""

    name: str
    value: float
    unit: str = ""
    error: float | None = None


@dataclass(frozen=True, slots=True)
class PerplexityRun:
    """One run over a text."""

    #: PPL over the first 1, 2, … chunks, as printed; the first that is missing, out of order or not
    #: finite ends it
    running_ppl: tuple[float, ...]
    planned_chunks: int | None = None
    n_ctx: int | None = None  #: tokens in a chunk; half of them are scored
    final: tuple[float, float | None] | None = None  #: PPL and its ± as printed at the end
    statistics: tuple[Statistic, ...] = ()  #: lines of the table of `--kl-divergence`
    not_finite: str = ""  #: the first PPL that is no number; empty if all are
    gap: str = ""  #: the chunk that is missing or out of order; empty if none is

    @property
    def lacks_chunks(self) -> bool:
        """True if the final estimate has more chunks than the log's lines."""
        if self.final is None or self.not_finite:
            return False
        return not self.running_ppl or abs(self.final[0] - self.running_ppl[-1]) > _ROUNDING

    @property
    def rounding(self) -> float:
        """The most that the last PPL's logarithm is off by its decimals."""
        return 5e-5 / self.running_ppl[-1]

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
    """Gathers the runs from a log's lines.

    A run begins with its plan, with chunk 1, or with a second final estimate.
    """

    #: lines of the table of `--kl-divergence` that are cut off or in another form
    unread: Unread = field(default_factory=Unread)
    _done: list[PerplexityRun] = field(default_factory=list)
    _ppl: array[float] = field(default_factory=lambda: array("d"))
    _plan: tuple[int | None, int | None] | None = None
    _final: tuple[float, float | None] | None = None
    _statistics: list[Statistic] = field(default_factory=list)
    _not_finite: str = ""
    _gap: str = ""
    _tokens_before: int = 0

    def feed(self, line: str) -> None:
        """Parse one line."""
        if "[" in line[:2] or ("[1]" in line and (self._plan or "ETA" in line)):
            for chunk in _CHUNK.finditer(line):
                self._add(int(chunk[1]), float(chunk[2].removesuffix("(ind)")))
        elif row := _ROW.match(line):
            ppl, ln_ppl = float(row[2].removesuffix("(ind)")), row[3]
            is_pair = ln_ppl and abs(math.log(ppl or 1) - float(ln_ppl)) < _ROUNDING
            if is_pair or (self._plan and not self._final):
                self._add_row(int(row[1]), ppl)
        if statistic := _STATISTIC.match(line):
            self._add_statistic(statistic)
        elif ": " in line and _LIKE_STATISTIC.match(line):
            self.unread.add(line)
        elif "calculating" in line or "computing" in line:
            self._add_plan(_PLAN.search(line))
        if "Final" in line and (final := _FINAL.search(line)):
            self._add_final(final)

    def _add_plan(self, plan: re.Match[str] | None) -> None:
        if plan:
            self._begin()
            self._plan = int(plan[1]), int(plan[2]) if plan[2] else None

    def runs(self) -> tuple[PerplexityRun, ...]:
        """The runs in their order, the last one as far as it went."""
        return (*self._done, *self._current())

    @property
    def n_begun(self) -> int:
        """Runs that were begun."""
        scored = self._plan or self._ppl or self._final or self._statistics
        return len(self._done) + bool(scored or self._not_finite or self._gap)

    def _current(self) -> list[PerplexityRun]:
        if self.n_begun == len(self._done):
            return []
        planned, n_ctx = self._plan or (None, None)
        statistics, ppl = tuple(self._statistics), tuple(self._ppl)
        run = PerplexityRun(
            ppl, planned, n_ctx, self._final, statistics, self._not_finite, self._gap
        )
        return [run]

    def _begin(self) -> None:
        if len(self._done) < _MAX_RUNS:
            self._done += self._current()
        self._ppl, self._plan, self._final = array("d"), None, None
        self._statistics, self._not_finite, self._gap = [], "", ""
        self._tokens_before = 0

    def _add(self, number: int, ppl: float) -> None:
        if number == 1 and (self._ppl or self._not_finite or self._final):
            self._begin()
        if self._not_finite or self._gap or number > _MAX_CHUNKS:
            return
        if not (math.isfinite(ppl) and ppl > 0):
            self._not_finite = f"PPL is {ppl} after chunk {number}"
        elif number != len(self._ppl) + 1:
            self._gap = f"chunk {number} follows chunk {len(self._ppl)}"
        else:
            self._ppl.append(ppl)

    def _add_row(self, tokens_before: int, ppl: float) -> None:
        """Parse a chunk without a number; those of one batch repeat the tokens before the batch."""
        if tokens_before < self._tokens_before:
            self._begin()
        self._tokens_before = tokens_before
        n_ctx = self._plan[1] if self._plan else None
        due = len(self._ppl) + 1
        self._add(max(due, tokens_before // n_ctx + 1) if n_ctx else due, ppl)

    def _add_statistic(self, found: re.Match[str]) -> None:
        name, value = " ".join(found[1].split()), float(found[2])
        lacks_unit = name.endswith("p") and "%" not in found.groups()
        if math.isfinite(value) and (lacks_unit or (name.startswith("Mean") and not found[4])):
            return  # cut off
        if any(name == statistic.name for statistic in self._statistics):
            self._begin()
        if not math.isfinite(value):
            self._not_finite = self._not_finite or f"{name} is {value}"
        elif len(self._statistics) < _MAX_STATISTICS:
            error = float(found[4]) if found[4] else None
            unit = found[3] or found[5] or ""
            self._statistics.append(Statistic(name, value, unit, error))

    def _add_final(self, found: re.Match[str]) -> None:
        if self._final:
            self._begin()
        if found[1]:
            self._plan = self._plan or (int(found[1]), int(found[2]))
        try:
            ppl, error = float(found[3]), float(found[4]) if found[4] else None
        except ValueError:
            self._gap = self._gap or f"the final estimate is {found[3][:20]!r}"
            return
        if math.isfinite(ppl) and not (found[4] or _DECIMALS.search(found[3])):
            self._gap = self._gap or f"the final estimate is cut off: {ppl}"
            return
        if not (math.isfinite(ppl) and ppl > 0):
            self._not_finite = self._not_finite or f"the final estimate is {ppl}"
        else:
            self._final = ppl, error
