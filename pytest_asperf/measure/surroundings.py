"""What is known of the noise around a gate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.noise import fail_rate_floor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_asperf.hardware.conditions import Condition


@dataclass(frozen=True, slots=True)
class Calibration:
    """The noise of one workload under one engine build on one kind of machine.

    Attributes:
        workload: its name.
        engine: the engine build, as `EngineFacts.build` names it.
        model: address of the model it was measured on.
        model_sha256: hash of that model's file.
        spread: robust standard deviation of A/A log cost ratios.
        position: relative change of cost from the first to the second run of a turn.
        position_low: lower bound of its 90 % interval.
        position_high: upper bound of it.
        load_sd: standard deviation of log cost from load to load, None where it cannot be told.
        pairs: A/A pairs that all of this rests on.
        measured_on: the day, ISO 8601.
        pair_s: seconds that a pair took, None where an earlier version kept it.
    """

    workload: str
    engine: str
    model: str
    model_sha256: str
    spread: float
    position: float
    position_low: float
    position_high: float
    load_sd: float | None
    pairs: int
    measured_on: str
    pair_s: float | None = None


@dataclass(frozen=True, slots=True)
class SelfChecks:
    """How gates of equal builds came out on a machine.

    Attributes:
        n: how many ran.
        fails: how many were a FAIL.
    """

    n: int = 0
    fails: int = 0

    @property
    def floor(self) -> float:
        """The rate of FAILs that is shown at least."""
        return fail_rate_floor(self.fails, self.n) if self.n else 0.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a gate ran in.

    Attributes:
        conditions: readiness just before it.
        calibrations: by workload, the noise of this machine, where it is known.
        self_checks: how equal builds came out here so far.
    """

    conditions: tuple[Condition, ...] = ()
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    self_checks: SelfChecks = SelfChecks()
