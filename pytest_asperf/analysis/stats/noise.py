"""How noisy a machine is, from pairs of equal builds, and how often it failed them.

Formulas and their limits: ``docs/statistics.md``, "The machine's own noise".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, variance
from typing import Final

from scipy.special import betaincinv  # type: ignore[import-untyped]  # scipy ships no types

from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.stats.intervals import paired_change_interval
from pytest_asperf.analysis.stats.sequential import robust_sd
from pytest_asperf.errors import MeasurementError

#: High, because the rate is looked at after every self-check, and one FAIL must not condemn.
_FLOOR_CONFIDENCE: Final = 0.995


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a machine, from pairs of equal builds."""

    spread: float  #: `robust_sd` of the pairs' log cost ratios
    position: Estimate  #: relative change of cost from the first to the second run of a run pair
    #: standard deviation from load to load of the log cost, beyond the variation of runs within a
    #: load; None if the runs do not show it
    load_sd: float | None


def noise_of(
    log_ratios: Sequence[float],
    by_side: Sequence[tuple[Sequence[float], Sequence[float]]],
    by_turn: Sequence[tuple[Sequence[float], Sequence[float]]],
    *,
    reloads: bool,
) -> Noise:
    """The noise that A/A pairs show.

    Args:
        log_ratios: by pair, ln(candidate / baseline).
        by_side: by pair, the costs of the baseline's and of the candidate's runs.
        by_turn: by pair, the costs of the first runs of its run pairs, and of the second runs.
        reloads: True if each variant of each pair was a load of its own.
    """
    if len(log_ratios) < 2:
        raise MeasurementError(
            f"{len(log_ratios)} pairs were measured",
            why="a spread needs two",
            remedy="allow more pairs, or more time",
        )
    position = paired_change_interval(
        [_typical(first) for first, _ in by_turn], [_typical(second) for _, second in by_turn]
    )
    load_sd = _load_sd(by_side) if reloads else None
    return Noise(robust_sd(log_ratios), position, load_sd)


def fail_rate_floor(fails: int, n: int) -> float:
    """A lower bound of the rate at which equal builds FAIL, at 99.5 % one-sided.

    Clopper & Pearson, Biometrika 26 (1934): exact for any rate.
    """
    if not 0 <= fails <= n or n < 1:
        raise ValueError(f"{fails} FAILs of {n}")
    return float(betaincinv(fails, n - fails + 1, 1 - _FLOOR_CONFIDENCE)) if fails else 0.0


def _typical(runs: Sequence[float]) -> float:
    return math.exp(_mean_log(runs))


def _mean_log(runs: Sequence[float]) -> float:
    return fmean(map(math.log, runs))


def _load_sd(by_side: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float | None:
    """The random effect of a load, by the method of moments, from differences in pairs."""
    loads = list(chain.from_iterable(by_side))
    if min(map(len, loads)) < 2:
        return None
    between = variance(_mean_log(b) - _mean_log(a) for a, b in by_side)
    explained = fmean(variance(map(math.log, runs)) / len(runs) for runs in loads)
    return math.sqrt(max(0.0, between / 2 - explained))
