"""Bisection: the next gate, and the culprit by the gates so far.

Builds are numbered from 0, the baseline, to n, the candidate; any of 1 to n may be the one at which
the gate begins to fail. `next_step` is a function of the results so far and of nothing else: an
interrupted run resumes at its place, and a skipped build may be tried again. Error rates of a whole
run: docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, permutations
from typing import Final, Literal

from pytest_asperf.analysis.verdict import Outcome

#: Gates in addition to those of a monotone search, for skipped and undecided builds.
_RESERVE: Final = 4
#: Gates that compare two builds that fail with one another.
_COMPARISONS: Final = 1
#: Gates that a map may add to those of the search before it.
_MAPPED: Final = 8
_USED_UP: Final = "the gates that share the error are used up"

Purpose = Literal["candidate", "search", "confirm", "compare", "map"]


@dataclass(frozen=True, slots=True, order=True)
class GateStep:
    """One gate: a build against another, by number.

    The candidate is the later one, except where two builds that fail are compared.
    """

    base: int
    candidate: int


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """The answer of a gate, and the bounds of the effect, 0 for none.

    The outcome is INVALID also where the build could not be made, or not measured.
    """

    outcome: Outcome
    low: float = -math.inf
    high: float = math.inf

    @property
    def is_judged(self) -> bool:
        """True if there was something to judge, and so to err about."""
        return self.outcome is not Outcome.INVALID


class Ending(StrEnum):
    """The possible endings of a bisection."""

    CULPRIT = "culprit"
    RANGE = "range"
    MAP = "map"
    NO_REGRESSION = "no regression"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Probe:
    """The next gate, and its purpose."""

    gate: GateStep
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of the gates."""

    ending: Ending  #: which kind of answer
    after: int  #: the last build that passes before the culprit
    #: the first that fails; the culprit is one of the builds behind `after`, up to this one
    at: int
    why: str = ""  #: why it is no single build, or why builds were mapped; empty for a culprit

    @property
    def step(self) -> GateStep:
        """The gate of the last good build against the first bad one."""
        return GateStep(self.after, self.at)


def gates_to_name(n: int) -> int:
    """The most gates that name the culprit among n builds: ``ceil(log2 n) + 2``.

    They are the candidate's, the probes', and that of the culprit against its predecessor. It is
    valid if one build makes all later ones fail, every gate is decided and no build is skipped.
    """
    return (n - 1).bit_length() + 2


def gates_at_most(n: int) -> int:
    """The maximal number of judged gates, for any results: those that share the error."""
    return min(n + 1, gates_to_name(n) + _RESERVE + _MAPPED) + (_COMPARISONS if n > 2 else 0)


def next_step(n: int, findings: Mapping[GateStep, GateAnswer]) -> Probe | Answer:
    """The next gate, or the answer, with `n` builds after the baseline and every gate so far."""
    step = _next_step(n, findings)
    spent = sum(finding.is_judged for finding in findings.values()) >= gates_at_most(n)
    if isinstance(step, Probe) and spent:
        # Only where builds that had been passed over were tried again, and led another way.
        builds = narrowed(n, findings) or GateStep(0, n)
        return Answer(Ending.RANGE, builds.base, builds.candidate, _USED_UP)
    return step


def _next_step(n: int, findings: Mapping[GateStep, GateAnswer]) -> Probe | Answer:
    first = findings.get(GateStep(0, n))
    if first is None:
        return Probe(GateStep(0, n), "candidate")
    if first.outcome is not Outcome.FAIL:
        ending = Ending.NO_REGRESSION if first.is_judged else Ending.BROKEN
        return Answer(ending, 0, n, f"the candidate is {first.outcome} against the baseline")
    search = _Search(n, findings)
    build = search.probe()
    if build is not None:
        return Probe(GateStep(0, build), "search")
    return _next_check(n, findings, search)


def _next_check(n: int, findings: Mapping[GateStep, GateAnswer], search: _Search) -> Probe | Answer:
    """The next gate that checks the search's result, or the answer."""
    direct = findings.get(search.step)
    if direct is None:
        return Probe(search.step, "confirm")
    compared = search.compared(direct) if direct.outcome is Outcome.FAIL else None
    if compared is not None and compared not in findings:
        return Probe(compared, "compare")
    contradiction = _contradiction(direct, findings.get(compared) if compared else None)
    if contradiction:
        mapped = _next_mapped(n, findings, search.used)
        return mapped or Answer(Ending.MAP, search.after, search.at, contradiction)
    why = search.why_no_culprit(direct)
    return Answer(Ending.RANGE if why else Ending.CULPRIT, search.after, search.at, why)


def narrowed(n: int, findings: Mapping[GateStep, GateAnswer]) -> GateStep | None:
    """The two builds that the culprit lies between so far; None before the first FAIL."""
    first = findings.get(GateStep(0, n))
    if first is None or first.outcome is not Outcome.FAIL:
        return None
    search = _Search(n, findings)
    search.probe()
    return search.step


