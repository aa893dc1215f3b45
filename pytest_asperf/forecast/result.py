"""The result of `asperf predict`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_asperf.analysis.capacity import (
        Demand,
        Fit,
        MemoryCapacity,
        Payoff,
        Verification,
    )
    from pytest_asperf.hardware.in_force import Ceiling
    from pytest_asperf.report.sections import Failure


@dataclass(frozen=True, slots=True)
class SpeculationForecast:
    """The effect of a draft on one target.

    Attributes:
        ratio: speed of the draft over the target's, None if unknown.
        ratio_basis: its source.
        rows: for each cost of verifying, the payoff at each acceptance rate.
    """

    ratio: float | None
    ratio_basis: str
    rows: tuple[tuple[Verification, tuple[Payoff, ...]], ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The prediction for one model.

    Attributes:
        demand: the memory that the model needs.
        fit: whether it fits, with the draft if there is one; None if memory is unknown.
        ceilings: TG in tok/s that the bandwidth allows, with an empty and with a full context.
        reached: the range of it that real runs reach; None if a cache can hold what is read.
        speculation: the effect of a draft; None without one.
    """

    demand: Demand
    fit: Fit | None
    ceilings: tuple[float, float] | None
    reached: tuple[float, float] | None
    speculation: SpeculationForecast | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for a machine and its models.

    Attributes:
        hardware: the hardware, in one line.
        memory: its memory, or why it is unknown.
        ceiling: its bandwidth, or why it is unknown.
        bandwidth_basis: source of the bandwidth.
        kv_types: of the K and the V cache, for each model.
        draft: the memory that the draft needs.
        forecasts: by model.
    """

    hardware: str
    memory: MemoryCapacity | Failure
    ceiling: Ceiling | Failure
    bandwidth_basis: str
    kv_types: tuple[tuple[str, str], ...]
    draft: Demand | None
    forecasts: tuple[Forecast, ...]

    @property
    def fits(self) -> bool:
        """Whether every model is known to fit."""
        return all(forecast.fit is not None and forecast.fit.fits for forecast in self.forecasts)
