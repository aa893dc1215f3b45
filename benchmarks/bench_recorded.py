"""The gate's test and usual rules on one set of saved runs of equal and of slowed builds.

A session times tg128 of the shipped target against itself, slowed by a share, in a fixed number of
pairs. The gate's test reads the pairs of a session until it decides. The other rules read the first
runs of each build: those of one session, and the candidate's of the session after it, as if the two
builds had been measured one after the other.

``--save FILE`` keeps the runs, ``--read FILE...`` judges kept ones instead of recording.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from bench_gate import timed_pairs
from scipy.stats import mannwhitneyu, t  # type: ignore[import-untyped]  # scipy ships no types
from timing import table

from pytest_asperf.analysis.stats.total_time import (
    TotalTimeTest,
    total_log_ratio,
    typical_log_ratio,
)
from pytest_asperf.measure.ab_speed import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Rule = Callable[["_Session", "_Session"], str]

_SLOWED: Final = (0.0, 0.03, 0.05, 0.10)
_TOLERANCE: Final = 0.05
_MARGIN: Final = 0.10
_PAIRS: Final = 20
#: Runs of a build that the other rules read.
_BLOCK: Final = 20
_TURNS_FOR_PASS: Final = 12

_Runs = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Session:
    """Times of both builds' runs in ns, by pair, of a candidate slowed by a share."""

    slow_by: float
    pairs: list[_Runs]

    def block(self, side: int) -> list[int]:
        """The first runs of a build."""
        return [ns for pair in self.pairs for ns in pair[side]][:_BLOCK]


def main() -> bool:
    """Measure or read sessions, and print each rule's result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=20, help="sessions of each candidate")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--read", type=Path, nargs="*", default=())
    options = parser.parse_args()
    recorded = [_Session(**s) for file in options.read for s in json.loads(file.read_text("utf-8"))]
    sessions = recorded or _record(options.each)
    if options.save:
        kept = [{"slow_by": s.slow_by, "pairs": s.pairs} for s in sessions]
        options.save.write_text(json.dumps(kept), "utf-8")
    names = ["equal", *(f"+{share:.0%}" for share in _SLOWED[1:])]
    rows = []
    for rule, judge in _RULES.items():
        for apart in (False, True) if judge is not _gate else (False,):
            cells = [_counts(judge, _of(sessions, share), apart=apart) for share in _SLOWED]
            runs = "pairs" if judge is _gate else "of two sessions" if apart else "of one session"
            rows.append((rule, runs, *cells))
    n_each = len(_of(sessions, 0.0))
    print(f"### Slower / not slower / undecided, {n_each} recorded sessions of each candidate\n")
    print(table(("rule", "runs", *names), rows))
    print("\nPairs that the gate's test took, median and 90 %:", ", ".join(_lengths(sessions)))
    return True


def _record(n_each: int) -> list[_Session]:
    order = [share for share in _SLOWED for _ in range(n_each)]
    random.Random(os.getpid()).shuffle(order)  # noqa: S311  # the order of a benchmark
    sessions = []
    for number, share in enumerate(order):
        budget = Budget(_TOLERANCE, _PAIRS, 600.0, number, min_pairs=_PAIRS)
        pairs = timed_pairs(share, budget).pairs
        sessions.append(_Session(share, [(p.baseline_costs, p.candidate_costs) for p in pairs]))
        print(f"{number + 1}/{len(order)} sessions", file=sys.stderr)
    return sessions


def _of(sessions: Sequence[_Session], slow_by: float) -> list[_Session]:
    return [session for session in sessions if session.slow_by == slow_by]


def _counts(judge: Rule, sessions: list[_Session], *, apart: bool) -> str:
    """A rule's counts of slower, not slower, and neither."""
    two = pairwise(sessions) if apart else ((s, s) for s in sessions)
    said = [judge(base, candidate) for base, candidate in two]
    return " / ".join(str(said.count(word)) for word in ("slower", "not slower", "undecided"))


def _gate(base: _Session, candidate: _Session) -> str:
    """The gate's test: the tolerance is accepted."""
    return _decided(candidate)[0] if base is candidate else ""


def _decided(session: _Session) -> tuple[str, int]:
    """The verdict of the gate's test, and its number of pairs."""
    turns = len(session.pairs[0][0])
    test = TotalTimeTest(
        _TOLERANCE, max_pairs=_PAIRS, pairs_for_pass=math.ceil(_TURNS_FOR_PASS / turns)
    )
    for runs in session.pairs:
        test.update(typical_log_ratio(*runs), total_log_ratio(*runs))
        if test.outcome is not None:
            break
    words = {"PASS": "not slower", "FAIL": "slower"}
    return words.get(str(test.outcome), "undecided"), test.n


def _lengths(sessions: Sequence[_Session]) -> list[str]:
    found = []
    for share in _SLOWED:
        pairs = sorted(_decided(session)[1] for session in _of(sessions, share))
        found.append(f"{statistics.median(pairs):g} ({pairs[int(0.9 * len(pairs))]})")
    return found


def _mann_whitney(base: _Session, candidate: _Session) -> str:
    """Two blocks, one-sided at 5 %."""
    found = mannwhitneyu(candidate.block(1), base.block(0), alternative="greater")
    return "slower" if found.pvalue < 0.05 else "not slower"


def _welch(base: _Session, candidate: _Session) -> str:
    """The 90 % interval of the log ratio of means against the margin."""
    a, b = np.log(base.block(0)), np.log(candidate.block(1))
    of_a, of_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    df = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    half = t.ppf(0.95, df) * math.sqrt(of_a + of_b)
    ratio, limit = b.mean() - a.mean(), math.log1p(_MARGIN)
    if ratio - half > limit:
        return "slower"
    return "not slower" if ratio + half < limit else "undecided"


def _threshold(base: _Session, candidate: _Session) -> str:
    """Means, a tenth apart."""
    ratio = statistics.mean(candidate.block(1)) / statistics.mean(base.block(0))
    return "slower" if ratio > 1 + _MARGIN else "not slower"


_RULES: Final[dict[str, Rule]] = {
    f"this test, tolerance {_TOLERANCE:.0%}": _gate,
    f"Mann-Whitney, {_BLOCK} runs each": _mann_whitney,
    f"Welch's 90 % interval, margin {_MARGIN:.0%}": _welch,
    f"means, threshold {_MARGIN:.0%}": _threshold,
}


if __name__ == "__main__":
    raise SystemExit(not main())
