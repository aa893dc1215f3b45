"""Steps in 60 runs: false alarms and delays of the change points, Otava and a 10 % threshold.

Run it as ``python benchmarks/bench_history.py``: seeded, under a minute on two cores, prints
Markdown and exits with 1 where a promise of docs/statistics.md is not kept. Otava's columns need
``pip install apache-otava``.

A run's value is the log ratio of two builds. In the first rows it is the median of 30 pairs, with
the noise of ``bench_sequential.py``: 2 % per run, a random walk of 0.3 % per run, one run in 20
slower by 20 %. In the others it is drawn with the standard deviation that the row names. Every rule
gets the same nightly runs, and decides after each of them. A false alarm is any alarm before the
step, or without one. The step of +5 % comes with nightly run 41.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from bench_sequential import Noise

from pytest_asperf.analysis.stats.change_point import alarm_threshold, as_series, find_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_asperf.analysis.stats.change_point import Step

    Array = NDArray[np.float64]

NIGHTS: Final = 60
STEP_AT: Final = 40
STEP: Final = math.log(1.05)
PAIRS: Final = 30
#: Nightly runs that Otava needs before it decides.
OTAVA_FROM: Final = 10
#: For the second table: the spread of nightly runs, and the number of watched series.
FEW_SD: Final = 0.0063
WATCHED: Final = (1, 8, 20)
LARGEST_FALSE: Final = 0.02
LEAST_FOUND: Final = 0.97


@dataclass(frozen=True, slots=True)
class Machine:
    """The differences between nightly runs.

    Attributes:
        name: in the table.
        pairs: pairs of a nightly run; 0 for a value with the spread `sd` alone.
        sd: spread of nightly runs in addition to that of their pairs, AR(1) with `correlation`.
        missing: share of nights that were not measured.
        outliers: share of nightly runs that are slower.
        ramp: the step builds up over so many nights.
        finds: True if the step has to be found within 2 nights here.
        outlier: how much slower these are.
        most_false: share of series that may have a false alarm.
    """

    name: str
    pairs: int = PAIRS
    sd: float = 0.0
    correlation: float = 0.0
    missing: float = 0.0
    outliers: float = 0.0
    ramp: int = 0
    finds: bool = False
    outlier: float = 0.2
    most_false: float = LARGEST_FALSE


MACHINES: Final = (
    Machine("30 pairs, 2 % per run", finds=True),
    Machine("20 pairs, 2 % per run", pairs=20, finds=True),
    Machine("30 pairs, nights AR(1) 0.4 of 0.5 %", sd=0.005, correlation=0.4),
    Machine("30 pairs, one night in five missing", missing=0.2, finds=True),
    Machine("30 pairs, one night in 20 slower by 20 %", outliers=0.05),
    Machine("30 pairs, one night in 20 slower by 8 %", outliers=0.05, outlier=0.08, most_false=1),
    Machine("30 pairs, +5 % as a ramp over 20 nights", ramp=20),
    Machine("nights of 1 %", 0, 0.01),
    Machine("nights of 2 %", 0, 0.02),
    Machine("nights of 2 %, AR(1) 0.4", 0, 0.02, 0.4),
    Machine("nights of 2 %, AR(1) 0.6", 0, 0.02, 0.6),
    Machine("nights of 2 %, AR(1) 0.8", 0, 0.02, 0.8, most_false=0.05),
)


def correlated(rng: np.random.Generator, shape: tuple[int, int], correlation: float) -> Array:
    """Standard normal values, each row an AR(1) series."""
    values = rng.standard_normal(shape)
    for night in range(1, shape[1]):
        values[:, night] *= math.sqrt(1 - correlation**2)
        values[:, night] += correlation * values[:, night - 1]
    return values


def nights(machine: Machine, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Values of n series without a step, and the standard error of each."""
    shape = (n, NIGHTS)
    values = machine.sd * correlated(rng, shape, machine.correlation)
    errors = np.full(shape, machine.sd)
    if machine.pairs:
        ratios = pair_ratios(machine.pairs, rng, n * NIGHTS)
        values += np.median(ratios, axis=1).reshape(shape)
        spread = 1.4826 * np.median(np.abs(ratios - np.median(ratios, axis=1)[:, None]), axis=1)
        errors = (1.2533 * spread / math.sqrt(machine.pairs)).reshape(shape)
    values += math.log1p(machine.outlier) * (rng.random(shape) < machine.outliers)
    return values, errors


