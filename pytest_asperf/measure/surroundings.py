"""What is known of the noise around a gate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_asperf.analysis.stats.noise import fail_rate_floor
from pytest_asperf.hardware.watch import NOT_WATCHED, Watched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_asperf.hardware.conditions import Condition


@dataclass(frozen=True, slots=True)
class Calibration:
    """The noise of one workload under one engine build on one kind of machine.

    The bounds of the position are those of its 90 % interval.

    Attributes:
        engine: the engine build, as `EngineFacts.build` names it.
        spread: robust standard deviation of A/A log cost ratios.
        position: relative change of cost from the first to the second run of a turn.
        load_sd: standard deviation of log cost from load to load, None where it is not known.
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
    """How many gates of equal builds ran on a machine, and how many of them were a FAIL."""

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
        conditions: the readiness before it.
        calibrations: the known noise by workload.
        watched: the machine during it.
    """

    conditions: tuple[Condition, ...] = ()
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    self_checks: SelfChecks = SelfChecks()
    watched: Watched = NOT_WATCHED
