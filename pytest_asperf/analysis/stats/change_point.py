"""Steps in a series of nightly runs, found run by run with a bound on false alarms.

The evidence for a step at a run is the likelihood ratio of statistics that a shift and a change of
scale leave unchanged, so neither mean nor variance has to be known or learned first (Pérez-Ortiz et
al., Ann. Statist. 52, 2024). Its sum over the runs is an e-detector (Shin, Ramdas & Rinaldo, NEJSDS
2, 2024). Runs may be correlated, AR(1) up to `CORRELATIONS`: the evidence is that against the
correlation which explains the series best. Derivation and limits: ``docs/statistics.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, stdtrit  # type: ignore[import-untyped]  # no types

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Correlations of a run with the next for which the bound is computed, and the weight of the
#: likelihood without a step at each: the bound is weaker by that factor. At full weight the last
#: one would hide half of the steps that ten runs show at a correlation of 0.6.
CORRELATIONS: Final = (0.0, 0.2, 0.4, 0.6, 0.8)
_WEIGHTS: Final = (1.0, 1.0, 1.0, 1.0, 0.1)
#: Runs below which a series has too few for a state: most steps of 5 % would be missed.
LEAST_NIGHTS: Final = 10
#: Runs before the first that a step can begin at.
_LEAST_BEFORE: Final = 4
#: Steps that begin earlier than this many runs ago are no longer searched for.
_WINDOW: Final = 40
#: Variance of the steps that are searched for, in units of the variance of runs: most of them are
#: of up to eight standard deviations.
_STEP_VARIANCE: Final = 16.0
#: Spread of runs below which differences are not evidence: clocks and memory layout cause as much.
_LEAST_SD: Final = 0.001
#: A bad run: an outlier from this many runs before it, by this many robust standard deviations; and
#: the usual distance of one.
_LEAST_KNOWN: Final = 8
_FAR: Final = 6.0
_USUALLY_FAR: Final = 2.0
#: A run counts for less if its standard error is larger than the usual one by more than this: the
#: standard error of 20 pairs is itself known to a fifth.
_USUAL: Final = 1.5
#: Smaller steps are not reported.
LEAST_STEP: Final = 0.01
#: Runs that have to show a step. Two bad runs in a row look like a large one, so that needs more;
#: if the build changed, a gate sees it in its first run.
_NIGHTS: Final = 2
_NIGHTS_OF_LARGE: Final = 3
_LARGE_STEP: Final = 0.1
_NIGHTS_A_YEAR: Final = 365.25


def alarm_threshold(n_series: int = 1, alarms_per_year: float = 1.0) -> float:
    """Evidence at which a step is reported, for series that are measured every night.

    The mean time to a false alarm of any of them is then at least a year / `alarms_per_year`: one
    series has one within m runs with a probability of at most m / threshold.
    """
    return 2 * max(1, n_series) * _NIGHTS_A_YEAR / alarms_per_year


@dataclass(frozen=True, slots=True)
class Step:
    """A change of a series' mean."""

    index: int  #: the most likely first run of the new mean
    #: first, last: runs between which it began, with 90 % confidence
    first: int
    last: int
    seen: int  #: the run whose value was evidence enough
    log_ratio: float  #: log of the new mean over the old one
    #: low, high: 90 % interval of it
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class NightSeries:
    """Runs in their order."""

    values: Floats  #: log ratios, or logs of a rate
    gaps: Floats  #: nights since the value before; a missing run makes it 2
    weights: Floats  #: inverse of each run's standard deviation, relative to the usual one

    def since(self, index: int) -> NightSeries:
        """The runs from an index on."""
        return NightSeries(self.values[index:], self.gaps[index:], self.weights[index:])

    def until(self, index: int) -> NightSeries:
        """The runs before an index."""
        return NightSeries(self.values[:index], self.gaps[:index], self.weights[:index])


def as_series(
    values: Sequence[float],
    *,
    nights: Sequence[float] | None = None,
    errors: Sequence[float] | None = None,
) -> NightSeries:
    """A series of values.

    Args:
        values: log ratios, one per run.
        nights: the number of each run's night, if some are missing.
        errors: standard error of each value. A run that is noisier than the runs before it counts
            for less.
    """
    numbers = np.asarray(values, float)
    gaps = np.ones(len(numbers))
    if nights is not None and len(numbers) > 1:
        # Two sessions of one night are as close as possible.
        gaps[1:] = np.maximum(np.diff(np.asarray(nights, float)), 0.1)
    return NightSeries(numbers, gaps, _weights(numbers, errors))


