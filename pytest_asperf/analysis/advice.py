"""Advice that decides an assertion, or would decide one that is still open."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_asperf.analysis.stats.estimate import counted_text
from pytest_asperf.analysis.verdict import Figure, Outcome, Subject
from pytest_asperf.errors import Advice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_asperf.analysis.stats.estimate import Estimate


#: Beyond this many times the observations taken, "measure more" is no advice.
_PRACTICABLE: Final = 100
#: By what is counted, the setting of a session that says how many.
_SETTINGS: Final = {
    "chunks": "chunks",
    "loads": "repetitions",
    "runs of one load": "repetitions",
    "pairs": "max_pairs",
}


def outcome_of(*, holds: bool, broken: bool) -> Outcome:
    """FAIL if the claim is shown broken, PASS if it is shown to hold, else INCONCLUSIVE."""
    if broken:
        return Outcome.FAIL
    return Outcome.PASS if holds else Outcome.INCONCLUSIVE


def why_open(estimate: Estimate) -> str:
    """Why a claim about a figure is not decided, if its interval does not show it."""
    if estimate.has_interval:
        return ""
    return f"{estimate.basis} {'gives' if estimate.n == 1 else 'give'} no interval"


def advice_for(
    outcome: Outcome, subject: Subject, undecided: Sequence[tuple[Figure, tuple[float, ...]]]
) -> str:
    """Nothing after PASS, the subject's remedy after FAIL, else what would decide each figure."""
    if outcome is Outcome.PASS:
        return ""
    if outcome is Outcome.FAIL:
        return subject.if_failed
    labelled = [(label, _would_decide(e, limits)) for (label, e), limits in undecided]
    texts = (text if label == subject.name else f"{label}: {text}" for label, text in labelled)
    return "; ".join(texts)


def _would_decide(estimate: Estimate, limits: tuple[float, ...]) -> str:
    if not estimate.has_interval:
        if estimate.needed is None:
            return f"measure more than {estimate.basis} ({estimate.method})"
        needed = counted_text(estimate.needed, estimate.counted)
        return str(Advice(f"measure {needed}", **_setting(estimate, estimate.needed)))
    total = _needed(estimate, limits)
    if total > _PRACTICABLE * estimate.n:
        return "too near the limit for more measurements to decide: set another limit"
    more = math.ceil(total - estimate.n)
    two_digits = round(more, 2 - len(str(more))) if more > 99 else more
    advice = Advice(
        f"about {two_digits} more {estimate.counted} would decide it if the figure stays where "
        "it is",
        **_setting(estimate, estimate.n + two_digits),
    )
    return str(advice)


def _setting(estimate: Estimate, total: int) -> dict[str, int]:
    """The setting that says how many are measured, with the number to measure."""
    if estimate.repetitions is not None:
        return {"repetitions": math.ceil(total * estimate.repetitions / estimate.n)}
    key = _SETTINGS.get(estimate.counted)
    return {key: total} if key else {}


def _needed(estimate: Estimate, limits: tuple[float, ...]) -> float:
    """Observations after which the interval would contain no limit.

    An interval's width goes with ``1 / sqrt(n)``; with few observations t makes this too many.
    """
    needed: float = estimate.n + 1
    for limit in limits:
        if not estimate.low <= limit <= estimate.high:
            continue
        distance = abs(limit - estimate.point)
        half = (
            estimate.high - estimate.point
            if limit > estimate.point
            else estimate.point - estimate.low
        )
        ratio = half / distance if distance else math.inf
        needed = max(needed, estimate.n * ratio * ratio)
    return needed


def nearest_to_decided(
    candidates: Iterable[Sequence[Figure]],
) -> list[tuple[Figure, tuple[float, ...]]]:
    """For each candidate, the undecided figure that needs the fewest observations."""
    still_open = (
        [f for f in figures if not f[1].is_exact and f[1].low <= 0 <= f[1].high]
        for figures in candidates
    )
    return [(min(fs, key=lambda f: _needed(f[1], (0.0,))), (0.0,)) for fs in still_open if fs]
