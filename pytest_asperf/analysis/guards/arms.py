"""Guards on the run record: against the request, and one variant against the other."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from pytest_asperf.analysis.guards.guard import Guard, GuardFinding, figure
from pytest_asperf.errors import printable

#: Quantities nearer than this are equal: repeated runs of one path on one machine differ by less.
#: The published hybrid's 100 ms lie 4 % from its baseline's 96 ms, its memory at 0 %.
IDENTICAL: Final = 0.05
#: One equal quantity is chance; two equal quantities show that both variants are one.
IDENTICAL_LEAST: Final = 2

_SHOWN: Final = 80


def path_mismatch(asked: Mapping[str, object], ran: Mapping[str, object]) -> GuardFinding | None:
    """Trip if an engine reports another setting than the request; unknown ones do not count."""
    differing = [
        f"{_text(name)} {_text(value)} was requested and {_text(ran[name])} ran"
        for name, value in asked.items()
        if ran.get(name) is not None and ran[name] != value
    ]
    if not differing:
        return None
    return Guard.PATH_MISMATCH.finding(
        "; ".join(differing), "the settings that ran are the requested ones"
    )


def identical_to_baseline(
    arm: Mapping[str, float], baseline: Mapping[str, float]
) -> GuardFinding | None:
    """Trip if a variant that must differ from the baseline equals it.

    Quantities are named with their units (`TTFT ms`); only shared names are compared.
    """
    shared = [name for name in arm if name in baseline]
    if len(shared) < IDENTICAL_LEAST or not all(
        math.isclose(arm[n], baseline[n], rel_tol=IDENTICAL) for n in shared
    ):
        return None
    pairs = ", ".join(f"{_text(n)} {figure(arm[n])} and {figure(baseline[n])}" for n in shared)
    return Guard.IDENTICAL_TO_BASELINE.finding(
        f"a variant that must differ equals the baseline in everything compared: {pairs}",
        f"variants that differ do so by more than {IDENTICAL:.0%} in one of {IDENTICAL_LEAST} or "
        "more quantities",
    )


def same_weights(
    arm: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]], *, shown: str = ""
) -> GuardFinding | None:
    """Trip if two models that must differ are one, by their files or by all scores.

    Scores are NLL in nats, by chunk. `shown` is the proof by the files; empty if there is none.
    """
    n_tokens = sum(map(len, arm))
    same_scores = n_tokens and list(map(list, arm)) == list(map(list, baseline))
    if not shown and not same_scores:
        return None
    return Guard.IDENTICAL_TO_BASELINE.finding(
        shown or f"both give all {n_tokens} tokens the same probability to the last bit",
        "weights that differ give some token another probability",
    )


def unequal_work(arm: Mapping[str, object], baseline: Mapping[str, object]) -> GuardFinding | None:
    """Trip if the variants did not do equal work: prompt, token counts, model, by shared names."""
    differing = [
        f"{_text(name)} {_text(arm[name])} against {_text(baseline[name])}"
        for name in arm
        if name in baseline and arm[name] != baseline[name]
    ]
    if not differing:
        return None
    return Guard.UNEQUAL_WORK.finding("; ".join(differing), "both variants do the same work")


def estimate(what: str, n: int) -> GuardFinding | None:
    """Trip if a figure was estimated without a run."""
    if n:
        return None
    return Guard.ESTIMATE.finding(
        f"{_text(what)} is an estimate: no run measured it", "a check needs a measurement (n >= 1)"
    )


def _text(value: object) -> str:
    return printable(value, _SHOWN)
