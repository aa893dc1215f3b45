"""Pairs of equal builds to the noise that they show."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.noise import noise_of
from pytest_asperf.analysis.stats.sequential import robust_sd
from pytest_asperf.measure.surroundings import Calibration

if TYPE_CHECKING:
    from pytest_asperf.measure.ab_speed import ABResult, WorkloadPairs


def _noisier(pairs: WorkloadPairs) -> list[float]:
    """Log ratios of the pairs' cost: a gate judges two, and the noisier one needs more pairs."""
    costs = (
        [pair.log_ratio for pair in pairs.pairs],
        [pair.total_log_ratio for pair in pairs.pairs],
    )
    return max(costs, key=robust_sd)


def spread_of(pairs: WorkloadPairs) -> float | None:
    """Robust standard deviation of log ratios from pair to pair; None of fewer than three."""
    return robust_sd(_noisier(pairs)) if len(pairs.pairs) > 2 else None


def calibration_of(pairs: WorkloadPairs, result: ABResult, model: str) -> Calibration:
    """What pairs of equal builds show of the machine's noise; two pairs at least."""
    noise = noise_of(
        _noisier(pairs),
        [(pair.baseline_costs, pair.candidate_costs) for pair in pairs.pairs],
        [pair.in_turn for pair in pairs.pairs],
        reloads=pairs.is_fresh,
    )
    base = result.ran[0]
    return Calibration(
        pairs.workload.name,
        base.engine.build,
        model,
        base.sha256,
        noise.spread,
        noise.position.point,
        noise.position.low,
        noise.position.high,
        noise.load_sd,
        len(pairs.pairs),
        dt.datetime.now(tz=dt.UTC).date().isoformat(),
        pairs.elapsed_s / len(pairs.pairs),
    )
