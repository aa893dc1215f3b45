"""The gate's test and usual rules on one set of saved runs, all with one tolerance.

A session times a workload of equal builds in a fixed number of pairs. The gate's test reads the
pairs of a session until it decides. The other rules read 20 runs of each build: of one process, or
one run of each of 20 processes. The candidate's are of the session after the baseline's, as if the
two builds had been measured one after the other, or of the same session, where both alternate. A
slower candidate's times are the saved ones times a constant.

``--save FILE`` keeps the runs after each session, ``--read FILE...`` judges kept ones instead of
recording.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, product
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
    from collections.abc import Iterator, Sequence

_TOLERANCES: Final = (0.01, 0.02, 0.05)
#: Runs of a build that the other rules read.
_BLOCK: Final = 20
_TURNS_FOR_PASS: Final = 12

_Runs = tuple[tuple[float, ...], tuple[float, ...]]
#: Judges the candidate's times against the baseline's at a tolerance.
_Rule = Callable[[list[float], list[float], float], str]


@dataclass(frozen=True, slots=True)
class _Session:
    """Times of both builds' runs in ns, by pair."""

    pairs: list[_Runs]

    def of_a_process(self, side: int) -> list[float]:
        """The first runs of a build's first processes, one if it has enough."""
        return [ns for pair in self.pairs for ns in pair[side]][:_BLOCK]

    def of_each_process(self, side: int) -> list[float]:
        """The first run of each process of a build."""
        return [pair[side][0] for pair in self.pairs[:_BLOCK]]

    def slowed(self, share: float) -> _Session:
        """The session of a candidate that is slower by a share."""
        return _Session([(base, tuple(ns * (1 + share) for ns in new)) for base, new in self.pairs])


def main() -> bool:
    """Measure or read sessions, and print each rule's result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=40, help="of a session")
    parser.add_argument("--model", type=Path, help="a GGUF file; the shipped target without it")
    parser.add_argument("--workload", default="tg128")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--read", type=Path, nargs="*", default=())
    options = parser.parse_args()
    series = [[_Session(s) for s in json.loads(file.read_text("utf-8"))] for file in options.read]
    if not series:
        series.append([])
        for session in _record(options):
            series[0].append(session)
            if options.save:
                options.save.write_text(json.dumps([s.pairs for s in series[0]]), "utf-8")
    columns = [_cells(series, tolerance) for tolerance in _TOLERANCES]
    rows = [(*names, *(cells[names] for cells in columns)) for names in columns[0]]
    print(f"### {sum(map(len, series))} recorded sessions of equal builds\n")
    print("Equal and called slower / slower by the tolerance and called not slower / undecided:\n")
    print(table(("rule", "runs", *(f"{tolerance:.0%}" for tolerance in _TOLERANCES)), rows))
    return True


def _record(options: argparse.Namespace) -> Iterator[_Session]:
    for number in range(options.sessions):
        seed = os.getpid() * options.sessions + number
        budget = Budget(min(_TOLERANCES), options.pairs, 600.0, seed, min_pairs=options.pairs)
        pairs = timed_pairs(0.0, budget, options.model, options.workload).pairs
        yield _Session([(p.baseline_costs, p.candidate_costs) for p in pairs])
        print(f"{number + 1}/{options.sessions} sessions", file=sys.stderr)


def _cells(series: Sequence[list[_Session]], tolerance: float) -> dict[tuple[str, str], str]:
    """Each rule's counts; two sessions are of one series, which one machine recorded."""
    one = [(s, s) for kept in series for s in kept]
    two = [both for kept in series for both in pairwise(kept)]
    reads = {
        "of a process, two sessions": (two, _Session.of_a_process),
        "of 20 processes, two sessions": (two, _Session.of_each_process),
        "of 20 processes, one session": (one, _Session.of_each_process),
    }
    tested = [[_gate(s.slowed(share), tolerance) for s, _ in one] for share in (0.0, tolerance)]
    pairs = sorted(n for _, n in tested[0])
    equal, slower = ([word for word, _ in found] for found in tested)
    lengths = f"; {statistics.median(pairs):g} ({pairs[int(0.9 * len(pairs))]}) pairs"
    cells = {("the gate's test", "pairs"): _counts(equal, slower) + lengths}
    for (name, rule), (runs, (both, read)) in product(_RULES.items(), reads.items()):
        equal, slower = (
            [rule(read(a, 0), read(b.slowed(share), 1), tolerance) for a, b in both]
            for share in (0.0, tolerance)
        )
        cells[name, runs] = _counts(equal, slower)
    return cells


def _counts(equal: list[str], slower: list[str]) -> str:
    undecided = (equal + slower).count("undecided")
    return f"{equal.count('slower')} / {slower.count('not slower')} / {undecided}"


def _gate(session: _Session, tolerance: float) -> tuple[str, int]:
    """The verdict of the gate's test, and its number of pairs."""
    turns = len(session.pairs[0][0])
    test = TotalTimeTest(
        tolerance,
        max_pairs=len(session.pairs),
        pairs_for_pass=math.ceil(_TURNS_FOR_PASS / turns),
    )
    for runs in session.pairs:
        test.update(typical_log_ratio(*runs), total_log_ratio(*runs))
        if test.outcome is not None:
            break
    words = {"PASS": "not slower", "FAIL": "slower"}
    return words.get(str(test.outcome), "undecided"), test.n


def _mann_whitney(base: list[float], candidate: list[float], tolerance: float) -> str:
    """Two blocks, one-sided at 5 %, if the median is slower by the tolerance at least."""
    found = mannwhitneyu(candidate, base, alternative="greater")
    ratio = statistics.median(candidate) / statistics.median(base)
    return "slower" if found.pvalue < 0.05 and ratio > 1 + tolerance else "not slower"


def _welch(base: list[float], candidate: list[float], tolerance: float) -> str:
    """The 90 % interval of the log ratio of means against the tolerance."""
    a, b = np.log(base), np.log(candidate)
    of_a, of_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    df = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    half = t.ppf(0.95, df) * math.sqrt(of_a + of_b)
    ratio, limit = b.mean() - a.mean(), math.log1p(tolerance)
    if ratio - half > limit:
        return "slower"
    return "not slower" if ratio + half < limit else "undecided"


def _means(base: list[float], candidate: list[float], tolerance: float) -> str:
    """Means further apart than the tolerance, as pytest-benchmark's `mean:5%`."""
    ratio = statistics.mean(candidate) / statistics.mean(base)
    return "slower" if ratio > 1 + tolerance else "not slower"


def _minima(base: list[float], candidate: list[float], tolerance: float) -> str:
    """Minima further apart than the tolerance, as pytest-benchmark's `min:5%`."""
    return "slower" if min(candidate) / min(base) > 1 + tolerance else "not slower"


_RULES: Final[dict[str, _Rule]] = {
    "Mann-Whitney at 5 %, medians apart": _mann_whitney,
    "Welch's 90 % interval": _welch,
    "ratio of means": _means,
    "ratio of minima": _minima,
}


if __name__ == "__main__":
    raise SystemExit(not main())