def _weights(values: Floats, errors: Sequence[float] | None) -> Floats:
    if errors is None:
        return np.ones(len(values))
    each = np.maximum(np.asarray(errors, float), _LEAST_SD)
    # From the runs up to each, so that a later run changes no earlier verdict.
    usual = [_median(each[: n + 1]) for n in range(len(each))]
    result: Floats = np.minimum(1.0, _USUAL * np.asarray(usual) / each)
    return result


def _tamed(values: Floats) -> Floats:
    """The values with each single bad run moved to a usual bad run's value.

    A bad run is far from the runs before, and its neighbours are not. Two in a row may still be a
    step.
    """
    result = values.copy()
    if len(values) <= _LEAST_KNOWN:
        return result
    jumps = np.diff(values)
    # The second run is both neighbours of the first.
    around = np.stack((np.concatenate((-jumps[:1], jumps[:-1])), -jumps))
    alone = (around.prod(axis=0) > 0) & (np.abs(around).min(axis=0) > _FAR / 2 * _LEAST_SD)
    for night in map(int, np.flatnonzero(alone)):
        known = result[: max(night, _LEAST_KNOWN)]
        middle = _median(known)
        sd = max(1.4826 * _median(np.abs(known - middle)), _LEAST_SD)
        distance, *others = (values[[night, night + 1, max(night - 1, 0)]] - middle) / sd
        if abs(distance) > _FAR and max(map(abs, others[: 1 + bool(night)])) < _FAR / 2:
            result[night] = middle + math.copysign(_USUALLY_FAR * sd, distance)
    return result


def _median(values: Floats) -> float:
    """The upper median: `numpy.median` is five times as slow."""
    middle = len(values) // 2
    return float(np.partition(values, middle)[middle])


def find_steps(series: NightSeries, threshold: float) -> tuple[Step, ...]:
    """The steps that the runs showed, each at the first whose evidence reached the threshold."""
    found: list[tuple[int, int]] = []
    begin, seen = 0, 0
    while True:
        alarm = _first_alarm(series.since(begin), threshold, seen - begin)
        if alarm is None:
            break
        index, seen = begin + alarm[0], begin + alarm[1]
        found.append((index, seen))
        begin = index
    # Runs after the alarm improve the step's place. It is between the step before, at its new
    # place, and the next alarm's, so steps stay in their order.
    steps: list[Step] = []
    ends = [*(index for index, _ in found[1:]), len(series.values)]
    for (near, seen), end in zip(found, ends, strict=False):
        steps.append(_located(series, steps[-1].index if steps else 0, near, end, seen))
    return tuple(steps)


def _first_alarm(series: NightSeries, threshold: float, after: int) -> tuple[int, int] | None:
    """The run at which a step began, and the one that showed it.

    Runs up to `after` showed the step before, and cannot show another.
    """
    if len(series.values) <= _LEAST_BEFORE:
        return None
    scan = _Scan(replace(series, values=_tamed(series.values)))
    log_sums = logsumexp(scan.log_evidence, axis=1)
    for seen in map(int, np.flatnonzero(log_sums >= math.log(threshold))):
        index = seen - int(np.argmax(scan.log_evidence[seen]))
        if index > after and scan.is_shown(index, seen):
            return index, seen
    return None


class _Scan:
    """The evidence for a step at each run, after each run: rows are "after", columns lags."""

    def __init__(self, series: NightSeries) -> None:
        self._series = series
        self._models = [_Model(series, correlation) for correlation in CORRELATIONS]
        weighted = zip(self._models, map(math.log, _WEIGHTS), strict=True)
        null = np.max([model.log_null + log_weight for model, log_weight in weighted], axis=0)
        n = len(series.values)
        at = np.arange(n)[:, None] - np.arange(min(_WINDOW, n))
        with_step = [model.log_null[:, None] + model.log_ratio(at) for model in self._models]
        log_mean = logsumexp(with_step, axis=0) - math.log(len(with_step))
        self.log_evidence: Floats = np.where(at >= _LEAST_BEFORE, log_mean - null[:, None], -np.inf)

    def is_shown(self, index: int, seen: int) -> bool:
        """True if the last runs are on the step's side, so that bad runs are no alarm."""
        best = max(self._models, key=lambda model: float(model.log_null[seen]))
        size, level, _ = best.step(index, seen)
        needed = _NIGHTS if abs(size) < _LARGE_STEP else _NIGHTS_OF_LARGE
        last = self._series.values[max(index, seen + 1 - needed) : seen + 1]
        is_beyond = len(last) == needed and bool(np.all((last - level) * size > size**2 / 2))
        return abs(size) >= LEAST_STEP and is_beyond