def steps(n: int, findings: Mapping[GateStep, GateAnswer]) -> tuple[GateStep, ...]:
    """The neighbours among the builds judged against the baseline whose effects differ.

    They differ where their intervals do not meet. The baseline's own effect is none, exactly.
    """
    effects = {0: GateAnswer(Outcome.PASS, 0.0, 0.0)}
    effects |= {
        i: f for i in range(1, n + 1) if (f := findings.get(GateStep(0, i))) and f.is_judged
    }
    return tuple(
        GateStep(a, b) for a, b in pairwise(sorted(effects)) if not _meet([effects[a], effects[b]])
    )


class _Search:
    """The search for the first build that fails, replayed over the results.

    Attributes:
        after: the last build that passed.
        at: the first that failed.
        used: the results so far, by build.
    """

    def __init__(self, n: int, findings: Mapping[GateStep, GateAnswer]) -> None:
        self.after, self.at = 0, n
        self.used: dict[int, GateAnswer] = {}
        self._n = n
        self._findings = findings

    @property
    def step(self) -> GateStep:
        """The gate of the answer's two builds."""
        return GateStep(self.after, self.at)

    def probe(self) -> int | None:
        """The build to gate next; None if the search is over."""
        while (build := self._choose()) is not None:
            finding = self._findings.get(GateStep(0, build))
            if finding is None:
                return build if self._may_go_on() else None
            self.used[build] = finding
            if finding.outcome is Outcome.PASS:
                self.after = build
            elif finding.outcome is Outcome.FAIL:
                self.at = build
        return None

    def compared(self, direct: GateAnswer) -> GateStep | None:
        """The gate that compares the slowest of the builds that fail with the fastest.

        None if one effect explains all of them. An interval covers the pairs of its own gate: the
        machine's load also moves an effect from gate to gate, so disjoint intervals prove nothing.
        Measured in run pairs, both builds have the same machine.
        """
        failed = {self._n: self._findings[GateStep(0, self._n)]}
        failed |= {i: f for i, f in self.used.items() if f.outcome is Outcome.FAIL}
        effects = [*failed.items(), (self.at, direct)]
        gaps = [
            (slow_effect.low - fast_effect.high, GateStep(base=fast, candidate=slow))
            for (slow, slow_effect), (fast, fast_effect) in permutations(effects, 2)
            if slow != fast
        ]
        gap, step = max(gaps, default=(0.0, None))
        return step if gap > 0 else None

    def why_no_culprit(self, direct: GateAnswer) -> str:
        """Why no single build is the answer, given the gate of its two builds."""
        if self._choose() is not None:
            return _USED_UP
        if self.at - self.after > 1:
            return "no build between the two could be judged PASS or FAIL"
        return "" if direct.is_judged else "the two could not be compared"

    def _may_go_on(self) -> bool:
        # The candidate's gate is behind it, and the confirming one before it.
        max_gates = gates_to_name(self._n) + _RESERVE - 2
        return sum(finding.is_judged for finding in self.used.values()) < max_gates

    def _choose(self) -> int | None:
        between = range(self.after + 1, self.at)
        still_open = [build for build in between if build not in self.used]
        if not still_open:
            return None
        n_skipped = len(between) - len(still_open)
        # The middle, then its neighbour, then far from it: builds that cannot be made come in rows,
        # and a row is left most quickly by a long step.
        share = 0.5 if n_skipped < 2 else (0.25, 0.75)[n_skipped % 2]
        return still_open[int(share * len(still_open))]


def _contradiction(direct: GateAnswer, compared: GateAnswer | None) -> str:
    """Why one step does not explain every FAIL; empty if it does.

    `compared` is the gate of two builds that fail; None if one effect explains them.
    """
    if direct.outcome in {Outcome.PASS, Outcome.INCONCLUSIVE}:
        return f"the comparison of the two directly is {direct.outcome}"
    if compared is not None and compared.outcome is not Outcome.PASS:
        return f"builds that fail differ: the slowest against the fastest is {compared.outcome}"
    return ""


def _meet(findings: Collection[GateAnswer]) -> bool:
    """True if one effect lies in the intervals of all."""
    return max(f.low for f in findings) <= min(f.high for f in findings)


def _next_mapped(
    n: int, findings: Mapping[GateStep, GateAnswer], searched: Collection[int]
) -> Probe | None:
    """The gate that halves the widest gap among the builds judged against the baseline."""
    against_base = {
        i: f for i in range(1, n + 1) if (f := findings.get(GateStep(0, i))) is not None
    }
    judged = [0, *(i for i, finding in against_base.items() if finding.is_judged)]
    n_mapped = sum(1 for i in judged if i not in searched) - 2  # nor the two ends
    gaps = sorted(pairwise(judged), key=lambda gap: gap[0] - gap[1])
    for low, high in gaps if n_mapped < _MAPPED else ():
        still_open = [i for i in range(low + 1, high) if i not in against_base]
        if still_open:
            return Probe(GateStep(0, still_open[len(still_open) // 2]), "map")
    return None
