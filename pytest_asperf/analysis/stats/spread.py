"""How much runs vary: a coefficient of variation with its interval, and the ratio of two.

Bonett's interval of a standard deviation (Comput. Statist. Data Anal. 50, 2006) widens with the
kurtosis of the samples, while the chi-square interval assumes normal ones. Here it has Student's t
instead of the normal quantile, for small numbers of runs. Its error rates are in
``docs/statistics.md``, "Spread".
"""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pytest_asperf.analysis.stats.estimate import (
    DECISION_CONFIDENCE,
    RATIO,
    SHARE,
    Estimate,
    Values,
    finite_array,
)
from pytest_asperf.analysis.stats.intervals import t_quantile, z_quantile
from pytest_asperf.errors import MeasurementError

#: Samples from which there is an interval: the kurtosis uses a mean without its extremes.
LEAST_SAMPLES: Final = 5
_METHOD: Final = "Bonett's interval by the kurtosis seen, with Student's t"


def cv_interval(values: Values, *, counted: str = "runs") -> Estimate:
    """The standard deviation of independent samples over their mean; infinite bounds below 5.

    The mean's own error is left out: it moves the figure by its square.

    Raises:
        MeasurementError: no samples, one that is not positive, or all the same.
    """
    array = _spread_out(values, counted)
    cv = _cv(array)
    low, high = 0.0, math.inf
    if len(array) >= LEAST_SAMPLES:
        error = float(_log_sd_error(array))
        half = t_quantile(len(array) - 1, DECISION_CONFIDENCE) * error
        centre = cv * math.sqrt(_inflation(len(array)))
        low, high = centre * math.exp(-half), centre * math.exp(half)
    return Estimate(
        cv,
        min(low, cv),
        max(high, cv),
        len(array),
        method=_METHOD,
        unit=SHARE,
        counted=counted,
        needed=LEAST_SAMPLES,
    )


def cv_ratio_interval(values: Values, base: Values) -> Estimate:
    """The first samples' coefficient of variation over that of the base's, all independent."""
    arrays = [_spread_out(series, "runs") for series in (values, base)]
    ratio, n = _cv(arrays[0]) / _cv(arrays[1]), min(map(len, arrays))
    half = math.inf
    if n >= LEAST_SAMPLES:
        errors = [float(_log_sd_error(array)) for array in arrays]
        half = t_quantile(n - 1, DECISION_CONFIDENCE) * math.hypot(*errors)
    return Estimate(
        ratio,
        ratio * math.exp(-half),
        ratio * math.exp(half),
        n,
        method=_METHOD,
        unit=RATIO,
        counted="runs each",
        needed=LEAST_SAMPLES,
    )


def _log_sd_error(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standard error of the log of a standard deviation, along the last axis.

    Half of Bonett's of the log variance, whose kurtosis is taken about a trimmed mean.
    """
    n = values.shape[-1]
    cut = int(n / (2 * math.sqrt(n - 4)))
    middle = np.sort(values, axis=-1)[..., cut : n - cut].mean(axis=-1, keepdims=True)
    squares = ((values - values.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
    kurtosis = n * ((values - middle) ** 4).sum(axis=-1) / squares**2
    error: NDArray[np.float64] = np.sqrt(np.maximum(kurtosis - (n - 3) / n, 0) / (n - 1)) / 2
    return _inflation(n) * error


def _inflation(n: int) -> float:
    """Bonett's correction for few samples, of the variance and of its error."""
    return n / (n - z_quantile(DECISION_CONFIDENCE))


def _cv(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / values.mean()) if len(values) > 1 else 0.0


def _spread_out(values: Values, counted: str) -> NDArray[np.float64]:
    array = finite_array(values, counted)
    if not (array > 0).all() or len(array) < 2 or array.min() == array.max():
        raise MeasurementError(
            f"{len(array)} {counted} from {array.min():g} to {array.max():g} show no spread",
            why="times that were measured are positive and differ",
            remedy="measure two runs or more, and look at the engine's log",
        )
    return array


def reach(runs: Sequence[float]) -> tuple[float, float]:
    """The range of the runs, and of twice their spread about their geometric mean.

    The spread is the standard deviation of the logarithms, so that times and rates agree and no
    spread reaches 0. A single run has an unknown spread and reaches everything.
    """
    if len(runs) < 2:
        return -math.inf, math.inf
    logs = [math.log(run) for run in runs]
    middle, twice = fmean(logs), 2 * stdev(logs)
    return min(*runs, math.exp(middle - twice)), max(*runs, math.exp(middle + twice))


def reaches(runs: Sequence[float], limits: Iterable[float]) -> bool:
    """True if a run, or twice the runs' spread, reaches one of the limits."""
    low, high = reach(runs)
    return any(low <= limit <= high for limit in limits)


def reach_one_another(runs: Sequence[float], others: Sequence[float]) -> bool:
    """True if the ranges of two series meet."""
    (low, high), (other_low, other_high) = reach(runs), reach(others)
    return low <= other_high and other_low <= high