def pair_ratios(pairs: int, rng: np.random.Generator, n: int) -> Array:
    """Log ratios of the pairs of n nightly runs, in random order of each pair."""
    runs = Noise().series(rng, n, 2 * pairs).reshape(n, pairs, 2)
    coin = np.where(rng.random((n, pairs)) < 0.5, 1.0, -1.0)
    result: Array = coin * (runs[..., 1] - runs[..., 0])
    return result


def with_step(machine: Machine, values: Array) -> Array:
    """These runs with a slowdown."""
    share = np.clip((np.arange(NIGHTS) - STEP_AT + 1) / max(1, machine.ramp), 0, 1)
    result: Array = values + STEP * share
    return result


@dataclass(frozen=True, slots=True)
class Nights:
    """One series: the nights that were measured, with their values."""

    number: Array
    values: Array
    errors: Array


def series_of(
    machine: Machine, values: Array, errors: Array, rng: np.random.Generator
) -> Iterator[Nights]:
    """Each series without the nights that are missing; those around the step are measured."""
    for row, error in zip(values, errors, strict=True):
        measured = rng.random(NIGHTS) >= machine.missing
        measured[STEP_AT - 1 : STEP_AT + 2] = True
        yield Nights(np.flatnonzero(measured).astype(float), row[measured], error[measured])


def this(series: Nights) -> list[int]:
    """Alarms of the change points."""
    return [int(series.number[step.seen]) for step in steps(series)]


def steps(series: Nights) -> tuple[Step, ...]:
    """The change points of one series, as for a project with one series."""
    found = as_series(
        series.values.tolist(), nights=series.number.tolist(), errors=series.errors.tolist()
    )
    return find_steps(found, alarm_threshold())


def ten_percent(series: Nights) -> list[int]:
    """Alarms of a threshold of 10 % against the run before."""
    jumps = np.abs(np.diff(series.values)) > math.log(1.1)
    return [int(series.number[i + 1]) for i in np.flatnonzero(jumps)]


def otava_rule() -> Callable[[Nights], list[int]] | None:
    """Alarms of Otava with its defaults, after each night; None if it is not installed."""
    try:
        analysis: Any = importlib.import_module("otava.analysis")
    except ImportError:
        return None

    def rule(series: Nights) -> list[int]:
        costs = np.exp(series.values).tolist()
        alarms, known = [], 0
        for n in range(OTAVA_FROM, len(costs) + 1):
            points, _ = analysis.compute_change_points(costs[:n])
            if len(points) > known:
                alarms.append(int(series.number[n - 1]))
            known = max(known, len(points))
        return alarms

    return rule


def share(values: Sequence[bool]) -> float:
    """The share of True."""
    return sum(values) / len(values)


def rates(alarms: Sequence[list[int]], stepped: Sequence[list[int]]) -> tuple[float, float, float]:
    """False alarms without a step; a step seen within 2 and within 10 nights."""
    return (
        share([bool(nights) for nights in alarms]),
        share([any(STEP_AT <= night < STEP_AT + 2 for night in nights) for nights in stepped]),
        share([any(STEP_AT <= night < STEP_AT + 10 for night in nights) for nights in stepped]),
    )


def located(series: Sequence[Nights]) -> tuple[float, float]:
    """The share of steps found within 2 nights of the true one, and the intervals with it."""
    near, covered = [], []
    for each in series:
        for step in steps(each):
            if each.number[step.seen] >= STEP_AT:
                near.append(abs(each.number[step.index] - STEP_AT) <= 2)
                first, last = each.number[step.first], each.number[step.last]
                covered.append(bool(first <= STEP_AT <= last))
                break
    return (share(near), share(covered)) if near else (math.nan, math.nan)