class _Model:
    """A series with a given correlation, whitened: a mean, a step, and their squares so far.

    Each row of the whitened series is independent of the rows before, with the same variance.
    """

    def __init__(self, series: NightSeries, correlation: float) -> None:
        shared = correlation**series.gaps
        shared[0] = 0.0
        scale = 1 / np.sqrt(1 - shared**2)
        self._first = float(series.values[0])
        self._y = _white((series.values - self._first) * series.weights, shared, scale)
        self._level = _white(series.weights, shared, scale)
        #: A step's column in the row in which it begins: the row before has no share in it.
        self._begin = scale * series.weights
        self._squares = np.cumsum(self._level**2)
        self._products = np.cumsum(self._level * self._y)
        self._counts = np.arange(len(series.values))
        rest = np.cumsum(self._y**2) - self._products**2 / self._squares
        self._rest = np.maximum(rest, 0) + np.maximum(self._counts, 1) * _LEAST_SD**2
        #: Log of the likelihood of the series up to each run without a step.
        self.log_null: Floats = (
            np.cumsum(np.log(scale))
            - np.log(self._squares) / 2
            - self._counts / 2 * np.log(self._rest)
        )

    def log_ratio(self, at: Ints) -> Floats:
        """Log of the likelihood with a step at run `at` over that without, after each row."""
        after = np.arange(len(at))[:, None]
        weight, share, _ = self._beside_the_level(np.maximum(at, 0), after)
        explained = np.minimum(share**2 / weight / self._rest[:, None], 1.0)
        spread = 1 + _STEP_VARIANCE * weight
        half = (self._counts / 2)[:, None]
        result: Floats = -np.log(spread) / 2 - half * np.log1p(-explained * (1 - 1 / spread))
        return result

    def step(self, at: int, after: int) -> tuple[float, float, float]:
        """The step at one run as the runs up to another show it: size, mean before, error."""
        weights, shares, with_level = self._beside_the_level(np.array(at), np.array(after))
        weight, size = float(weights), float(shares / weights)
        level = float((self._products[after] - with_level * size) / self._squares[after])
        rest = max(float(self._rest[after]) - size**2 * weight, _LEAST_SD**2)
        return size, level + self._first, math.sqrt(rest / max(1, after - 1) / weight)

    def _beside_the_level(self, at: Ints, after: Ints) -> tuple[Floats, Floats, Floats]:
        """Square and share of y of a step's column, orthogonal to the mean, and its product."""
        level, begin = self._level[at], self._begin[at]
        later = self._squares[after] - self._squares[at]
        with_level = level * begin + later
        with_y = begin * self._y[at] + self._products[after] - self._products[at]
        square = begin**2 + later - with_level**2 / self._squares[after]
        share = with_y - with_level * self._products[after] / self._squares[after]
        return np.maximum(square, 1e-12), share, with_level


def _white(column: Floats, shared: Floats, scale: Floats) -> Floats:
    """A column without its correlation to the row before."""
    before = np.concatenate(([0.0], column[:-1]))
    result: Floats = scale * (column - shared * before)
    return result


def _located(series: NightSeries, begin: int, near: int, end: int, seen: int) -> Step:
    """The place and size of the one step between two runs; an alarm placed it near one run."""
    part = series.since(begin).until(end - begin)
    levels = np.split(part.values, [near - begin])
    part = replace(part, values=np.concatenate([_tamed(level) for level in levels]))
    n = len(part.values)
    models = [_Model(part, correlation) for correlation in CORRELATIONS]
    at = np.tile(np.arange(n), (n, 1))
    logs = [model.log_null[-1] + model.log_ratio(at)[-1, 1:] for model in models]
    posterior = np.exp(logsumexp(logs, axis=0) - logsumexp(logs))
    index = int(np.argmax(posterior)) + 1
    first, last = (begin + 1 + bound for bound in _interval(posterior))
    best = models[int(np.argmax([log.max() for log in logs]))]
    size, _, error = best.step(index, n - 1)
    half = float(stdtrit(max(1, n - 2), 0.95)) * error
    return Step(begin + index, first, last, seen, size, size - half, size + half)


def _interval(posterior: Floats, level: float = 0.9) -> tuple[int, int]:
    """First and last index of the most likely ones that together have a probability."""
    order = np.argsort(posterior)[::-1]
    needed = int(np.searchsorted(np.cumsum(posterior[order]), level)) + 1
    return int(order[:needed].min()), int(order[:needed].max())
