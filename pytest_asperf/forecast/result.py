"""The result of `asperf predict`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_asperf.analysis.capacity import Demand, Fit, MemoryCapacity, Payoff, Verification
    from pytest_asperf.hardware.in_force import BandwidthBound
    from pytest_asperf.report.sections import Failure


@dataclass(frozen=True, slots=True)
class SpeculationForecast:
    """The effect of a draft on one target: by cost of verifying, the payoff at each acceptance.

    `ratio` is the speed of the draft over the target's, None if unknown.
    """

    ratio: float | None
    ratio_basis: str
    rows: tuple[tuple[Verification, tuple[Payoff, ...]], ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The prediction for one model.

    Attributes:
        fit: whether it fits, with the draft if there is one; None if memory is unknown.
        ceilings: TG in tok/s that the bandwidth allows, with an empty and with a full context.
        reached: the range of it that real runs reach; None if a cache can hold what is read.
    """

    demand: Demand
    fit: Fit | None
    ceilings: tuple[float, float] | None
    reached: tuple[float, float] | None
    speculation: SpeculationForecast | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for a machine and its models; what is unknown says why.

    `kv_types` are of the K and the V cache, for each model.
    """

    hardware: str
    memory: MemoryCapacity | Failure
    ceiling: BandwidthBound | Failure
    bandwidth_basis: str
    kv_types: tuple[tuple[str, str], ...]
    draft: Demand | None
    forecasts: tuple[Forecast, ...]

    @property
    def fits(self) -> bool:
        """Whether every model is known to fit."""
        return all(forecast.fit is not None and forecast.fit.fits for forecast in self.forecasts)