def oracle(machine: Machine, rng: np.random.Generator, n: int) -> float:
    """Share found within 2 nights by the best rule that knows mean, spread and size of the step.

    It is the Shiryaev-Roberts sum of likelihood ratios, with the limit at which it alarms in 2 % of
    series without a step.
    """
    unit = math.sqrt(1 - machine.correlation**2)
    size = STEP / machine.sd
    shifts = np.array([size, size * (1 - machine.correlation)]) / unit

    def sums(values: Array) -> Array:
        white = values.copy()
        white[:, 1:] = (values[:, 1:] - machine.correlation * values[:, :-1]) / unit
        first, later = (np.exp(white * shift - shift**2 / 2) for shift in shifts)
        total, every = np.zeros(len(values)), []
        for night in range(NIGHTS):
            total = total * later[:, night] + first[:, night]
            every.append(total)
        return np.array(every).T

    values = correlated(rng, (n, NIGHTS), machine.correlation)
    limit = np.quantile(sums(values).max(axis=1), 1 - LARGEST_FALSE)
    moved = sums(with_step(machine, machine.sd * values) / machine.sd)
    return float((moved[:, STEP_AT : STEP_AT + 2] >= limit).any(axis=1).mean())


def percent(value: float) -> str:
    """A share in percent."""
    return "" if math.isnan(value) else f"{100 * value:.1f}"


def compare(machine: Machine, n: int, n_otava: int) -> tuple[list[str], bool]:
    """A row of the table, and whether the promises are kept."""
    rng = np.random.default_rng(20261122)
    values, errors = nights(machine, rng, n)
    plain = list(series_of(machine, values, errors, np.random.default_rng(1)))
    moved = list(series_of(machine, with_step(machine, values), errors, np.random.default_rng(1)))
    cells = []
    own = rates([this(each) for each in plain], [this(each) for each in moved])
    cells += [*map(percent, own), *map(percent, located(moved))]
    rule = otava_rule()
    for asked, count in ((rule, n_otava), (ten_percent, n)):
        if asked is None:
            cells += ["", ""]
            continue
        false, two, _ = rates([asked(s) for s in plain[:count]], [asked(s) for s in moved[:count]])
        cells += [percent(false), percent(two)]
    known = percent(oracle(machine, rng, 20 * n)) if not machine.pairs else ""
    kept = own[0] <= machine.most_false
    return [machine.name, *cells, known], kept and (own[1] >= LEAST_FOUND or not machine.finds)


def few_nights(before: int, n: int) -> list[str]:
    """A row of the second table: a step after few nights, watched alone and with others."""
    rng = np.random.default_rng(before)
    values = FEW_SD * rng.standard_normal((n, before + 2))
    values[:, before:] += STEP
    found = [
        share([bool(find_steps(as_series(row.tolist()), alarm_threshold(k))) for row in values])
        for k in WATCHED
    ]
    return [str(before), *map(percent, found)]


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=400, help="series of a row")
    parser.add_argument("--otava", type=int, default=20, help="of them, series that Otava sees")
    asked = parser.parse_args()
    print(
        "| nights | false alarms | found in 2 nights | in 10 | within 2 nights of the step "
        "| interval holds it | Otava: false | in 2 | 10 %: false | in 2 | best rule: in 2 |"
    )
    print("|---|" + "---|" * 10)
    broken = []
    row_of = partial(compare, n=asked.series, n_otava=asked.otava)
    with ProcessPoolExecutor(2) as pool:
        for machine, (row, kept) in zip(MACHINES, pool.map(row_of, MACHINES), strict=True):
            print(f"| {' | '.join(row)} |", flush=True)
            broken += [] if kept else [machine.name]
    watched = " | ".join(f"one of {k} series" for k in WATCHED)
    print(f"\n| nights of {100 * FEW_SD:g} % before the step | {watched} |")
    print("|---|" + "---|" * len(WATCHED))
    for before in (8, 10, 14, 20, 40):
        print(f"| {' | '.join(few_nights(before, asked.series))} |")
    if broken:
        print(f"\nnot kept: {'; '.join(broken)}")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
